"""Interface of environments: what one is, and what the sampler sees of the many that run beside it.

    an environment   reset(example, seed) -> Turn      step(action) -> Turn      close()
    all of them      reset(slot, example, seed)        step(slot, action)        end(slot)      close()
                     poll() and wait(timeout) -> [(slot, Turn), ...]

The shape is gymnasium's and OpenEnv's.  Text goes in, text comes out: tokens, templates and budgets are the
sampler's.  `example` is a row of the dataset and says which task this is; it alone decides the first
observation, so that all trajectories of one prompt start alike.  `seed` decides what chance does in the
episode.  Equal examples, seeds and actions give equal turns, whatever runs beside them.
"""

from collections.abc import Hashable
from typing import NamedTuple, Protocol

ROLES = ("user", "tool")


class Turn(NamedTuple):
  """Answer of an environment to an action, or to a reset."""

  text: str  # the observation, which the policy reads next
  reward: float = 0.0  # of the action before it; 0 after a reset
  done: bool = False  # the task has ended, by its own rules
  truncated: bool = False  # a limit of the environment ended the episode, and the task had not
  anchor: Hashable = None  # the situation of the next action, for credit by turn; None: the text is
  feedback: str = ""  # the validator's words on the action, for whoever plays by hand; the sampler reads none
  valid: bool = True  # False: the action could not be read, or was against the rules
  failure: str = (
    ""  # the environment, not the action, is at fault: no turn, no reward, the trajectory is invalid
  )
  role: str = "user"  # whose message the text is in the chat template; "tool": what a tool has returned

  @property
  def ended(self) -> bool:
    """Returns True where no action may follow."""
    return bool(self.done or self.truncated or self.failure)


class Environment(Protocol):
  """One episode.  Each has an instance of its own, which holds nothing that costs before its `reset`."""

  def reset(self, example: dict, seed: int) -> Turn:
    """Starts the task of a row of the dataset and returns the first observation."""

  def step(self, action: str) -> Turn:
    """Does what the policy wrote in one turn, without the EOS that ends it; no text of it is illegal."""

  def close(self) -> None:
    """Frees what the episode holds; called once, also when the episode was not played to its end."""


class Environments(Protocol):
  """Many episodes side by side, each in a slot: any number, the caller's own.

  `reset` and `step` return at once; the answer is in a later `poll` or `wait`.  A slot has at most one
  request that is not answered.  Whatever an environment does, the answer comes: one that raises, hangs, dies,
  floods or answers rubbish gives a turn with a `failure`.  Only one thread may use an object.
  """

  def reset(self, slot: int, example: dict, seed: int) -> None:
    """Starts an episode in a slot; one that is still there ends."""

  def step(self, slot: int, action: str) -> None:
    """Sends an action to the episode of a slot.  Raises ValueError where none waits for one."""

  def end(self, slot: int) -> None:
    """Ends the episode of a slot before its time, as at a budget; an answer that is still due never comes."""

  def poll(self) -> list[tuple[int, Turn]]:
    """Returns the answers that have come since, in any order, without waiting."""

  def wait(self, timeout: float) -> list[tuple[int, Turn]]:
    """Returns the answers that have come; waits at most `timeout` seconds for one that is due."""

  def close(self) -> None:
    """Ends every episode and every process."""
