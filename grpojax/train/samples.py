"""The group of a step that completions.jsonl keeps: texts, rewards, advantages, and its tokens one by one.

Of each token: its text, the log-prob under the policy that sampled it, and the entropy of the distribution
that it was drawn from.  Tokens of a trajectory have a kind, and its turns an advantage, too.
"""

import math

import jax
import numpy as np

from grpojax import objective as objective_lib
from grpojax.data import text
from grpojax.learner import batching
from grpojax.rollout.score import sample_table
from grpojax.train.setup import Job
from grpojax.types import ACTION, INJECTED, OBSERVATION, PROMPT, Batch, Groups, Rollout

TOKENS = 4096  # of a group that are kept one by one: its first completions, whole, and one at least
DECIMALS = 3  # of nats

KINDS = {ACTION: "a", OBSERVATION: "o", INJECTED: "i", PROMPT: "p"}  # a letter for each token of a trajectory

_advantages = jax.jit(objective_lib.group_advantages)
_turn_advantages = jax.jit(objective_lib.turn_advantages)


def table(job: Job, groups: Groups) -> list[dict]:
  """Returns the step's first group; its advantages, where the group alone decides them, on the device."""
  (row,) = sample_table(job.data.tokenizer, groups)
  _, rollout, scored = groups
  first = jax.tree.map(lambda x: x[:1], rollout)
  group = Batch(
    mask=batching.action_mask(first)[0],
    reward=scored.reward[0],
    accuracy=scored.accuracy[0],
    valid=scored.valid[0],
    ended=rollout.ended[0],
    length=rollout.length[0],
    turns=jax.tree.map(lambda x: x[0], rollout.turns),
    extra={name: x[0] for name, x in scored.extra.items()},
  )
  known = {"advantage": _advantages(job.objective, group)}
  known["turn_advantage"] = _turn_advantages(job.objective, group)
  known = {name: advantage for name, advantage in known.items() if advantage is not None}
  return [row | known | _tokens(job, groups.rollout)]


def _tokens(job: Job, rollout: Rollout) -> dict:
  """Returns the first group token by token."""
  lengths = rollout.length[0]
  kept = lengths[: max(1, int((np.cumsum(lengths) <= TOKENS).sum()))].tolist()
  chosen = batching.action_mask(rollout)[0] > 0
  nats = lambda values: [_rounded(np.where(chosen, values[0], np.nan)[i, :n]) for i, n in enumerate(kept)]
  row = {
    "tokens": [text.pieces(job.data.tokenizer, rollout.tokens[0, i, :n]) for i, n in enumerate(kept)],
    "sampler_logp": nats(rollout.sampler_logp),
    "entropy": nats(rollout.sampler_entropy),
  }
  if rollout.kind is not None:
    kinds = rollout.kind[0].tolist()
    row["kinds"] = ["".join(KINDS[kind] for kind in kinds[i][:n]) for i, n in enumerate(kept)]
  return row


def on_host(rows: list[dict]) -> list[dict]:
  """Returns the rows with their advantages as plain numbers; waits for them."""
  found = [row | _fetched(row) for row in rows]
  return [{name: value for name, value in row.items() if name != "turn_advantage"} for row in found]


def _fetched(row: dict) -> dict:
  found = {}
  if "advantage" in row:
    found["advantage"] = np.asarray(row["advantage"]).tolist()
  if "turn_advantage" in row:
    of_turns = np.asarray(row["turn_advantage"]).tolist()
    found["turns"] = [
      [turn | {"advantage": advantage} for turn, advantage in zip(one, advantages, strict=False)]
      for one, advantages in zip(row["turns"], of_turns, strict=True)
    ]
  return found


def _rounded(values: np.ndarray) -> list[float | None]:
  """Returns nats with few decimals; None of what is not finite, or not the policy's choice."""
  return [round(x, DECIMALS) + 0.0 if math.isfinite(x) else None for x in values.tolist()]
