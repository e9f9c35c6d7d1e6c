"""Groups on the host -> the step's optimiser batches on the mesh, with their log-probs."""

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.learner import packing
from grpojax.learner.packing import PackSpec
from grpojax.runtime import data_shards, sharding
from grpojax.types import ACTION, Batch, Groups, Prompts, Rollout


def balanced_order(
  config: ConfigDict, mesh: Mesh, pack: PackSpec | None, groups: Groups
) -> np.ndarray | None:
  """Returns an order [P] of groups that gives a batch's shards about as many tokens; None: leave them."""
  shards = _own_shards(mesh)
  in_order = config.difficulty.kind == "beta"  # its outcomes stand beside the groups, as they were drawn
  if pack is None or shards == 1 or in_order:
    return None
  prompts, rollout, _ = groups
  P, G = rollout.length.shape
  prompt = prompts.length if pack.shared else G * prompts.length
  tokens, order = prompt + rollout.length.sum(1), np.arange(P)
  for own in _deal(config, np.arange(P)):
    order[own] = own[packing.balance(tokens[own], shards)]
  return order


def make_batches(
  config: ConfigDict, mesh: Mesh, pack: PackSpec | None, groups: Groups, baseline: np.ndarray | None
) -> list[Batch]:
  """Returns `updates_per_rollout` batches, to which the groups are dealt like cards.

  `baseline` [P] is what was expected of the prompts.
  """
  prompts, rollout, scored = groups
  G = rollout.tokens.shape[1]
  expected = {} if baseline is None else {"baseline": np.repeat(baseline[:, None], G, axis=1)}
  batch = Batch(
    mask=action_mask(rollout),
    reward=scored.reward,
    accuracy=scored.accuracy,
    valid=scored.valid,
    ended=rollout.ended,
    sampler_logp=rollout.sampler_logp,
    tokens=_sequences(prompts, rollout.tokens),
    prompt_length=np.repeat(prompts.length[:, None], G, axis=1),
    length=rollout.length,
    context=rollout.context,
    kept=rollout.kept,
    routing=rollout.routing,
    balance_mask=_fed(prompts, rollout) & scored.valid[..., None] if config.load_balance else None,
    turns=rollout.turns,
    extra=expected | scored.extra,
  )
  parts = _deal(config, batch)
  if pack:
    index = [pack_index(pack, mesh, part.prompt_length, part.length) for part in parts]
    parts = [part._replace(packing_index=i) for part, i in zip(parts, index, strict=True)]
  return [sharding.to_device(mesh, part) for part in parts]


def beside(config: ConfigDict, groups: Groups, step: int) -> Groups:
  """Returns the groups with what is read of tokens beside their rewards; `step` steps are done."""
  rollout, found = groups.rollout, {}
  if "lag" in extra_fields(config):
    found["lag"] = np.where(rollout.version < 0, 0, step - rollout.version).astype(np.int32)
  if "kind" in extra_fields(config):
    found["kind"] = rollout.kind
  if "teacher" in extra_fields(config):
    numbers = np.array([teacher_of(config, row) for row in groups.prompts.example], np.int32)
    found["teacher"] = np.broadcast_to(numbers[:, None], rollout.length.shape)
  return groups._replace(scored=groups.scored._replace(extra=groups.scored.extra | found))


def teacher_of(config: ConfigDict, row: dict) -> int:
  """Returns which of config.teacher.paths, in the order of their names, teaches a row of the dataset.

  Raises ValueError where none does.
  """
  names, column = sorted(config.teacher.paths), config.teacher.column
  value = str(row.get(column, ""))
  for name in (value, "*"):
    if name in names:
      return names.index(name)
  raise ValueError(
    f"a row has {column} = {value!r} (config.teacher.column), and config.teacher.paths names teachers of"
    f" {', '.join(names)}; add one of that, or of '*' for all others."
  )


