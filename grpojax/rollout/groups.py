"""Groups on the host: rows of them, several batches as one, which have contrast."""

import jax
import numpy as np

from grpojax.rollout.curriculum import Outcomes
from grpojax.types import ACTION, Groups, Prompts, Rollout, Scored


def take(groups: Groups, rows: np.ndarray) -> Groups:
  """Returns the groups of these rows."""
  pick = lambda x: x[rows] if isinstance(x, np.ndarray) else x
  taken = jax.tree.map(pick, _without_examples(groups))
  example = [groups.prompts.example[i] for i in rows]
  return taken._replace(prompts=taken.prompts._replace(example=example))


def concatenate(parts: list[Groups]) -> Groups:
  """Returns all groups of all parts, in order."""
  joined = jax.tree.map(lambda *xs: np.concatenate(xs), *map(_without_examples, parts))
  example = [e for part in parts for e in part.prompts.example]
  return joined._replace(prompts=joined.prompts._replace(example=example))


def _without_examples(groups: Groups) -> Groups:
  """Returns the groups' arrays alone, which are a pytree of equal first axes."""
  return groups._replace(prompts=groups.prompts._replace(example=None))


def gather_prompts(batches: list[Prompts], batch: np.ndarray, row: np.ndarray) -> Prompts:
  """Returns the prompts of these batches [n] in these rows [n] of them."""
  fields = ([getattr(batches[b], f)[i] for b, i in zip(batch, row, strict=True)] for f in Prompts._fields)
  tokens, length, ids, example = fields
  return Prompts(np.stack(tokens), np.stack(length), np.stack(ids), example)


def mixed(scored: Scored) -> np.ndarray:
  """Returns [P] bool: accuracies differ among the valid samples.  On accuracy, not on the shaped reward."""
  best = np.where(scored.valid, scored.accuracy, -np.inf).max(axis=1)
  worst = np.where(scored.valid, scored.accuracy, np.inf).min(axis=1)
  return best > worst


def outcomes_of(drawn: list[Groups]) -> Outcomes:
  """Returns every group's number of right completions, and of valid ones that have a verdict."""
  verdict = [np.where(g.scored.valid, g.scored.accuracy, np.nan) for g in drawn]
  right = [np.nansum(x, 1, dtype=np.float32) for x in verdict]
  count = [(~np.isnan(x)).sum(1, dtype=np.float32) for x in verdict]
  return Outcomes(*map(np.concatenate, ([g.prompts.id for g in drawn], right, count)))


def lengths_of(drawn: list[Groups]) -> np.ndarray:
  """Returns the sampled tokens of each group."""
  return np.concatenate([_sampled(g.rollout).sum(1) for g in drawn])


def _sampled(rollout: Rollout) -> np.ndarray:
  """Returns the tokens [P, G] of each response that the policy chose."""
  return rollout.length if rollout.kind is None else (rollout.kind == ACTION).sum(-1, dtype=np.int32)


def invalidate(groups: Groups, real: np.ndarray) -> Groups:
  """Returns the groups; those that are not `real` [P] only fill the shape and count nowhere."""
  scored = groups.scored
  return groups._replace(scored=scored._replace(valid=scored.valid & real[:, None]))
