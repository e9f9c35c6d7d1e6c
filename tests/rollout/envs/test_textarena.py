"""Games of textarena, alone and side by side in the pool."""

import contextlib
import random

import pytest

from grpojax.rollout.envs import build
from grpojax.rollout.envs.pool import Pool

pytest.importorskip("textarena", reason="needs the library textarena, of the extra [envs]")


def wait(pool: Pool, slots: set[int]) -> dict:
  got = {}
  while set(got) != slots:
    got |= dict(pool.wait(120))
  return got


def play(game: str, number: int, seed: int, actions: list[str]) -> list:
  random.seed(seed)  # as the pool does
  environment = build.find(f"textarena:{game}")()
  return [environment.reset({"number": number}, seed), *map(environment.step, actions)]


def test_hanoi_is_played_to_its_end():
  moves = ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]
  turns = play("TowerOfHanoi-v0-train", 0, 0, moves)
  assert "To move a disk" in turns[0].text and not any("To move a disk" in turn.text for turn in turns[1:])
  assert [turn.done for turn in turns] == [False] * 7 + [True]
  assert turns[-1].reward == 1 and all(turn.valid for turn in turns)


def test_the_second_invalid_move_in_a_row_ends_a_game():
  turns = play("TowerOfHanoi-v0-train", 0, 0, ["[A C]", "up", "[A B]", "up", "up"])
  assert [turn.valid for turn in turns] == [True, True, False, True, False, False]
  assert [turn.done for turn in turns] == [False] * 5 + [True]


def test_games_that_cannot_be_played_are_refused():
  for game, words in (("TicTacToe-v0-train", "for one player"), ("Nothing-v0", "no game 'Nothing-v0'")):
    with pytest.raises(ValueError, match=words):
      build.check(f"textarena:{game}", {}, 1.0)


def test_2048_beside_itself_is_as_it_is_alone():
  """Its steps draw from Python's global generator: two games in turns, in one process, would differ."""
  actions = ["[left]", "[up]", "[right]", "[down]"] * 2
  game = "2048-v0-train"
  alone = {seed: play(game, 3, seed, actions) for seed in range(2)}
  assert alone[0] != alone[1] and alone[0][0] == alone[1][0]
  pool = Pool(f"textarena:{game}")
  with contextlib.closing(pool):
    for seed in alone:
      pool.reset(seed, {"number": 3}, seed)
    turns = {seed: [turn] for seed, turn in wait(pool, {0, 1}).items()}
    for action in actions:
      for seed in alone:
        pool.step(seed, action)
      for seed, turn in wait(pool, {0, 1}).items():
        turns[seed].append(turn)
  assert turns == alone
