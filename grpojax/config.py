"""What makes a config illegal, each with its one sentence.  Runs before anything compiles."""

from ml_collections import ConfigDict

from grpojax import objective, sharding


def check(c: ConfigDict, devices: int) -> None:
  """Raises ValueError for the first thing wrong with `c` on this many devices."""
  for key in _POSITIVE:
    value = _get(c, key)
    if value < 1:
      raise ValueError(f"config.{key} = {value} must be at least 1.")
  _check_sampling(c)
  _check_batch(c, sharding.mesh_sizes(c.mesh, devices))
  _check_model(c.model)
  if c.reference not in ("", "init"):
    raise ValueError(f"config.reference = {c.reference!r} must be '' (none) or 'init'.")
  objective.check(c)


_POSITIVE = (
  "steps", "rollout.prompts", "rollout.group_size", "rollout.max_tokens", "updates_per_rollout",
  "microbatches", "logprob_chunk", "data.prompt_budget", "eval.every", "eval.prompts",
  "eval.samples", "checkpoint.every", "checkpoint.keep", "dynamic_sampling.max_tries",
  "cold_start.batch_size",
)  # fmt: skip


def _get(c: ConfigDict, dotted: str):
  for part in dotted.split("."):
    c = c[part]
  return c


def _check_sampling(c: ConfigDict) -> None:
  if not c.rollout.temperature > 0:
    raise ValueError(
      f"config.rollout.temperature = {c.rollout.temperature} must be positive; "
      "greedy rollouts have no policy gradient (evaluation may use config.eval.temperature=0)."
    )
  if not 0 < c.eval.top_p <= 1:
    raise ValueError(f"config.eval.top_p = {c.eval.top_p} must lie in (0, 1]; 1 turns it off.")


def _check_batch(c: ConfigDict, mesh: dict[str, int]) -> None:
  P, U, M = c.rollout.prompts, c.updates_per_rollout, c.microbatches
  shards = mesh["data"] * mesh["fsdp"]
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
      f"config.rollout.prompts = {P} gives {P // U // M} prompts per microbatch, which "
      f"config.mesh.data * config.mesh.fsdp = {shards} must divide."
    )
  if c.cold_start.batch_size % shards:
    raise ValueError(
      f"config.cold_start.batch_size = {c.cold_start.batch_size} must be divisible by "
      f"config.mesh.data * config.mesh.fsdp = {shards}."
    )


def _check_model(m: ConfigDict) -> None:
  if m.num_attention_heads % m.num_key_value_heads:
    raise ValueError(
      f"config.model.num_attention_heads = {m.num_attention_heads} must be divisible by "
      f"config.model.num_key_value_heads = {m.num_key_value_heads}."
    )
  if m.head_dim % 2:
    raise ValueError(f"config.model.head_dim = {m.head_dim} must be even (rotary halves).")
