"""Bugs of agents, planted one at a time: the checks of trajectories see each.

The advantage of the last turn for all is planted in tests/experiments/test_turns_lab.py.
"""

import numpy as np
import pytest
import test_game

from grpojax.rollout.turns import game, trajectory
from grpojax.types import INJECTED


@pytest.fixture(autouse=True)
def replayed():
  """The checks' common rollout is played anew, with the bug, and once more without it for others."""
  test_game.plain.cache_clear()
  yield
  test_game.plain.cache_clear()


def masked_too_late(monkeypatch):
  """The first token of an action is no token of it."""
  act = trajectory.Trajectory.act

  def late(self, tokens, logp, entropy):
    act(self, tokens, logp, entropy)
    first = len(self.tokens) - len(tokens)
    self.kind[first], self.turn[first] = INJECTED, -1
    self.logp[first] = self.entropy[first] = 0.0

  monkeypatch.setattr(trajectory.Trajectory, "act", late)


def next_turns_observation_is_in_the_mask(monkeypatch):
  """The token behind an action counts as its last one."""
  see = trajectory.Trajectory.see

  def early(self, tokens, kind):
    see(self, tokens, kind)
    first = len(self.tokens) - len(tokens)
    if tokens:
      self.kind[first], self.turn[first] = self.kind[first - 1], self.turn[first - 1]

  monkeypatch.setattr(trajectory.Trajectory, "see", early)


def column_shifted(monkeypatch):
  """The second turn is written one column further than where the first has ended."""
  take = game.Game._take_actions

  def shifted(self, bank, *sent):
    before = {slot: player.held for slot, player in bank.players.items()}
    take(self, bank, *sent)
    for slot, player in bank.players.items():
      player.held += player.held != before.get(slot, player.held)

  monkeypatch.setattr(game.Game, "_take_actions", shifted)


def seed_of_another_episode(monkeypatch):
  """Chance in an episode is its neighbour's."""
  seeds = game._seeds
  monkeypatch.setattr(game, "_seeds", lambda *of: np.roll(np.asarray(seeds(*of)), 1, axis=1))


BUGS = {
  masked_too_late: test_game.test_a_row_is_prompt_actions_and_observations_in_the_chat_template,
  next_turns_observation_is_in_the_mask: (
    test_game.test_a_row_is_prompt_actions_and_observations_in_the_chat_template
  ),
  column_shifted: test_game.test_the_learners_log_probs_and_entropies_of_every_row_are_the_samplers,
  seed_of_another_episode: test_game.test_a_row_is_prompt_actions_and_observations_in_the_chat_template,
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant, monkeypatch):
  BUGS[plant]()
  test_game.plain.cache_clear()
  plant(monkeypatch)
  with pytest.raises(AssertionError):
    BUGS[plant]()


