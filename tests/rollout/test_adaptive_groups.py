"""Adaptive group sizes: when a prompt has enough, what is kept, and whose mean it is compared with."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from objective_cases import OTHERS
from objective_toys import batch

from grpojax.objective.advantage import pooled
from grpojax.rollout import adaptive_groups
from grpojax.types import Groups, Prompts, Rollout, Scored

P, G, T = 3, 4, 2


def world(wins):
  """Prompt p has wins[p][round] right completions in a round, the last of the group; each has a name."""
  asked = []

  def draw():
    ids = np.arange(P, dtype=np.int32)
    return Prompts(np.zeros((P, 5), np.int32), np.ones(P, np.int32), ids, [{"row": i} for i in range(P)])

  def ask(prompts, number):
    asked.append(prompts.id.tolist())
    count = np.array([wins[i][number] for i in prompts.id])
    right = (np.arange(G) >= G - count[:, None]).astype(np.float32)
    name = 100 * prompts.id[:, None, None] + 10 * number + np.arange(G)[None, :, None]
    rollout = Rollout(
      np.broadcast_to(name, (len(right), G, T)).astype(np.int32).copy(),
      np.full(right.shape, T),
      np.ones(right.shape, bool),
      *np.zeros((2, *right.shape, T), np.float32),
      np.broadcast_to(name[..., None, None], (len(right), G, T, 1, 2)),
    )
    valid = np.ones(right.shape, bool)
    return Groups(prompts, rollout, Scored(right, right, valid, {"accuracy": right}, {}))

  return draw, ask, asked


def config(**changes):
  return ConfigDict(dict(stop="balanced", rounds=3, positive=0.7) | changes)


def names(groups):
  """Of the completions kept; their routing has gone with them."""
  assert (groups.rollout.routing == groups.rollout.tokens[..., None, None]).all()
  return groups.rollout.tokens[..., 0].tolist()


def test_prompts_leave_as_soon_as_they_have_half_and_half():
  draw, ask, asked = world([[2, 9, 9], [1, 1, 9], [0, 0, 0]])
  groups, outcomes, stats = adaptive_groups.collect(config(), draw(), ask)
  assert [sorted(set(row)) for row in asked] == [[0, 1, 2], [1, 2], [2]]
  assert names(groups) == [[2, 3, 0, 1], [103, 113, 100, 101], [200, 201, 202, 203]]
  pool = groups.scored.extra
  np.testing.assert_allclose(pool["pool_mean"], np.repeat([[0.5], [0.25], [0]], G, 1))
  expected = [np.std([0, 0, 1, 1], ddof=1), np.std([1] * 2 + [0] * 6, ddof=1), 0]
  np.testing.assert_allclose(pool["pool_std"], np.repeat(np.array(expected)[:, None], G, 1), rtol=1e-6)
  assert groups.prompts.id.tolist() == [0, 1, 2] and groups.scored.valid.all()
  drawn = {name: value for name, value in stats.items() if name.startswith(("drawn/", "prompts/"))}
  assert drawn["drawn/accuracy"] == pytest.approx(4 / 24)  # of all rounds
  assert {name: value for name, value in stats.items() if name not in drawn} == {
    "num_tokens": 3 * P * G * T,
    "adaptive_group/rounds": 3,
    "adaptive_group/size": (1 + 2 + 3) * G / P,
    "adaptive_group/enough": pytest.approx(2 / 3),
    "adaptive_group/filler_tokens": (1 + 2) * G * T,
    "adaptive_group/accuracy": pytest.approx(4 / 24),
  }
  assert sum(outcomes.count) == 24 and sum(outcomes.right) == 4  # filler is counted nowhere


def test_focused_on_successes_one_is_enough():
  draw, ask, asked = world([[1, 9, 9], [0, 1, 9], [4, 9, 9]])
  groups, _, stats = adaptive_groups.collect(config(stop="positive_focused"), draw(), ask)
  assert len(asked) == 2 and stats["adaptive_group/rounds"] == 2
  assert names(groups)[2] == [200, 201, 202, 203]  # no failure to fill up with


def test_the_stored_pool():
  """Two successes of eight: A of the four that are kept is measured against the eight."""
  case = OTHERS["reinforce_ada_pool_stats"]["extra"]
  rounds = [sum(row) for row in case["inputs"]["round_rewards"]]
  draw, ask, asked = world([rounds] * P)
  groups, *_ = adaptive_groups.collect(config(), draw(), ask)
  expected, scored = case["expected"], groups.scored
  assert len(asked) == expected["stop_after_round"]
  assert scored.reward.sum(1).tolist() == [expected["selected"]["pos"]] * P
  np.testing.assert_allclose(scored.extra["pool_mean"], expected["pool_mean"])
  np.testing.assert_allclose(scored.extra["pool_std"], expected["pool_std"], rtol=1e-6)
  advantage = jax.vmap(pooled)(batch(scored.reward, **scored.extra))
  a_pos, a_neg = expected["A_pos"], expected["A_neg"]
  np.testing.assert_allclose(advantage, np.where(scored.reward > 0, a_pos, a_neg), rtol=1e-5)


def test_unscored_completions_are_neither_and_are_kept_last():
  draw, ask, _ = world([[2], [2], [2]])

  def ask_some(prompts, number):
    groups = ask(prompts, number)
    valid = groups.scored.valid.copy()
    valid[0, :3] = False
    return groups._replace(scored=groups.scored._replace(valid=valid))

  groups, outcomes, _ = adaptive_groups.collect(config(rounds=1), draw(), ask_some)
  assert names(groups)[0] == [3, 0, 1, 2] and groups.scored.valid[0].tolist() == [True] + [False] * 3
  assert outcomes.count.tolist() == [1, 4, 4]
  assert groups.scored.extra["pool_std"][0, 0] == 0  # of one
