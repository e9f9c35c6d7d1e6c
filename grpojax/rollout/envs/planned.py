"""Games of an environment's own planner: what a cold start imitates.  Runs in a worker.

An environment that can show how it is played has a method `demonstrate(rng, wrong) -> action`: what a planner
does next or, in a share `wrong` of the calls, something at random.
"""

import random

import numpy as np

from grpojax.rollout.envs import build

_LONGEST = 1000  # turns: an environment without a limit of its own is not played for ever


def play(name: str, knobs: dict, numbers: list[int], wrong: float) -> list[tuple[str, list | None]]:
  """Returns for each task, by number, its first observation and a game, [[action, observation], ...].

  The last observation is left out, as nobody reads it.  There is no game where there is no `demonstrate`.
  """
  return [_play(name, knobs, number, wrong) for number in numbers]


def _play(name: str, knobs: dict, number: int, wrong: float) -> tuple[str, list | None]:
  random.seed(number)
  np.random.seed(number % 2**32)  # noqa: NPY002 (environments draw from it)
  environment = build.find(name)(**knobs)
  turn = environment.reset({"number": number}, number)
  question, game, rng = turn.text, [], random.Random(f"{name}/{number}")
  if not hasattr(environment, "demonstrate"):
    environment.close()
    return question, None
  while not turn.ended and len(game) < _LONGEST:
    action = environment.demonstrate(rng, wrong)
    turn = environment.step(action)
    game.append([action, turn.text])
  environment.close()
  return question, [*game[:-1], [game[-1][0], ""]]
