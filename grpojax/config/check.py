"""Checks a config before anything compiles: each key, keys against each other and against the devices."""

import math
import re
from pathlib import Path

from ml_collections import ConfigDict

from grpojax import objective
from grpojax.config import check_env, check_keys
from grpojax.learner import optimizer
from grpojax.learner.batching import extra_fields
from grpojax.recipes import base
from grpojax.rewards import load_scorer, routing
from grpojax.runtime import loggers, sharding

MOST_KEPT = 512  # tokens of a kept set, as prime-rl has it


def check(c: ConfigDict, devices: int) -> None:
  """Raises ValueError for the first thing wrong with `c` on this many devices."""
  check_keys.check(c)
  loggers.named(c.log.to)
  _check_task(c)
  check_env.check(c)
  _check_sampling(c)
  sharding.check_rules(c.mesh.rules)
  _check_batch(c, sharding.mesh_sizes(c.mesh, devices))
  _check_model(c)
  _check_learner(c)
  _check_lora(c)
  _check_mixture(c)
  _check_in_flight(c)
  _check_memory(c)
  _check_process(c)
  _check_groups(c)
  routing.check(c)
  objective.check(c, extra_fields(c))
  objective.preference_loss(c.preference.loss)
  _check_reference(c)
  _check_teacher(c)


def _check_task(c: ConfigDict) -> None:
  """Raises ValueError where generators' answers would be graded as mathematics, by the scale's default."""
  task, sources = c.data.task, c.data.get("train", {})
  if isinstance(sources, ConfigDict) and sources and all("task" in source for source in sources.values()):
    task = next(iter(sources.values())).task
  if task.startswith("reasoning_gym:") and c.reward.get("accuracy", {}).get("fn") == "math:equivalent":
    raise ValueError(
      f"config.data.task = '{task}' brings its own verifier, and config.reward.accuracy is "
      "math:equivalent; set --config.reward.accuracy=\"{'fn': 'reasoning_gym:verdict', 'form': 'boxed'}\"."
    )


def _check_sampling(c: ConfigDict) -> None:
  """Raises ValueError for kept sets without a bound, or that are lost, and for a KV limit without slots."""
  if c.rollout.kv_memory_gb and not c.rollout.slots:
    raise ValueError(
      "config.rollout.kv_memory_gb bounds the number of slots, and config.rollout.slots = 0 has none; "
      "set config.rollout.slots, or config.rollout.kv_memory_gb = 0."
    )
  for key, off in ("top_p", 1.0), ("min_p", 0.0):
    if c.rollout[key] != off and not c.rollout.top_k:
      raise ValueError(
        f"config.rollout.{key} = {c.rollout[key]} samples from part of the vocabulary, which is recorded, "
        "as the learner's log-probs are over the same part, and needs a bound; set config.rollout.top_k, at "
        f"most {MOST_KEPT}, or config.rollout.{key} = {off}."
      )
  if c.rollout.top_k > MOST_KEPT:
    raise ValueError(
      f"config.rollout.top_k = {c.rollout.top_k} records as many numbers for every token that is sampled; "
      f"set at most {MOST_KEPT}, or 0 to sample from the whole vocabulary."
    )
  if c.interruption.think_tokens and c.difficulty.kind == "beta":
    raise ValueError(
      "config.difficulty.kind = 'beta' compares a prompt's last completions, of which nothing says what was "
      "injected; set kind = 'ema', or config.interruption.think_tokens = 0."
    )
  if c.rollout.top_k and c.difficulty.kind == "beta":
    raise ValueError(
      "config.difficulty.kind = 'beta' compares a prompt's last completions, of which config.rollout.top_k = "
      f"{c.rollout.top_k} keeps no sets of tokens; set kind = 'ema', or config.rollout.top_k = 0."
    )


def _check_in_flight(c: ConfigDict) -> None:
  """Raises ValueError where a rollout could take up no newer policy, or where one would be taken for all."""
  if not c.rollout.in_flight:
    if c.rollout.in_flight_kv != "kept":
      raise ValueError(
        "config.rollout.in_flight_kv = 'recomputed' is for policies that are taken up in the middle; set"
        " config.rollout.in_flight above 0, or in_flight_kv = 'kept'."
      )
    return
  said = f"config.rollout.in_flight = {c.rollout.in_flight}"
  if not c.staleness:
    raise ValueError(f"{said} is of what is sampled ahead; set config.staleness above 0, or in_flight = 0.")
  if not c.rollout.slots:
    raise ValueError(f"{said} needs config.rollout.slots, which may stop between two tokens; set them.")
  if not objective.replaces_old_policy(c):
    raise ValueError(
      f"{said} samples a response by several policies, of which none is pi_old; take the log-probs of "
      "sampling, by config.objective.shape.bypass = {'fn': 'bypass'}."
    )


