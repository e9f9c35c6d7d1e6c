"""The advantages that a report shows beside the completions of a group."""

import importlib

import jax
import numpy as np
import pytest

from grpojax import objective as objective_lib
from grpojax.types import Batch, Turns

ROOT_3 = 3**0.5


def group(**changes):
  """Three valid completions of 2, 1 and 1 tokens, and one that a reward failed on."""
  mask = np.float32([[1, 1], [1, 0], [1, 0], [1, 1]])
  valid = np.array([True, True, True, False])
  reward = np.float32([1, 0, 0, 9])
  return Batch(mask, reward, reward, valid, mask.sum(-1) > 0, length=mask.sum(-1), extra={}, **changes)


def advantages(objective):
  return jax.jit(objective_lib.group_advantages)(objective_lib.build(objective), group())


@pytest.mark.parametrize(
  ("recipe", "expected"),
  [  # by hand: the mean is 1/3, the deviation (ddof 1) 1/sqrt(3)
    ("dr_grpo", [2 / 3, -1 / 3, -1 / 3, 0]),
    ("grpo", [2 / 3 * ROOT_3, -ROOT_3 / 3, -ROOT_3 / 3, 0]),
    ("rloo", [1, -1 / 2, -1 / 2, 0]),
  ],
)
def test_they_are_those_of_the_group(recipe, expected):
  objective = importlib.import_module(f"grpojax.recipes.{recipe}").get_config().objective
  np.testing.assert_allclose(advantages(objective), expected, rtol=1e-5, atol=1e-6)


def by_token(batch):
  return batch.mask * batch.reward[:, None] * np.float32([[1, 3]])


def needs_logp(batch):
  return batch.old_logp.sum(-1)


def test_a_turn_has_the_mean_of_its_own_tokens():
  """Turn 0 of row 0 has two tokens, with one of nobody's between them; a turn that was not played has 0."""
  index = np.int32([[0, -1, 0, 1], [0, 1, 1, -1]])
  mask = (index >= 0).astype(np.float32)
  zeros = np.zeros((2, 3), np.float32)
  turns = Turns(index, np.int32([2, 2]), zeros, zeros.astype(np.int32), zeros > 0)
  reward, valid = np.float32([1, 0]), np.array([True, True])
  batch = Batch(mask, reward, reward, valid, valid, length=mask.sum(-1), turns=turns, extra={})
  fn = lambda objective: jax.jit(objective_lib.turn_advantages)(objective_lib.build(objective), batch)
  by_place = changed(advantage={"fn": f"{__name__}:by_place"})
  np.testing.assert_allclose(fn(by_place), [[1, 3, 0], [0, 1.5, 0]])
  np.testing.assert_allclose(fn(changed()), [[0.5, 0.5, 0], [-0.5, -0.5, 0]])
  assert objective_lib.turn_advantages(objective_lib.build(changed()), group()) is None


def by_place(batch):
  return np.arange(4, dtype=np.float32)[None] * batch.mask


def changed(**slots):
  objective = importlib.import_module("configs.dr_grpo").get_config().objective
  objective.update(slots)
  return objective


def test_tokens_that_differ_are_averaged():
  objective = changed(advantage={"fn": f"{__name__}:by_token"})
  np.testing.assert_allclose(advantages(objective), [2, 0, 0, 0])


@pytest.mark.parametrize(
  "slots",
  [
    {"rescale": {"fn": "whiten"}},
    {"shape": {"finished": {"fn": "finished_only"}}},
    {"advantage": {"fn": f"{__name__}:needs_logp"}},
    {"advantage": {"fn": "mixed_baseline"}},  # of the moving average, which the learner has
  ],
)
def test_there_are_none_where_the_group_alone_does_not_decide(slots):
  assert advantages(changed(**slots)) is None
