"""An environment that does nothing but take its time; imported by worker processes, which need no jax."""

import time

from grpojax.rollout.envs.interface import Turn


class Waiting:
  """Answers every action with so many letters, after so many seconds, for so many turns.

  What the row of a task does not say, the knobs say.
  """

  def __init__(self, turns: int = 4, seconds: float = 0.0, letters: int = 8):
    self.knobs = dict(turns=turns, seconds=seconds, letters=letters)

  def reset(self, example: dict, seed: int) -> Turn:
    self.example, self.played = self.knobs | example, 0
    return Turn("begin", anchor=0)

  def step(self, action: str) -> Turn:
    time.sleep(self.example["seconds"])
    self.played += 1
    letter = chr(ord("a") + len(action) % 26)
    done = self.played == self.example["turns"]
    return Turn(letter * self.example["letters"], done=done, anchor=self.played)

  def close(self) -> None:
    pass
