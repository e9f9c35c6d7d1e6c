"""Everything that is made once: data, model, programs.  Nothing here runs on the device yet."""

import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models, rewards
from grpojax import objective as objective_lib
from grpojax.config import check as config_lib
from grpojax.config import check_keys, schema
from grpojax.config import workdir as workdir_lib
from grpojax.data import demonstrations, pipeline, templates, text
from grpojax.learner import logprobs, optimizer, rows, update
from grpojax.learner import state as learner_state
from grpojax.learner.grad_norm import make_grad_norm
from grpojax.learner.packing import PackSpec
from grpojax.models import gguf, kernels, lora, peft
from grpojax.objective import Objective, stats
from grpojax.rollout import sampler, turns
from grpojax.rollout.context import Data, RolloutContext
from grpojax.rollout.envs.pool import Pool
from grpojax.rollout.sampler import Engine, interruption
from grpojax.runtime import (
  compiler_options,
  data_shards,
  fetch,
  hub,
  loggers,
  processes,
  sharding,
  storage,
  watchdog,
)  # fmt: skip
from grpojax.runtime.compile import aot_jit
from grpojax.runtime.data_shards import SINGLE_PROCESS, ProcessShards
from grpojax.runtime.timer import Timer
from grpojax.train import memory, updates
from grpojax.train import teacher as teacher_lib
from grpojax.train.teacher import Teacher


class Policy(NamedTuple):
  """A named model of a run.  The parameters that training changes are in RunState, by the same name."""

  model: models.Model
  tokenizer: Any
  logp: Callable  # log-probs of a whole optimiser batch: update.make_old_logp's program


class Programs(NamedTuple):
  """Compiled at their first call; every shape is static."""

  sample: Engine
  sample_eval: Engine  # with config.eval's sampling, budget and number of samples
  logp: Callable  # update.make_old_logp's, of a whole optimiser batch
  grad_norm: Callable  # grad_norm.make_grad_norm's, of a whole optimiser batch
  update: Callable  # (state, objective, batch, frozen) -> (state, metrics)
  fresh: Callable  # params -> State with a new optimiser
  sync_reference: Callable  # (reference, params, rate) -> the reference, moved towards the policy


class Job(NamedTuple):
  """A run that is ready to start: its config is legal, its data is read, nothing is compiled."""

  config: ConfigDict
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
  build: Callable | None = None,
) -> Job:
  """Returns the run that `config` describes, ready to start.  Raises ValueError for all that can be wrong.

  `functions` are rewards in memory, by their names in config.reward; `build` is shared.sharing's, where runs
  of one process share programs.
  Collective: several processes must have the same code, config, workdir and data.
  """
  check_keys.check(config)  # first, as the watchdog waits by one of them
  with watchdog.watchdog(config.guard.minutes, "reading the data"):
    where = storage.absolute(storage.resolve(workdir, "--workdir"))
    return _prepare(config, where, functions, build or build_programs)


def _prepare(config: ConfigDict, workdir: Path, functions: Mapping[str, Callable], build: Callable) -> Job:
  """Prepares under the watchdog."""
  said = lambda: schema.flatten(config.to_dict(), "config.") | {"--workdir": workdir}
  processes.assert_equal(lambda: processes.code() | said())
  config_lib.check(config, jax.device_count())
  processes.on_process_0(lambda: loggers.check(config.log.to))  # which alone writes
  scorer, step_scorer = build_scorer(config, functions), None
  if config.process.scorer:
    step_scorer = rewards.load_scorer(config.process.scorer, config.process.knobs)
  objective = objective_lib.build(config.objective)
  mesh = sharding.make_mesh(config.mesh)
  data_shards.check_sampler(mesh, sharding.sampler_mesh(config.mesh, mesh))
  shards = data_shards.of(mesh)
  data = load_data(config, scorer.needs, shards)
  splits = data.train, data.held_out
  processes.assert_equal(
    lambda: {f"split '{s.name}'": pipeline.fingerprint(s) for s in splits} | hub.commits()
  )
  watchdog.progress("preparing the model and its programs")
  model = build_model(config, data.tokenizer, mesh)
  if config.lora.path:
    peft.check(Path(config.lora.path).expanduser(), config.lora, model)
  check_prompts(model, *splits)
  check_length(config)
  pack = rows.pack_spec(config, model, mesh)
  teacher_lib.check_rows(config, data.train.records)
  folder_of = lambda path: _folder(path, "config.teacher.path", config.cache_dir)
  teachers = teacher_lib.build_all(config, folder_of, data.tokenizer, mesh, pack)
  memory.check(config, model, mesh, [teacher.model for teacher in teachers])
  if config.cold_start.steps:
    demonstrations.check(data.train, config.cold_start.batch_size)
  programs = build(config, model, data.tokenizer, mesh)
  if config.teacher.divergence:
    beside = updates.beside_teacher(config, model, mesh, frozen_layout(model, mesh), teachers[0].model)
    programs = programs._replace(update=beside)
  policy = Policy(model, data.tokenizer, programs.logp)
  policies = {"policy": policy} | ({"reference": policy} if config.reference else {})
  rollout = RolloutContext(
    config, data, scorer, step_scorer, programs.sample, programs.sample_eval, shards, Timer(), Counter()
  )
  first_pass = logprobs.needs_old_logprobs(config)
  processes.on_process_0(lambda: workdir_lib.check(workdir, config))
  return Job(config, workdir, mesh, objective, policies, programs, rollout, pack, first_pass, teachers)


