"""A task of one turn as an environment with one step: the question, the answer, its rewards.

A run without an environment does not come here: its completions are scored as they are, in tokens.
"""

from collections.abc import Mapping

from grpojax import rewards
from grpojax.rollout.envs.interface import Turn

RULE = {"accuracy": {"fn": "rules:integer_answer", "marker": "#"}}


class SingleTurn:
  """Rewards are those of config.reward that see one text: its length in tokens is not known here."""

  def __init__(self, reward: Mapping = RULE):
    self._rewards = rewards.build(reward)
    for one in self._rewards.all:
      if one.sees == "group":
        raise ValueError(f"the reward {one.name} sees a whole group, and an environment one completion.")

  def reset(self, example: dict, seed: int) -> Turn:
    self._example = example
    return Turn(example["question"])

  def step(self, action: str) -> Turn:
    sample = rewards.Sample(action, self._example, length=None, ended=True)
    graded = rewards.score(self._rewards, [[sample]])
    if not graded.valid[0, 0]:
      raise ValueError(graded.first_error or "a reward abstained")
    return Turn("", reward=float(graded.reward[0, 0]), done=True)

  def close(self) -> None:
    pass


make = SingleTurn
