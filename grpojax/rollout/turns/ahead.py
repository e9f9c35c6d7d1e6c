"""Games on a thread of their own: with `config.staleness`, while the host trains.

One thread plays all games, in the order in which they were begun, because only one may use environments.
What a trajectory holds depends on its address alone, so that a game is the same on whichever thread.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from grpojax.rollout.turns.game import Game
from grpojax.types import Rollout


class Playing(NamedTuple):
  """A game on the other thread."""

  groups: Future  # of all that `Game.play` yields, a list
  counters: Counter  # of its work, complete when it is over
  stop: threading.Event


def begin(thread: ThreadPoolExecutor, make_game: Callable[[Counter, Callable], Game]) -> Playing:
  """Begins a game behind those that were begun before; `make_game` takes its counters and `stopped`."""
  counters, stop = Counter(), threading.Event()

  def play() -> list:
    if stop.is_set():
      return []
    game = make_game(counters, stop.is_set)
    try:
      return list(game.play())
    finally:
      game.close()

  return Playing(thread.submit(play), counters, stop)


def finish(playing: Playing) -> tuple[list[tuple[np.ndarray, Rollout]], Counter]:
  """Waits for the game.  Returns what it yields, and counts of its work.

  A game that nobody waits for any more is stopped.
  """
  try:
    return playing.groups.result(), playing.counters
  except BaseException:
    cancel(playing)
    raise


def cancel(playing: Playing) -> None:
  """Ends a game that is not wanted, after the turn that it is in, and waits for nothing."""
  playing.stop.set()
