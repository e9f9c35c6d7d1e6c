"""A trajectory as it grows: an append-only row of tokens, each with its kind and turn, and what its turns
were.

Text is decoded for the environment and never encoded again, also where a new context begins with turns that
the policy has had before: their tokens are repeated.
"""

import dataclasses
from collections.abc import Hashable

import numpy as np

from grpojax.rollout import anchors
from grpojax.types import ACTION, DONE, PADDING, PROMPT, TRUNCATED, Rollout, Turns


@dataclasses.dataclass
class Trajectory:
  """One of the G of a prompt: the tokens behind the prompt, and the turns that were played."""

  tokens: list[int] = dataclasses.field(default_factory=list)
  kind: list[int] = dataclasses.field(default_factory=list)
  turn: list[int] = dataclasses.field(default_factory=list)  # -1 on tokens of no action
  logp: list[float] = dataclasses.field(default_factory=list)  # 0 on tokens of no action
  entropy: list[float] = dataclasses.field(default_factory=list)  # likewise
  context: list[int] = dataclasses.field(default_factory=list)  # number of each token's context
  action: list[int] = dataclasses.field(default_factory=list)  # tokens of the newest
  remembered: list[list[int]] = dataclasses.field(default_factory=list)  # by turn: action and answer
  repeated: int = 0  # tokens that another context has had before
  anchors: list[Hashable] = dataclasses.field(default_factory=list)  # of the turn that is being played, too
  rewards: list[float] = dataclasses.field(default_factory=list)
  invalid: list[bool] = dataclasses.field(default_factory=list)
  ending: int | None = None

  def act(self, tokens: list[int], logp: list[float], entropy: list[float]) -> None:
    """Appends the action of the turn that is being played."""
    self._append(tokens, ACTION, len(self.rewards), logp, entropy)
    self.action = tokens

  def see(self, tokens: list[int], kind: int) -> None:
    """Appends tokens that the policy has not chosen."""
    self._append(tokens, kind, -1, nothing := [0.0] * len(tokens), nothing)

  def remember(self, action: list[int], answer: list[int], memory: int) -> list[int]:
    """Returns the last `memory` turns in tokens; `action` is what is kept of the newest, and its `answer`."""
    self.remembered.append(action + answer)
    return [token for turn in self.remembered[-memory:] for token in turn]

  def begin_context(self, tokens: list[int], new: int) -> None:
    """Begins a context with these tokens, of which the last `new` have been in no other."""
    number = self.context[-1] + 1
    self.see(tokens, PROMPT)
    self.context[len(self.context) - len(tokens) :] = [number] * len(tokens)
    self.repeated += len(tokens) - new

  def _append(self, tokens: list[int], kind: int, turn: int, logp: list[float], entropy: list[float]) -> None:
    self.tokens += tokens
    self.kind += [kind] * len(tokens)
    self.turn += [turn] * len(tokens)
    self.logp += logp
    self.entropy += entropy
    self.context += [self.context[-1] if self.context else 0] * len(tokens)

  def finish_turn(self, reward: float, valid: bool) -> None:
    """Notes what came of the last action."""
    self.rewards.append(reward)
    self.invalid.append(not valid)

  @property
  def context_length(self) -> int:
    """Returns the tokens of the newest context, behind the prompt."""
    return next((i for i, n in enumerate(reversed(self.context)) if n != self.context[-1]), len(self.context))

  @property
  def invalid_in_a_row(self) -> int:
    """Returns the number of invalid actions since the last valid one."""
    return next((i for i, bad in enumerate(reversed(self.invalid)) if not bad), len(self.invalid))


def to_rollout(group: list[Trajectory], max_tokens: int, max_turns: int, contexts: bool) -> Rollout:
  """Returns the G trajectories of a prompt as arrays [1, G, ...], T = max_tokens, U = max_turns.

  `contexts` says whether a trajectory may have several.
  """

  def padded(rows, width: int, fill, dtype) -> np.ndarray:
    out = np.full((1, len(group), width), fill, dtype)
    for g, row in enumerate(rows):
      out[0, g, : len(row)] = row
    return out

  each = lambda values, dtype: np.array([list(values)], dtype)
  count = [len(one.rewards) for one in group]
  met = anchors.ids([anchor for one, n in zip(group, count, strict=True) for anchor in one.anchors[:n]])
  of_turns = lambda rows, fill, dtype: padded(rows, max_turns, fill, dtype)
  ending = each((one.ending for one in group), np.int8)
  turns = Turns(
    index=padded((one.turn for one in group), max_tokens, -1, np.int32),
    count=each(count, np.int32),
    reward=of_turns((one.rewards for one in group), 0, np.float32),
    anchor=of_turns(np.split(met, np.cumsum(count)[:-1]), 0, np.int32),
    invalid=of_turns((one.invalid for one in group), False, bool),
  )
  return Rollout(
    tokens=padded((one.tokens for one in group), max_tokens, 0, np.int32),
    length=each((len(one.tokens) for one in group), np.int32),
    ended=np.isin(ending, (DONE, TRUNCATED)),
    sampler_logp=padded((one.logp for one in group), max_tokens, 0, np.float32),
    sampler_entropy=padded((one.entropy for one in group), max_tokens, 0, np.float32),
    kind=padded((one.kind for one in group), max_tokens, PADDING, np.int8),
    turns=turns,
    ending=ending,
    context=padded((one.context for one in group), max_tokens, 0, np.int32) if contexts else None,
  )