def action_mask(rollout: Rollout) -> np.ndarray:
  """Returns [P, G, T] float32: 1 on the response tokens that the policy chose."""
  if rollout.kind is not None:
    return (rollout.kind == ACTION).astype(np.float32)
  return (np.arange(rollout.tokens.shape[-1])[None, None] < rollout.length[..., None]).astype(np.float32)


def extra_fields(config: ConfigDict) -> tuple[str, ...]:
  """Returns the entries of Batch.extra that the run which `config` describes fills."""
  fields = ["baseline"] if config.baseline.kind else []
  fields += ["moment"] if config.moment.kind else []
  fields += ["part", "part_valid", "part_weight"] if config.objective.advantage.get("fn") == "gdpo" else []
  fields += ["grad_norm"] if config.objective.advantage.get("fn") == "optimal_baseline" else []
  fields += ["lag"] if _names(config.objective.shape, "log_linear") else []
  fields += ["kind"] if config.env.name and config.objective.component else []
  fields += ["pool_mean", "pool_std"] if config.adaptive_group.stop else []
  fields += ["teacher"] if config.teacher.paths else []
  fields += ["step_score", "step_end"] if config.process.scorer else []
  return tuple(fields)


def _names(entries: ConfigDict, fn: str) -> bool:
  """Returns True where an entry has this function; what is no entry at all is refused by the objective."""
  return any(isinstance(entry, ConfigDict) and entry.get("fn") == fn for entry in entries.values())


def score_responses(
  config: ConfigDict, mesh: Mesh, pack: PackSpec | None, logp, params, prompts: Prompts, tokens: np.ndarray,
  length: np.ndarray,
) -> np.ndarray:  # fmt: skip
  """Returns log-probs [P, G, T] of other responses to these prompts, on the host."""
  lengths = np.repeat(prompts.length[:, None], length.shape[1], axis=1)

  def one(tokens, prompt_length, length):
    packing_index = pack_index(pack, mesh, prompt_length, length) if pack else None
    tokens, prompt_length, packing_index = sharding.to_device(mesh, (tokens, prompt_length, packing_index))
    return logp(params, tokens, prompt_length, None, None, packing_index, None, None)[0]

  parts = _deal(config, (_sequences(prompts, tokens), lengths, length))
  return restore_prompt_order([one(*part) for part in parts])


def restore_prompt_order(parts: list) -> np.ndarray:
  """Returns what was dealt to batches, [P / updates, ...] each, in the order of its groups again."""
  stacked = np.stack([sharding.to_host(part) for part in parts], axis=1)
  return stacked.reshape(-1, *stacked.shape[2:])


def pack_index(pack: PackSpec, mesh: Mesh, prompt_length, length) -> np.ndarray:
  """Returns the packing index of this process's sequences of one batch."""
  return packing.pack_sequences(prompt_length, length, pack._replace(shards=_own_shards(mesh)))


def _own_shards(mesh: Mesh) -> int:
  """Returns the number of this process's shards of a batch."""
  return sharding.batch_shards(mesh) // data_shards.of(mesh).count


def _deal(config: ConfigDict, tree) -> list:
  """Returns the tree's rows for each of a step's batches, dealt like cards."""
  updates = config.updates_per_rollout
  return [jax.tree.map(lambda x, u=u: x[u::updates], tree) for u in range(updates)]


def _fed(prompts: Prompts, rollout: Rollout) -> np.ndarray:
  """Returns [P, G, L + T - 1] bool: the tokens that a policy reads, all but padding and each row's last."""
  L, T = prompts.tokens.shape[1], rollout.tokens.shape[-1]
  column = np.arange(L + T - 1)[None, None]
  first, last = (L - prompts.length)[:, None, None], L + rollout.length[..., None] - 1
  return (column >= first) & (column < last)


def _sequences(prompts: Prompts, responses: np.ndarray) -> np.ndarray:
  """Returns [P, G, L + T] int32: the left-padded prompt, then the response."""
  repeated = np.repeat(prompts.tokens[:, None], responses.shape[1], axis=1)
  return np.concatenate([repeated, responses], axis=-1)
