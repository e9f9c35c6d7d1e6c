"""Everything that is made once: data, model, programs.  Nothing here runs on the device yet."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models, rewards
from grpojax import objective as objective_lib
from grpojax.config import check as config_lib
from grpojax.config import check_keys, schema
from grpojax.config import workdir as workdir_lib
from grpojax.data import demonstrations, pipeline, templates, text
from grpojax.learner import logprobs, rows
from grpojax.learner.packing import PackSpec
from grpojax.models import peft
from grpojax.objective import Objective
from grpojax.rewards import judged, routing
from grpojax.rollout.context import Data, RolloutContext
from grpojax.rollout.envs import build as envs
from grpojax.runtime import (
  data_shards,
  hub,
  loggers,
  processes,
  sharding,
  storage,
  watchdog,
)  # fmt: skip
from grpojax.runtime.data_shards import SINGLE_PROCESS, ProcessShards
from grpojax.runtime.timer import Timer
from grpojax.train import auto, memory, shared, updates
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib
from grpojax.train import teacher as teacher_lib
from grpojax.train.policy import Policy
from grpojax.train.programs import Programs
from grpojax.train.teacher import Teacher


class Job(NamedTuple):
  """A run that is ready to start: its config is legal, its data is read, nothing is compiled."""

  config: ConfigDict  # with what `auto` chose
  asked: ConfigDict  # as it was given, which the workdir keeps
  workdir: Path
  mesh: Mesh
  objective: Objective
  policies: dict[str, Policy]  # "policy" is trained, "reference" is what KL penalties measure against
  programs: Programs
  rollout: RolloutContext
  pack: PackSpec | None  # how the sequences of an optimiser batch share rows; None: a row each
  needs_old_logprobs: bool  # whether a step's first batch needs its log-probs before its update
  teachers: tuple[Teacher, ...] = ()  # whose log-probs distillation reads

  def with_programs(self, programs: Programs) -> "Job":
    """Returns the same run by other programs of the same shapes."""
    policies = {name: policy._replace(logp=programs.logp) for name, policy in self.policies.items()}
    rollout = self.rollout._replace(engine=programs.sample, eval_engine=programs.sample_eval)
    return self._replace(programs=programs, policies=policies, rollout=rollout)

  @property
  def data(self) -> Data:
    """Returns the questions."""
    return self.rollout.data

  @property
  def model(self) -> models.Model:
    """Returns the architecture of the policy that is trained."""
    return self.policies["policy"].model


def prepare(
  config: ConfigDict,
  workdir: str | os.PathLike,
  functions: Mapping[str, Callable] = MappingProxyType({}),
  share: Callable | None = None,
) -> Job:
  """Returns the run that `config` describes, ready to start.  Raises ValueError for all that can be wrong.

  `functions` are rewards in memory, by their names in config.reward; `share` is shared.sharing's, where runs
  of one process share programs.
  Collective: several processes must have the same code, config, workdir and data.
  """
  check_keys.check(config)  # first, as the watchdog waits by one of them
  with watchdog.watchdog(config.guard.minutes, "reading the data"):
    where = storage.absolute(storage.resolve(workdir, "--workdir"))
    return _prepare(config, where, functions, share or shared.anew)


def _prepare(config: ConfigDict, workdir: Path, functions: Mapping[str, Callable], share: Callable) -> Job:
  """Prepares under the watchdog."""
  said = lambda: schema.flatten(config.to_dict(), "config.") | {"--workdir": workdir}
  processes.check_devices()
  processes.assert_equal(lambda: processes.code() | said())
  config_lib.check(config, jax.device_count())
  processes.on_process_0(lambda: loggers.check(config.log.to))  # which alone writes
  scorer, step_scorer = build_scorer(config, functions), None
  if config.process.scorer:
    step_scorer = rewards.load_scorer(config.process.scorer, config.process.knobs)
  objective = objective_lib.build(config.objective)
  asked, config = config, auto.choose_here(config)
  mesh = sharding.make_mesh(config.mesh)
  data_shards.check_sampler(mesh, sharding.sampler_mesh(config.mesh, mesh))
  shards = data_shards.of(mesh)
  data = load_data(config, scorer, shards)
  splits = data.train, data.held_out
  processes.assert_equal(
    lambda: {f"split '{s.name}'": pipeline.fingerprint(s) for s in splits} | hub.commits()
  )
  watchdog.progress("preparing the model and its programs")
  model = policy_lib.build_model(config, data.tokenizer, mesh)
  if config.lora.path:
    peft.check(Path(config.lora.path).expanduser(), config.lora, model)
  policy_lib.check_prompts(model, *splits)
  policy_lib.check_length(config)
  pack = rows.pack_spec(config, model, mesh)
  teacher_lib.check_rows(config, data.train.records)
  folder_of = lambda path: policy_lib.folder(path, "config.teacher.path", config.cache_dir)
  teachers = teacher_lib.build_all(config, folder_of, data.tokenizer, mesh, pack)
  memory.check(config, model, mesh, [teacher.model for teacher in teachers])
  if config.cold_start.steps:
    demonstrations.check(data.train, config.cold_start.batch_size)
  programs = share(programs_lib.build, config, model, data.tokenizer, mesh)
  if config.teacher.divergence:
    frozen = programs_lib.frozen_layout(model, mesh)
    beside = updates.beside_teachers(config, model, mesh, frozen, teachers)
    programs = programs._replace(update=beside)
  policy = Policy(model, data.tokenizer, programs.logp)
  policies = {"policy": policy} | ({"reference": policy} if config.reference else {})
  rollout = RolloutContext(
    config, data, scorer, step_scorer, programs.sample, programs.sample_eval, shards, Timer(), Counter()
  )
  first_pass = logprobs.needs_old_logprobs(config)
  processes.on_process_0(lambda: workdir_lib.check(workdir, asked))
  return Job(config, asked, workdir, mesh, objective, policies, programs, rollout, pack, first_pass, teachers)


def build_scorer(
  config: ConfigDict, functions: Mapping[str, Callable] = MappingProxyType({})
) -> rewards.Rewards:
  """Returns the rewards of completions: none where an environment brings its own."""
  return rewards.Rewards(()) if config.env.name else rewards.build(reward_slots(config), functions)


def reward_slots(config: ConfigDict) -> ConfigDict:
  """Returns config.reward, with the folder that the run starts from for a judge whose path is "init"."""
  slots = config.reward.copy_and_resolve_references()
  for name, slot in slots.items():
    if isinstance(slot, ConfigDict) and slot.get("path") == judged.INIT:
      if "path" not in config.model:
        raise ValueError(
          f"config.reward.{name}.path = 'init' is the policy in config.model.path, and this run starts from "
          "none; name the judge's folder."
        )
      slot.path = str(policy_lib.model_folder(config))
  return slots


def load_data(
  config: ConfigDict, scorer: rewards.Rewards, shards: ProcessShards = SINGLE_PROCESS
) -> Data:
  """Prepares and reads the dataset, with the fields that the rewards read."""
  tokenizer, _, read = reader(config, scorer)
  train, held_out = read("train"), pipeline.graded(read(config.eval.split), scorer.has_verdict)
  routing.check_rows({reward.name: reward.only for reward in scorer.all}, train.records)
  train = pipeline.weigh(train, config.data.mixture)
  stream = pipeline.Stream(train, tokenizer, config.rollout.prompts, config.seed, shards.rank, shards.count)
  return Data(tokenizer, train, held_out, stream)


def reader(config: ConfigDict, scorer: rewards.Rewards) -> tuple[Any, Path, Callable[[str], pipeline.Split]]:
  """Returns (the tokenizer, the folder of the prepared dataset, name of a split -> its rows)."""
  c = config.data
  tokenizer = text.load_tokenizer(policy_lib.model_folder(config))
  form = prompt_form(config, tokenizer)
  path = pipeline.prepare(c, storage.cache(config.cache_dir, "datasets"), schema.DATA_KEYS)
  return tokenizer, path, lambda name: pipeline.load_split(c, path, name, tokenizer, scorer.needs, form)


def prompt_form(config: ConfigDict, tokenizer) -> templates.Form:
  """Returns the form of a prompt: that of config.data, with the tools of config.env."""
  c = config.data
  form = templates.build(c.template, c.system, c.chat, c.split_special_tokens)
  return templates.with_tools(form, tokenizer, envs.schemas(config.env.name, config.env.knobs.to_dict()))
