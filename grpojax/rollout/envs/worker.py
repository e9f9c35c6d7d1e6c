"""Worker process: plays one episode at a time, and lets nothing but sound turns out.

Python's and numpy's global generators are its episode's alone, as nothing else runs in the process.
"""

import contextlib
import json
import math
import os
import random
import time
from collections.abc import Callable, Hashable

import numpy as np

from grpojax.rewards import server as servers
from grpojax.rollout.envs import build
from grpojax.rollout.envs.interface import ROLES, Environment, Turn

_LONGEST = 1 << 20  # characters of an observation, of a validator's words or of an anchor
_WORDS = 300  # characters of a failure


def work(connection, name: str, knobs: dict) -> None:
  """Answers requests until the server closes the connection."""
  os.setpgid(0, 0)  # to be killed with all that the environment has started
  servers.confine()
  null = os.open(os.devnull, os.O_RDWR)
  for descriptor in range(3):  # an environment that prints without end floods nothing
    os.dup2(null, descriptor)
  make = build.find(name)
  environment = None
  with contextlib.suppress(EOFError, OSError):
    while True:
      request = json.loads(connection.recv_bytes())
      start = time.perf_counter()
      turns, environment = answer(request, environment, lambda: make(**knobs))
      connection.send_bytes(json.dumps([turns, time.perf_counter() - start]).encode())


def answer(
  request: dict, environment: Environment | None, make: Callable[[], Environment]
) -> tuple[list[Turn], Environment | None]:
  """Returns a request's turns, and the environment of the episode that goes on.

  A request has `example` and `seed`, which start an episode, or `end`, or neither; and `actions`.  What an
  environment raises is the last turn's failure.  The process ends where its memory does: perhaps another
  one's will last.
  """
  turns = []
  try:
    if environment is not None and ("example" in request or "end" in request):
      last, environment = environment, None
      with contextlib.suppress(Exception):  # nobody is hurt by what is done with
        last.close()
    if "example" in request:
      random.seed(request["seed"])
      np.random.seed(request["seed"] % 2**32)  # noqa: NPY002 (environments draw from it)
      environment = make()
      turns.append(checked(environment.reset(request["example"], request["seed"])))
    for action in request.get("actions", ()):
      turns.append(checked(environment.step(action)))
  except MemoryError:
    os._exit(1)
  except BaseException as error:  # SystemExit too: it is the environment's
    turns.append(failed(f"{type(error).__name__}: {error}"))
  return turns, environment


def failed(words: str) -> Turn:
  """Returns the turn of an environment that gave none."""
  return Turn("", failure=words[:_WORDS].encode("utf-8", "replace").decode())


def checked(turn: Turn) -> Turn:
  """Returns a turn in plain types, with its anchor.  Raises TypeError or ValueError for an unsound one."""
  if not isinstance(turn, Turn):
    raise TypeError(f"an environment answers with a Turn, and not with a {type(turn).__name__}")
  for name, value in (("text", turn.text), ("feedback", turn.feedback)):
    if not isinstance(value, str):
      raise TypeError(f"the {name} of a turn is a str, and no {type(value).__name__}")
    if len(value) > _LONGEST:
      raise ValueError(
        f"the {name} of a turn has {len(value):,} characters, and at most {_LONGEST:,} are allowed"
      )
    value.encode()  # half a surrogate pair is no text
  for name, value in (("done", turn.done), ("truncated", turn.truncated), ("valid", turn.valid)):
    if not isinstance(value, bool | np.bool_):
      raise TypeError(f"`{name}` of a turn is True or False, and no {type(value).__name__}")
  if turn.role not in ROLES:
    raise ValueError(f"the role of a turn is one of {', '.join(ROLES)}, and not {turn.role!r}")
  reward = float(turn.reward)
  if not math.isfinite(reward):
    raise ValueError(f"the reward of a turn is {reward}")
  anchor = _plain(turn.text if turn.anchor is None else turn.anchor)
  if len(repr(anchor)) > 2 * _LONGEST:
    raise ValueError(f"the anchor of a turn has more than {2 * _LONGEST:,} characters")
  flags = dict(done=bool(turn.done), truncated=bool(turn.truncated), valid=bool(turn.valid))
  return Turn(turn.text, reward, anchor=anchor, feedback=turn.feedback, role=turn.role, **flags)


def _plain(anchor: Hashable) -> Hashable:
  """Returns an anchor of what JSON has too; a tuple is a list there."""
  if isinstance(anchor, tuple | list):
    return tuple(map(_plain, anchor))
  if isinstance(anchor, np.generic):
    anchor = anchor.item()
  if not isinstance(anchor, str | int | float | bool | None):
    raise TypeError(f"an anchor is a text, a number or a tuple of such, and no {type(anchor).__name__}")
  return anchor