def _check_memory(c: ConfigDict) -> None:
  """Raises ValueError where a baseline or the curriculum needs success rates that the run does not keep."""
  d, G = c.difficulty, c.rollout.group_size
  if c.baseline.kind == "prompt" and not d.kind:
    raise ValueError("config.baseline.kind = 'prompt' needs config.difficulty.kind = 'beta' or 'ema'.")
  if (d.weighted or d.offline or d.drop_solved) and not d.kind:
    raise ValueError(
      "config.difficulty.weighted, .offline and .drop_solved need config.difficulty.kind = 'beta' or 'ema'."
    )
  if d.weighted and not d.floor > 0:
    raise ValueError(f"config.difficulty.floor = {d.floor} must be positive, or prompts never return.")
  if d.offline % G:
    raise ValueError(
      f"config.difficulty.offline = {d.offline} must be a multiple of config.rollout.group_size = {G}."
    )
  if d.kind == "beta" and (c.dynamic_sampling.enabled or c.adaptive_group.stop):
    raise ValueError(
      "config.difficulty.kind = 'beta' compares a prompt's last completions, which groups that are "
      "thrown away do not leave; set 'ema', or turn dynamic_sampling and adaptive_group off."
    )


def _check_process(c: ConfigDict) -> None:
  """Raises ValueError where the scorer of steps cannot be loaded."""
  if not c.process.scorer:
    return
  try:
    load_scorer(c.process.scorer, c.process.knobs)
  except ValueError as error:
    raise ValueError(f"config.process.{error}") from None


def _check_learner(c: ConfigDict) -> None:
  """Raises ValueError for what config.optimizer refuses."""
  optimizer.check(c.optimizer, base.get_config().optimizer)


def _check_lora(c: ConfigDict) -> None:
  """Raises ValueError for adapters that cannot be built, loaded or averaged."""
  try:
    re.compile(c.lora.modules)
  except re.error as error:
    raise ValueError(f"config.lora.modules = '{c.lora.modules}' is no regular expression: {error}.") from None
  if c.lora.path and not c.lora.rank:
    raise ValueError("config.lora.path brings adapters; set config.lora.rank to their rank.")
  if c.lora.rank and c.reference_sync.every and c.reference_sync.rate < 1:
    raise ValueError(
      "config.reference_sync.rate < 1 averages parameters, and an average of factors is none of matrices; "
      "with config.lora.rank > 0 set it to 1."
    )


def _check_groups(c: ConfigDict) -> None:
  """Raises ValueError for two rules of one step's sampling."""
  if c.adaptive_group.stop and c.dynamic_sampling.enabled:
    raise ValueError(
      "config.adaptive_group.stop and config.dynamic_sampling.enabled both decide how long to sample; "
      "turn one of them off."
    )


def _check_reference(c: ConfigDict) -> None:
  """Raises ValueError for a reference that is none, and where one or a KL term is moved that is not there."""
  if c.reference not in ("", "init"):
    if not (Path(c.reference).expanduser() / "config.json").is_file():
      raise ValueError(
        f"config.reference = '{c.reference}' is neither '' nor 'init' nor a policy's folder; set one of them."
      )
    if c.lora.rank:
      raise ValueError(
        f"config.reference = '{c.reference}' has other weights than those under the adapters, which are there"
        " once; set 'init', or config.lora.rank = 0."
      )
  if c.reference_sync.every and not c.reference:
    raise ValueError("config.reference_sync.every moves a reference; set config.reference = 'init'.")
  if c.kl_control.target > 0 and not (c.reference and objective.has_kl(objective.build(c.objective))):
    raise ValueError(
      "config.kl_control.target moves the coefficient of a KL term, and there is none; add one to "
      "config.objective.penalty, or set the target to 0."
    )
  completions, horizon = c.rollout.prompts * c.rollout.group_size, c.kl_control.horizon
  if c.kl_control.target > 0 and completions >= 5 * horizon:  # a step's factor is 1 ± 0.2 completions/horizon
    raise ValueError(
      f"config.kl_control.horizon = {horizon} is completions, and a step has {completions}, so that the"
      f" coefficient could become negative; set the horizon above {completions // 5}."
    )