def build_scorer(
  config: ConfigDict, functions: Mapping[str, Callable] = MappingProxyType({})
) -> rewards.Rewards:
  """Returns the rewards of completions: none where an environment brings its own."""
  return rewards.Rewards(()) if config.env.name else rewards.build(config.reward, functions)


def load_data(config: ConfigDict, needs: tuple[str, ...], shards: ProcessShards = SINGLE_PROCESS) -> Data:
  """Prepares and reads the dataset; `needs` are the fields that the rewards read."""
  tokenizer, _, read = reader(config, needs)
  train, held_out = read("train"), read(config.eval.split)
  train = pipeline.weigh(train, config.data.mixture)
  stream = pipeline.Stream(train, tokenizer, config.rollout.prompts, config.seed, shards.rank, shards.count)
  return Data(tokenizer, train, held_out, stream)


def reader(config: ConfigDict, needs: tuple[str, ...]) -> tuple[Any, Path, Callable[[str], pipeline.Split]]:
  """Returns (the tokenizer, the folder of the prepared dataset, name of a split -> its rows)."""
  c = config.data
  tokenizer = text.load_tokenizer(model_folder(config))
  form = templates.build(c.template, c.system, c.chat, c.split_special_tokens)
  path = pipeline.prepare(c, storage.cache(config.cache_dir, "datasets"), schema.DATA_KEYS)
  return tokenizer, path, lambda name: pipeline.load_split(c, path, name, tokenizer, needs, form)


def model_folder(config: ConfigDict) -> Path:
  """Returns the tokenizer's folder: the model's own, fetched or converted first, or the embedded one."""
  if "path" not in config.model:
    return text.EMBEDDED
  return _folder(config.model.path, "config.model.path", config.cache_dir)


def _folder(name: str, key: str, cache_dir: str) -> Path:
  path = fetch.fetch(gguf.find(name, key), key, cache_dir)
  return gguf.to_folder(path, cache_dir) if path.suffix == ".gguf" else path


def build_model(config: ConfigDict, tokenizer, mesh: Mesh | None = None) -> models.Model:
  """Returns the architecture of the folder config.model.path, or of the small model in config.model."""
  c, rules = config.model, config.mesh.rules.to_dict()
  if "path" in c:
    spec = models.from_folder(model_folder(config), c.dtype, c.param_dtype, c.head_dtype)
    model = models.from_spec(spec, mesh, rules)
  else:
    model = models.build(c, len(tokenizer), mesh, rules)
  # Tokenizer classes add special tokens of their own; those that are never used need no embedding.
  used = max(tokenizer.vocab_size, tokenizer.pad_token_id + 1, *(i + 1 for i in eos_ids(config, tokenizer)))
  if model.spec.vocab_size < used:
    raise ValueError(
      f"config.model.path = '{model_folder(config)}': the tokenizer has {used} tokens, and the model knows"
      f" {model.spec.vocab_size}; they do not belong together."
    )
  for key, off in ("routing_replay", ""), ("load_balance", 0.0):
    if config[key] != off and not model.spec.moe:
      raise ValueError(f"config.{key} = {config[key]!r} is for mixtures, and this is none; set {off!r}.")
  attention = kernels.choose(config.attention, model.spec, mesh)[0] if mesh else "reference"
  return with_adapters(config, model._replace(remat=config.remat, attention=attention))


def with_adapters(config: ConfigDict, model: models.Model) -> models.Model:
  """Returns the model, with the adapters of `config.lora` if it asks for some."""
  return model._replace(lora=lora.build(config.lora, model.spec, model.axes, model.shapes))


def eos_ids(config: ConfigDict, tokenizer) -> tuple[int, ...]:
  """Returns every token that ends a response of the policy."""
  return text.eos_ids(tokenizer, model_folder(config))


