"""Groups on the host -> the step's optimiser batches on the mesh, with their log-probs."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import objective
from grpojax.config import check as config_lib
from grpojax.learner import packing
from grpojax.rollout.groups import take
from grpojax.runtime import data_shards, sharding
from grpojax.types import ACTION, Batch, Groups, Prompts, Rollout


def balance_shards(config: ConfigDict, mesh: Mesh, groups: Groups) -> Groups:
  """Returns the groups in an order that gives the shards of each batch about as many tokens to pack."""
  shards = _own_shards(mesh)
  in_order = config.difficulty.kind == "beta"  # its outcomes stand beside the groups, as they were drawn
  if config.rows != "packed" or shards == 1 or in_order:
    return groups
  prompts, rollout, _ = groups
  P, G = rollout.length.shape
  tokens, order = G * prompts.length + rollout.length.sum(1), np.arange(P)
  for own in _parts(config, np.arange(P)):
    order[own] = own[packing.balance(tokens[own], shards)]
  return take(groups, order)


def make_batches(config: ConfigDict, mesh: Mesh, groups: Groups, baseline: np.ndarray | None) -> list[Batch]:
  """Deals the groups like cards into `updates_per_rollout` batches.

  `baseline` [P] is what was expected of the prompts.  A completion is an episode of one turn, whose
  anchor is its prompt.
  """
  prompts, rollout, scored = groups
  P, G, _ = rollout.tokens.shape
  row = np.broadcast_to(np.arange(G, dtype=np.int32), (P, G))
  extra = dict(trajectory=row, turn=0 * row, anchor=0 * row, step_reward=scored.reward)
  if baseline is not None:
    extra["baseline"] = np.repeat(baseline[:, None], G, axis=1)
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
    routing=rollout.routing,
    balance_mask=_fed(prompts, rollout) & scored.valid[..., None] if config.load_balance else None,
    extra=extra | scored.extra,
  )
  parts = _parts(config, batch)
  if config.rows == "packed":
    index = [_places(config, mesh, part.prompt_length, part.length) for part in parts]
    parts = [part._replace(packing_index=i) for part, i in zip(parts, index, strict=True)]
  return [sharding.to_device(mesh, part) for part in parts]


def action_mask(rollout: Rollout) -> np.ndarray:
  """Returns [P, G, T] float32: 1 on the response tokens that the policy chose."""
  if rollout.kind is not None:
    return (rollout.kind == ACTION).astype(np.float32)
  return (np.arange(rollout.tokens.shape[-1])[None, None] < rollout.length[..., None]).astype(np.float32)


def needs_old_logprobs(config: ConfigDict) -> bool:
  """Whether something reads log-probs of a step's first batch before its update, whose own pass has them."""
  kept = config.difficulty.kind == "beta" or config.routing_replay == "R2" or config.load_balance
  if config.staleness or kept:  # under staleness pi_old is not the policy that the update starts from
    return True
  return objective.reads_old_policy(config, config_lib.extra_fields(config))


def add_logprobs(logp, params, reference, dealt: list[Batch], first_pass: bool) -> list[Batch]:
  """A step's batches `add_policy_logprobs`; the first without a pass unless `first_pass`.

  Its update starts from pi_old, so the ratio is 1 and the gradient is the same.
  """
  if first_pass:
    return [add_policy_logprobs(logp, params, reference, batch) for batch in dealt]
  first, *later = dealt
  unknown = jnp.full_like(first.mask, jnp.nan)  # nothing may read it; all batches are alike to the compiler
  first = first._replace(old_logp=unknown, on_policy=jnp.ones_like(first.valid))
  known = jnp.zeros_like(first.valid)
  later = [add_policy_logprobs(logp, params, reference, batch) for batch in later]
  later = [batch._replace(on_policy=known, entropy=None) for batch in later]
  return [_with_reference(logp, reference, first), *later]


def add_policy_logprobs(logp, params, reference, batch: Batch) -> Batch:
  """Adds log pi_old and what came with it, and log pi_ref if there is a reference."""
  old, entropy, routing, cost = logp(
    params, batch.tokens, batch.prompt_length, batch.routing, batch.balance_mask, batch.packing_index
  )
  batch = batch._replace(old_logp=old, entropy=entropy, routing=routing, expert_cost=cost)
  return _with_reference(logp, reference, batch)


def _with_reference(logp, reference, batch: Batch) -> Batch:
  """It is another policy: it routes for itself, whatever is replayed."""
  if not reference:
    return batch
  ref, *_ = logp(reference, batch.tokens, batch.prompt_length, None, None, batch.packing_index)
  return batch._replace(ref_logp=ref)


def score_responses(
  config: ConfigDict, mesh: Mesh, logp, params, prompts: Prompts, tokens: np.ndarray, length: np.ndarray
) -> np.ndarray:
  """Log-probs [P, G, T] of other responses to these prompts, on the host.  The shapes of `make_batches`."""
  lengths = np.repeat(prompts.length[:, None], length.shape[1], axis=1)

  def one(tokens, prompt_length, length):
    packing_index = _places(config, mesh, prompt_length, length) if config.rows == "packed" else None
    tokens, prompt_length, packing_index = sharding.to_device(mesh, (tokens, prompt_length, packing_index))
    return logp(params, tokens, prompt_length, None, None, packing_index)[0]

  parts = _parts(config, (_sequences(prompts, tokens), lengths, length))
  return restore_prompt_order([one(*part) for part in parts])


def restore_prompt_order(parts: list) -> np.ndarray:
  """What is dealt into batches, [P / updates, ...] each, in the order of its groups again."""
  dealt = np.stack([sharding.to_host(part) for part in parts], axis=1)
  return dealt.reshape(-1, *dealt.shape[2:])


def _places(config: ConfigDict, mesh: Mesh, prompt_length, length) -> np.ndarray:
  """Where this process's shards pack their sequences of one batch."""
  columns = config.data.prompt_budget + config.rollout.max_tokens - 1
  return packing.places(prompt_length, length, columns=columns, shards=_own_shards(mesh))


def _own_shards(mesh: Mesh) -> int:
  return sharding.batch_shards(mesh) // data_shards.of(mesh).count


def _parts(config: ConfigDict, tree) -> list:
  updates = config.updates_per_rollout
  return [jax.tree.map(lambda x, u=u: x[u::updates], tree) for u in range(updates)]


def _fed(prompts: Prompts, rollout: Rollout) -> np.ndarray:
  """[P, G, L + T - 1] bool: the tokens that a policy reads, all but padding and each row's last."""
  L, T = prompts.tokens.shape[1], rollout.tokens.shape[-1]
  column = np.arange(L + T - 1)[None, None]
  first, last = (L - prompts.length)[:, None, None], L + rollout.length[..., None] - 1
  return (column >= first) & (column < last)


def _sequences(prompts: Prompts, responses: np.ndarray) -> np.ndarray:
  """[P, G, L + T] int32: the left-padded prompt, then the response."""
  repeated = np.repeat(prompts.tokens[:, None], responses.shape[1], axis=1)
  return np.concatenate([repeated, responses], axis=-1)
