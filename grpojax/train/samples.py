"""The group of a step that completions.jsonl keeps: texts, rewards, advantages."""

import jax
import numpy as np

from grpojax import objective as objective_lib
from grpojax.learner import batching
from grpojax.rollout.score import sample_table
from grpojax.train.setup import Job
from grpojax.types import Batch, Groups

_advantages = jax.jit(objective_lib.group_advantages)


def table(job: Job, groups: Groups) -> list[dict]:
  """Returns the step's first group; its advantages, where the group alone decides them, on the device."""
  rows = sample_table(job.data.tokenizer, groups)
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
  advantage = _advantages(job.objective, group)
  return rows if advantage is None else [rows[0] | {"advantage": advantage}]


def on_host(rows: list[dict]) -> list[dict]:
  """Returns the rows with their advantages as plain numbers; waits for them."""
  plain = lambda name, x: np.asarray(x).tolist() if name == "advantage" else x
  return [{name: plain(name, x) for name, x in row.items()} for row in rows]
