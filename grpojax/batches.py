"""Groups on the host -> the step's optimiser batches on the mesh, with their log-probs."""

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import sharding
from grpojax.batch import Batch, Prompts, Rollout
from grpojax.rollouts import Groups


def deal(config: ConfigDict, mesh: Mesh, groups: Groups, baseline: np.ndarray | None) -> list[Batch]:
  """Deals the groups like cards into `updates_per_rollout` batches.

  `baseline` [P] is what was expected of the prompts.  A completion is an episode of one turn, whose
  anchor is its prompt.
  """
  prompts, rollout, scored = groups
  P, G, T = rollout.tokens.shape
  row = np.broadcast_to(np.arange(G, dtype=np.int32), (P, G))
  extra = dict(trajectory=row, turn=0 * row, anchor=0 * row, step_reward=scored.reward)
  if baseline is not None:
    extra["baseline"] = np.repeat(baseline[:, None], G, axis=1)
  batch = Batch(
    mask=(np.arange(T)[None, None] < rollout.length[..., None]).astype(np.float32),
    reward=scored.reward,
    accuracy=scored.accuracy,
    valid=scored.valid,
    ended=rollout.ended,
    sampler_logp=rollout.sampler_logp,
    tokens=_sequences(prompts, rollout.tokens),
    prompt_length=np.repeat(prompts.length[:, None], G, axis=1),
    routing=rollout.routing,
    counted=_fed(prompts, rollout) & scored.valid[..., None] if config.load_balance else None,
    extra=extra | scored.extra,
  )
  return [sharding.to_device(mesh, part) for part in _parts(config, batch)]


def with_logps(logp, params, reference, batch: Batch) -> Batch:
  """Adds log pi_old and what came with it, and log pi_ref if there is a reference.

  The reference is another policy: it routes for itself, whatever is replayed.
  """
  seen = batch.tokens, batch.prompt_length
  old, entropy, routing, cost = logp(params, *seen, batch.routing, batch.counted)
  ref = logp(reference, *seen, None, None)[0] if reference else None
  return batch._replace(
    old_logp=old, entropy=entropy, ref_logp=ref, routing=routing, expert_cost=cost
  )


def logps_of(config: ConfigDict, mesh: Mesh, logp, params, prompts: Prompts, responses) -> np.ndarray:
  """Log-probs of other responses [P, G, T] to these prompts, on the host.  The shapes of `deal`."""
  lengths = np.repeat(prompts.length[:, None], responses.shape[1], axis=1)
  parts = _parts(config, (_sequences(prompts, responses), lengths))
  return gathered([logp(params, *sharding.to_device(mesh, part), None, None)[0] for part in parts])


def gathered(parts: list) -> np.ndarray:
  """What is dealt into batches, [P / updates, ...] each, in the order of its groups again."""
  dealt = np.stack([sharding.to_host(part) for part in parts], axis=1)
  return dealt.reshape(-1, *dealt.shape[2:])


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
