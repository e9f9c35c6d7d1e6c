"""Games of gymnasium's toy text, with a word for an action and the board as text.

The task of an example is its `number`, and decides the board; the seed decides what chance does after that.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import gymnasium
import numpy as np

from grpojax.rollout.envs import moves
from grpojax.rollout.envs.interface import Turn


class ToyText(ABC):
  """A game says its rules first if `rules` is True, and ends after `max_steps` actions."""

  words: ClassVar[tuple[str, ...]]  # of the actions, in gymnasium's order
  about: ClassVar[str]  # the rules

  def __init__(self, max_steps: int, rules: bool):
    if max_steps < 1:
      raise ValueError(f"max_steps = {max_steps} must be a number of actions, 1 or more.")
    self.max_steps, self.rules = max_steps, rules

  @abstractmethod
  def start(self, number: int) -> gymnasium.Env:
    """Returns gymnasium's environment of a task."""

  @abstractmethod
  def board(self) -> str:
    """Returns the state as text."""

  def reset(self, example: dict, seed: int) -> Turn:
    number = int(example["number"])
    self.game = self.start(number)
    self.game.reset(seed=number)
    self.game.np_random = np.random.default_rng(seed)
    self.steps = 0
    board = self.board()
    return Turn(f"{self.about}\n{board}" if self.rules else board, anchor=board)

  def step(self, action: str) -> Turn:
    self.steps += 1
    word = moves.read(action, self.words)
    reward, done = 0.0, False
    if word:
      _, reward, done, _, _ = self.game.step(self.words.index(word))
    board = self.board()
    text = board if word else f"{moves.refusal(self.words)}\n{board}"
    return Turn(
      text, reward, done, not done and self.steps >= self.max_steps, anchor=board, valid=word is not None
    )

  def close(self) -> None:
    self.game.close()