def _check_teacher(c: ConfigDict) -> None:
  """Raises ValueError for a teacher that nothing reads, and a divergence without what it needs."""
  gkd = [name for name, entry in c.objective.component.items() if entry.fn == "gkd"]
  if c.teacher.path and c.teacher.paths:
    raise ValueError(
      f"config.teacher.path = '{c.teacher.path}' and config.teacher.paths both name teachers; leave one out."
    )
  if c.teacher.divergence and not ((c.teacher.path or c.teacher.paths) and gkd):
    raise ValueError(
      f"config.teacher.divergence = '{c.teacher.divergence}' needs config.teacher.path or .paths, and a "
      "component gkd, which it is the cost of; set both, or config.teacher.divergence = ''."
    )
  if c.teacher.divergence and c.rows != "single":
    raise ValueError(
      f"config.teacher.divergence = '{c.teacher.divergence}' is of the whole vocabulary, which packed rows "
      "do not give; set config.rows = 'single'."
    )
  named = f"path = '{c.teacher.path}'" if c.teacher.path else "paths"
  if (c.teacher.path or c.teacher.paths) and not gkd and not objective.reads_teacher(c, extra_fields(c)):
    raise ValueError(
      f"config.teacher.{named} is read by nothing in config.objective; set "
      "config.objective.rescale.fn = 'opd', or add a component ref_kl, opd or gkd."
    )


def _check_batch(c: ConfigDict, mesh: dict[str, int]) -> None:
  """Raises ValueError where prompts cannot be divided by updates, microbatches and the mesh's shards."""
  P, U = c.rollout.prompts, c.updates_per_rollout
  packed = c.rows == "packed"  # each shard packs its own
  M, piece = (1, "update") if packed else (max(c.microbatches, 1), "microbatch")
  shards = math.prod(mesh[axis] for axis in sharding.BATCH_AXES)
  if P % U:
    raise ValueError(
      f"config.rollout.prompts = {P} must be divisible by config.updates_per_rollout = {U}."
    )
  if (P // U) % M:
    raise ValueError(
      f"config.microbatches = {M} must divide the {P // U} prompts of one update "
      "(config.rollout.prompts / config.updates_per_rollout)."
    )
  if (P // U // M) % shards:
    raise ValueError(
      f"config.rollout.prompts = {P} gives {P // U // M} prompts per {piece}, which "
      f"config.mesh.data * config.mesh.fsdp * config.mesh.expert = {shards} must divide."
    )
  if c.mesh.sampler.tensor > 0 or (c.mesh.rollout_devices and not c.mesh.sampler.tensor):
    own = sharding.sampler_sizes(c.mesh, c.mesh.rollout_devices or math.prod(mesh.values()))
    left = own["data"] * own["expert"]
    if P % left:
      raise ValueError(
        f"config.rollout.prompts = {P} must be divisible by the {left} shards of prompts that "
        "config.mesh.sampler and .rollout_devices leave; raise its tensor, or the prompts."
      )
  if c.cold_start.steps and c.cold_start.batch_size % shards:
    raise ValueError(
      f"config.cold_start.batch_size = {c.cold_start.batch_size} must be divisible by "
      f"config.mesh.data * config.mesh.fsdp * config.mesh.expert = {shards}."
    )


def _check_model(c: ConfigDict) -> None:
  """Raises ValueError for an impossible architecture, or a folder of weights beside a cold start."""
  m = c.model
  if "path" in m:
    if not m.path:
      raise ValueError("config.model.path is empty; set it to a folder with config.json and safetensors.")
    if c.cold_start.steps:
      raise ValueError(
        f"config.cold_start.steps = {c.cold_start.steps} would train from nothing, and config.model.path"
        " brings a policy; set it to 0."
      )
    return
  if m.num_attention_heads % m.num_key_value_heads:
    raise ValueError(
      f"config.model.num_attention_heads = {m.num_attention_heads} must be divisible by "
      f"config.model.num_key_value_heads = {m.num_key_value_heads}."
    )
  if m.head_dim % 2:
    raise ValueError(f"config.model.head_dim = {m.head_dim} must be even (rotary halves).")
  if m.num_experts and not 1 <= m.num_experts_per_tok <= m.num_experts:
    raise ValueError(
      f"config.model.num_experts_per_tok = {m.num_experts_per_tok} must lie in 1 to "
      f"config.model.num_experts = {m.num_experts}."
    )


def _check_mixture(c: ConfigDict) -> None:
  """Raises ValueError where routing is replayed that is not kept, or that the load balance would count."""
  if c.load_balance and c.routing_replay:
    raise ValueError(
      f"config.load_balance = {c.load_balance} would count no token: it leaves out those whose routing is "
      f"replayed, and config.routing_replay = '{c.routing_replay}' replays all; turn one of them off."
    )
  if c.routing_replay == "R3" and c.difficulty.kind == "beta":
    raise ValueError(
      "config.difficulty.kind = 'beta' compares a prompt's last completions, whose routing by the sampler "
      "is not kept; set config.routing_replay = 'R2', or kind = 'ema'."
    )
