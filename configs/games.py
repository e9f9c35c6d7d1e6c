"""Games: scales at which a recipe plays an environment of many turns, cold-started from a planner that errs.

    python -m grpojax.main --config=configs/gigpo.py                     # `lake` is its default
    python -m grpojax.main --config=configs/grpo.py:lake                 # the same game
    python -m grpojax.main --config=configs/essa.py:desk --config.env.knobs.goals=2
    python -m grpojax.main --config=configs/hgpo.py:tiny_sokoban         # seconds; for tests

`configs/base.py` takes these names as scales, and so any recipe without rewards of its own for completions
does.  A letter of a board, a call or an answer is a token.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

WRONG = 0.45  # share of the planner's moves that are random, so that it fails in about every second game


def lake(c: ConfigDict) -> None:
  """FrozenLake on random 4x4 maps: two CPU cores, six minutes."""
  _play(c, "frozen_lake", size=4, max_steps=12)
  c.env.update(turns=12, action_tokens=6, observation_tokens=48)  # what is no move is answered in 45
  c.data.prompt_budget = 24
  c.rollout.update(max_tokens=12 * 28, prefill_chunk=24)  # a turn: a board of 19, its frame of 2, a move of 6


def sokoban(c: ConfigDict) -> None:
  """Sokoban on random 4x4 boards with one box: what is pushed to a wall stays there."""
  _play(c, "sokoban", size=4, max_moves=8, max_steps=12)
  c.env.update(turns=12, action_tokens=6, observation_tokens=48)  # what is no move is answered in 45
  c.data.prompt_budget = 24
  c.rollout.update(max_tokens=12 * 28, prefill_chunk=24)


def desk(c: ConfigDict) -> None:
  """An office of tools that refuse; a turn's anchor is ESSA's fingerprint of the last answer."""
  _play(c, "desk", goals=1, max_steps=5, anchor="fingerprint")
  c.env.update(turns=5, action_tokens=18, observation_tokens=96)  # what is no call: in 88
  c.data.update(train=2048, validation=64, prompt_budget=32)  # of 4,056 requests
  c.rollout.update(max_tokens=5 * 50, prefill_chunk=32)  # a turn: an answer of 19 on average, a call of 10
  c.steps = 40  # after 24 it has made half of its way
  c.eval.every = 20


def _play(c: ConfigDict, environment: str, **knobs) -> None:
  """Sets what all games share.  The environment plays the dataset's tasks, so that both have its knobs."""
  c.env.name = environment
  c.env.knobs = ConfigDict(knobs)
  c.data.task = "grpojax.rollout.envs.rows:Tasks"
  c.data.environment = c.env.get_ref("name")
  c.data.knobs = c.env.knobs
  c.data.update(train=1024, validation=64, test=256, wrong=WRONG)  # 4x4 lakes repeat: more take minutes
  del c.data.rambling, c.data.unmarked, c.data.form
  c.reward = ConfigDict()  # the environment's
  c.steps = 24
  c.rollout.update(prompts=16, group_size=8, slots=64, segment=8)
  c.optimizer.learning_rate = 1e-3
  c.cold_start.update(steps=200, batch_size=32)
  c.eval.update(every=12, prompts=64, samples=8)
  c.checkpoint.every = 12


def _tiny(game: Callable[[ConfigDict], None]) -> Callable[[ConfigDict], None]:
  """Returns the scale of a game that takes seconds; for tests."""

  def scale(c: ConfigDict) -> None:
    """The same in a few seconds; for tests."""
    game(c)
    c.steps = 2
    c.env.turns = 4
    c.rollout.update(prompts=4, group_size=4, max_tokens=160, slots=8)
    c.data.update(train=64, validation=4, test=16)
    c.model.update(hidden_size=32, num_hidden_layers=2, head_dim=8, intermediate_size=64)
    c.model.moe_intermediate_size = 32
    c.cold_start.update(steps=4, batch_size=16, warmup_steps=1)
    c.eval.update(every=2, prompts=8, samples=4)
    c.checkpoint.every = 1

  return scale


GAMES = dict(lake=lake, sokoban=sokoban, desk=desk)
SCALES = GAMES | {f"tiny_{name}": _tiny(game) for name, game in GAMES.items()}