def check_prompts(model: models.Model, *splits: pipeline.Split) -> None:
  """Raises ValueError if a prompt has a token that the model does not know."""
  for split in splits:
    row = int(np.argmax([prompt.max() for prompt in split.prompts]))
    token = int(split.prompts[row].max())
    if token >= model.spec.vocab_size:
      raise ValueError(
        f"Row {split.ids[row]} of split '{split.name}' has token {token}, and config.model knows"
        f" {model.spec.vocab_size}; its tokenizer is another model's."
      )


def check_length(config: ConfigDict) -> None:
  """Raises ValueError where a sequence could be longer than the model of a folder is made for."""
  if "path" not in config.model:
    return
  most = storage.read_json(model_folder(config) / "config.json").get("max_position_embeddings")
  prompt = config.data.prompt_budget
  for key, spec in ("rollout", sampler.build.rollout_spec), ("eval", sampler.build.eval_spec):
    response = turns.build.context_tokens(config, spec(config))
    whole = response == config[key].max_tokens
    what = f"config.{key}.max_tokens" if whole else "a context by config.env.memory"
    if most and prompt + response > most:
      raise ValueError(
        f"config.data.prompt_budget = {prompt} and {what} = {response} are"
        f" {prompt + response} tokens, and '{config.model.path}' is made for {most}"
        " (max_position_embeddings); lower one of them."
      )


def frozen_layout(model: models.Model, mesh: Mesh) -> dict:
  """Returns the shardings of the parameters that no update changes; {} if all are trained."""
  return sharding.param_shardings(mesh, model.axes, model.shapes, model.rules) if model.lora else {}


def build_programs(config: ConfigDict, model: models.Model, tokenizer, mesh: Mesh) -> Programs:
  """Builds the run's programs, none of them compiled; the objective is an argument of `update`."""
  schedule = optimizer.warmup_constant(config.optimizer)
  tx = optimizer.make_optimizer(config.optimizer, schedule, model.trained.axes)
  where, frozen = optimizer.state_shardings(model, tx, mesh), frozen_layout(model, mesh)
  by_prompt, layout = sharding.batch_sharding(mesh), rows.build(config, model, mesh)
  train, evaluation = sampler.build.rollout_spec(config), sampler.build.eval_spec(config)
  ends, env = eos_ids(config, tokenizer), config.env
  train = train._replace(interruption=interruption.build(config, tokenizer, ends))
  given = dict(model=model, mesh=mesh, eos_ids=ends)
  make = partial(sampler.build.build, config, **given)
  if env.name:
    pool = functools.cache(lambda: Pool(env.name, env.knobs.to_dict(), timeout=env.timeout))
    make = partial(turns.build.build, config, **given, tokenizer=tokenizer, environments=pool)
  sample = make("rollout", spec=train)
  return Programs(
    sample=sample,
    sample_eval=sample if evaluation == train else make("evaluation", spec=evaluation),
    logp=logp_program(model, mesh, layout, bool(config.routing_replay)),
    grad_norm=aot_jit(
      "gradient norms",
      make_grad_norm(
        model, config.rollout.max_tokens, temperature=config.rollout.temperature, chunk=config.logprob_chunk
      ),
      in_shardings=(where.params, frozen, *[by_prompt] * 5),
      out_shardings=by_prompt,
      compiler_options=compiler_options.options(mesh),
    ),
    update=updates.build(config, model, mesh, layout, frozen),
    fresh=jax.jit(lambda params: learner_state.create(params, tx), out_shardings=where),
    sync_reference=jax.jit(
      lambda reference, params, rate: stats.ema(reference, params, rate=rate),
      out_shardings=where.params,
      donate_argnums=0,
    ),
  )


def logp_program(
  model: models.Model, mesh: Mesh, layout: rows.Rows, record_routing: bool = False
) -> Callable:
  """Returns the program of update.make_old_logp, by the policy's parameters, frozen ones among them."""
  frozen, by_prompt = frozen_layout(model, mesh), sharding.batch_sharding(mesh)
  trained = model.trained
  where = sharding.param_shardings(mesh, trained.axes, trained.shapes, model.rules)
  return aot_jit(
    "log-probs",
    update.make_old_logp(layout, record_routing),
    in_shardings=(frozen | where, *[by_prompt] * 7),
    out_shardings=by_prompt,
    compiler_options=compiler_options.options(mesh),
  )


def state_layout(config: ConfigDict, model: models.Model, mesh: Mesh):
  """Returns (shapes, shardings) of the learner's state, for restoring a checkpoint."""
  schedule = optimizer.warmup_constant(config.optimizer)
  tx = optimizer.make_optimizer(config.optimizer, schedule, model.trained.axes)
  shapes = jax.eval_shape(lambda params: learner_state.create(params, tx), model.trained.shapes)
  return shapes, optimizer.state_shardings(model, tx, mesh)
