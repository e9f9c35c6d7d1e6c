"""Desk: a small office of meeting rooms whose tools refuse what is wrong, by names and numbers.

    ann: book 14, 6 seats; bob: cancel 4
    > rooms 14                              or {"name": "rooms", "arguments": {"hour": 14}}
    A 4, C 9
    > book ann A 14
    'A' has 4 seats, and 'ann' needs 6

A refusal must be understood and repaired: another room, the right number, a look before a guess.  Nothing
that nobody has asked for is done, so that every mistake can be mended while there are turns left.  The anchor
of a turn is ESSA's fingerprint of the validator's last answer, in which names and numbers are left out.
"""

import inspect
import random
import re
from collections.abc import Hashable

from grpojax.rollout import anchors
from grpojax.rollout.envs import calls, office
from grpojax.rollout.envs.interface import Turn

_READS = ("rooms", "find")
_VERBS = (*_READS, "book", "change", "cancel")
_FORMS = "rooms HOUR, find NAME, book NAME ROOM HOUR, change NUMBER ROOM HOUR or cancel NUMBER"


class Desk:
  """Rewards 1 when all `goals` are reached, else 0.  `anchor` is "fingerprint" or, as GiGPO's, "text"."""

  about = f"You are the desk of an office. Do what each asks for. Say {_FORMS}."

  def __init__(self, goals: int = 2, max_steps: int = 10, anchor: str = "fingerprint", rules: bool = False):
    if not 1 <= goals <= 3 or max_steps < 3 * goals or anchor not in ("fingerprint", "text"):
      raise ValueError(
        f"goals = {goals} must be from 1 to 3, max_steps = {max_steps} at least three times as many, and"
        f" anchor = {anchor!r} 'fingerprint' or 'text'."
      )
    self.goals, self.max_steps, self.anchor, self.rules = goals, max_steps, anchor, rules

  def reset(self, example: dict, seed: int) -> Turn:
    self.office = office.draw(int(example["number"]), self.goals)
    self.steps, self._looked = 0, set()
    asked = "; ".join(map(str, self.office.goals))
    return Turn(f"{self.about}\n{asked}" if self.rules else asked)

  def step(self, action: str) -> Turn:
    self.steps += 1
    text, fingerprint, valid = self._do(action)
    done = not self.office.goals
    return Turn(
      text,
      reward=float(done),
      done=done,
      truncated=not done and self.steps >= self.max_steps,
      anchor=fingerprint if self.anchor == "fingerprint" else None,
      feedback=text if fingerprint[0] in ("write", "invalid") else "",
      valid=valid,
    )

  def close(self) -> None:
    pass

  def demonstrate(self, rng: random.Random, wrong: float) -> str:
    """Returns what a clerk says who looks before acting; in a share `wrong` of calls, a random command."""
    if rng.random() < wrong:
      return self._guess(rng)
    goal = self.office.goals[0]
    find, rooms = f"find {goal.name}", f"rooms {goal.to or goal.hour}"
    looks = {"book": [rooms], "change": [find, rooms], "cancel": []}[goal.verb]
    return next((look for look in looks if look not in self._looked), None) or self._right(goal)

  def _do(self, action: str) -> tuple[str, Hashable, bool]:
    """Returns the answer, its fingerprint, and whether the action could be read."""
    try:
      verb, arguments = self._read(action)
    except calls.CallError as error:
      return str(error), ("invalid",), False
    try:
      text = getattr(self.office, verb)(**arguments)
    except office.Refusal as error:
      return str(error), anchors.error_anchor(verb, str(error)), True
    if verb not in _READS:
      return text, ("ok", verb), True
    (seen,) = arguments.values()
    self._looked.add(f"{verb} {seen}")
    return text, ("read", verb, str(seen)), True

  def _read(self, action: str) -> calls.Call:
    """Returns the verb and arguments of a call in JSON or in words.  Raises CallError."""
    call = calls.read(action)
    verb, *words = [call.name] if call else action.split() or [""]
    if verb not in _VERBS:
      raise calls.CallError(f"say {_FORMS}")
    tool = getattr(self.office, verb)
    if call is None:
      takes = inspect.signature(tool).parameters
      if len(words) != len(takes):
        raise calls.CallError(f"say {_FORMS}")
      typed = map(_typed, words, takes.values())
      call = calls.Call(verb, dict(zip(takes, typed, strict=True)))
    return calls.Call(verb, calls.bind(tool, call.arguments))

  def _right(self, goal: office.Goal) -> str:
    if goal.verb == "book":
      return f"book {goal.name} {self.office.free(goal.hour, goal.seats)[0]} {goal.hour}"
    if goal.verb == "cancel":
      return f"cancel {goal.number}"
    seats = self.office.bookings[goal.number].seats
    return f"change {goal.number} {self.office.free(goal.to, seats)[0]} {goal.to}"

  def _guess(self, rng: random.Random) -> str:
    """Returns a command of the right form, about anything."""
    goal = rng.choice(self.office.goals)
    name, room = rng.choice((goal.name, rng.choice(office.NAMES))), rng.choice(office.ROOMS)
    hour, number = (
      rng.choice((goal.hour, goal.to or goal.hour)),
      rng.choice(sorted(self.office.bookings) or [10]),
    )
    forms = (f"rooms {hour}", f"find {name}", f"book {name} {room} {hour}", f"cancel {number}")
    return rng.choice((*forms, f"change {number} {room} {hour}"))


def _typed(word: str, parameter: inspect.Parameter) -> int | str:
  """Returns a word as the number that a tool takes, if it is one."""
  return int(word) if parameter.annotation is int and re.fullmatch("[0-9]{1,9}", word) else word


make = Desk
