"""What all rollouts of trajectories share, the device's programs and the budgets; and who sits in a slot."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from grpojax.rollout.turns.trajectory import Trajectory


class Budgets(NamedTuple):
  """Limits of a trajectory: config.env, and config.rollout.max_tokens."""

  group_size: int  # G
  max_tokens: int  # T, behind the prompt, in all contexts
  turns: int  # U
  action_tokens: int
  observation_tokens: int  # of its own text; what is longer is cut
  invalid_actions: int  # in a row; 0: any number
  memory: int = 0  # turns that a new context begins with, one for every action; 0: one context
  context_tokens: int = 0  # of one context, behind the prompt; 0: T

  @property
  def shape(self) -> tuple[int, int, bool]:
    """Returns T, U and whether a trajectory may have several contexts."""
    return self.max_tokens, self.turns, bool(self.memory)

  def room(self, one: Trajectory) -> int:
    """Returns the tokens that may still follow in the context under way."""
    in_context = (self.context_tokens or self.max_tokens) - one.context_length
    return min(self.max_tokens - len(one.tokens), in_context)


class Device(NamedTuple):
  """The programs of sampler/turns.py, and how values come to where they want them."""

  empty: Callable
  read: Callable
  begin: Callable
  act: Callable
  slots: int  # S, of a bank
  chunk: int  # W, columns that a slot reads at a time
  readers: int  # R, slots that read at a time
  segment: int  # decode steps between two looks of the host
  put: Callable  # what has a row for each slot, or each reader -> on the mesh
  replicate: Callable  # any value -> on the whole mesh
  shards: int = 1  # D, of the batch; divides S and R
  banks: int = 1  # whose slots decode in turns

  def shard(self, slot: int) -> int:
    """Returns the shard of a slot."""
    return slot // (self.slots // self.shards)

  def places(self, slots: list[int]) -> list[dict[int, int]]:
    """Returns for each call of a program the slots by their places, 0 .. R - 1, each on its own shard."""
    each, calls, taken = self.readers // self.shards, [], [0] * self.shards
    for slot in slots:
      shard = self.shard(slot)
      call, place = divmod(taken[shard], each)
      taken[shard] += 1
      if call == len(calls):
        calls.append({})
      calls[call][shard * each + place] = slot
    return calls


class Table(NamedTuple):
  """All that the rollouts of a run have in common."""

  device: Device
  budgets: Budgets
  tokenizer: Any
  eos_ids: tuple[int, ...]


@dataclasses.dataclass
class Player:
  """A slot that is taken."""

  row: int  # of the prompt
  sample: int
  trajectory: Trajectory
  unread: list[int]  # tokens behind those that the cache holds, in order
  held: int = 0  # tokens that the cache holds
  waits: bool = True  # for its environment
  action: str | None = None  # that its environment could not be asked yet
  asked: float = 0.0  # when
