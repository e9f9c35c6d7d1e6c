"""The moving second moment of rewards: by step and by completion, and of several processes."""

from types import SimpleNamespace

import numpy as np
import pytest
from objective_toys import recipe

from grpojax.runtime.data_shards import SINGLE_PROCESS
from grpojax.train import moment
from grpojax.types import Scored

REWARD = np.float32([[1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 9]])
VALID = np.array([[True] * 4, [True] * 4, [True, True, True, False]])
SQUARES = np.array([0.75**2, *[0.25**2] * 3, *[(1 / 3) ** 2] * 2, (2 / 3) ** 2])  # of groups with contrast


def scored(reward=REWARD, valid=VALID) -> Scored:
  return Scored(reward, reward, valid, {}, {})


def config(kind: str, rate: float = 0.1):
  c = recipe("scale_rl")
  c.moment.update(kind=kind, rate=rate)
  return c


def step(c, before, *args):
  return moment.of_step(c, before, scored(*args), SINGLE_PROCESS)


def test_the_first_step_has_its_own_mean_and_later_ones_move_it():
  c = config("step")
  start = moment.start(c)
  assert np.isnan(start) and start.dtype == np.float32
  of_group, after = step(c, start)
  np.testing.assert_allclose(of_group, np.full(3, SQUARES.mean()), rtol=1e-6)
  rate = 1 - 0.9 ** len(SQUARES)  # as much as seven single updates
  _, later = step(c, np.float32(1.0))
  np.testing.assert_allclose(later, (1 - rate) + rate * SQUARES.mean(), rtol=1e-6)
  assert after.shape == () and after.dtype == np.float32


def test_by_completion_a_group_has_what_its_own_left():
  c, expected, before = config("completion"), [], 0.5
  for square in SQUARES:
    before = 0.9 * before + 0.1 * square
    expected.append(before)
  of_group, after = step(c, np.float32(0.5))
  np.testing.assert_allclose(of_group, np.array(expected)[[3, 3, 6]], rtol=1e-6)
  np.testing.assert_allclose(after, expected[-1], rtol=1e-6)


def test_by_step_the_order_of_groups_is_nothing():
  c = config("step")
  one, two = (step(c, np.float32(0.3), REWARD[order], VALID[order])[1] for order in ([0, 1, 2], [2, 1, 0]))
  np.testing.assert_allclose(one, two, rtol=1e-6)


@pytest.mark.parametrize("kind", ["step", "completion"])
def test_without_contrast_nothing_moves(kind):
  of_group, after = step(config(kind), np.float32(0.5), REWARD[1:2], VALID[1:2])
  assert of_group == after == 0.5


@pytest.mark.parametrize("kind", ["step", "completion"])
def test_a_process_gets_the_moments_of_its_own_groups(kind):
  """The second of two, each of which has the same three groups."""
  twice = lambda x: np.concatenate([x, x])
  shards = SimpleNamespace(gather=lambda tree: tuple(map(twice, tree)), local=lambda x: x[3:])
  whole, after = step(config(kind), np.float32(0.5), twice(REWARD), twice(VALID))
  own, own_after = moment.of_step(config(kind), np.float32(0.5), scored(), shards)
  np.testing.assert_array_equal(own, whole[3:])
  assert own_after == after


def test_a_run_that_divides_by_nothing_keeps_none():
  c = config("")
  assert moment.start(c) is None
  assert moment.of_step(c, None, scored(), None) == (None, None)
