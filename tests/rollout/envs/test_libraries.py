"""Games of textarena and environments of OpenEnv, where the libraries are installed."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpojax.rollout.envs import build
from grpojax.rollout.envs.pool import Pool

HERE = str(Path(__file__).parent)


def wait(pool: Pool, slots: set[int]) -> dict:
  got = {}
  while set(got) != slots:
    got |= dict(pool.wait(120))
  return got


class TestTextArena:
  textarena = pytest.importorskip("textarena")

  def play(self, game: str, number: int, seed: int, actions: list[str]) -> list:
    random.seed(seed)  # as the pool does
    environment = build.find(f"textarena:{game}")()
    return [environment.reset({"number": number}, seed), *map(environment.step, actions)]

  def test_hanoi_is_played_to_its_end(self):
    moves = ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]
    turns = self.play("TowerOfHanoi-v0-train", 0, 0, moves)
    assert "To move a disk" in turns[0].text and not any("To move a disk" in turn.text for turn in turns[1:])
    assert [turn.done for turn in turns] == [False] * 7 + [True]
    assert turns[-1].reward == 1 and all(turn.valid for turn in turns)

  def test_the_second_invalid_move_in_a_row_ends_a_game(self):
    turns = self.play("TowerOfHanoi-v0-train", 0, 0, ["[A C]", "up", "[A B]", "up", "up"])
    assert [turn.valid for turn in turns] == [True, True, False, True, False, False]
    assert [turn.done for turn in turns] == [False] * 5 + [True]

  def test_games_that_cannot_be_played_are_refused(self):
    for game, words in (("TicTacToe-v0-train", "for one player"), ("Nothing-v0", "no game 'Nothing-v0'")):
      with pytest.raises(ValueError, match=words):
        build.check(f"textarena:{game}", {}, 1.0)

  def test_2048_beside_itself_is_as_it_is_alone(self):
    """Its steps draw from Python's global generator: two games in turns, in one process, would differ."""
    actions = ["[left]", "[up]", "[right]", "[down]"] * 2
    game = "2048-v0-train"
    alone = {seed: self.play(game, 3, seed, actions) for seed in range(2)}
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


class TestOpenEnv:
  openenv = pytest.importorskip("openenv.core")

  def play(self, environment) -> list:
    turns = [environment.reset({"number": 5}, 0), *map(environment.step, "0123456789")]
    environment.close()
    return [(turn.text, turn.reward, turn.done) for turn in turns]

  def test_a_class_and_its_server_play_the_same_episode(self):
    """Each episode by the address has a session of its own: two are stepped in turns."""
    here = build.find("openenv:openenv_toys:Guess")
    wanted = self.play(here())
    assert wanted[0] == ("a number, 5", 0.0, False) and sum(reward for _, reward, _ in wanted) == 1
    with served() as address:
      there = build.find(f"openenv:{address}")
      assert self.play(there()) == wanted
      first, second = there(), there(other={"loud": True})
      first.reset({"number": 5}, 0)
      second.reset({"number": 6}, 0)
      texts = [environment.step("none").text for environment in (first, second, second, first)]
      assert texts == ["wrong 1 False", "wrong 1 True", "wrong 2 True", "wrong 2 False"]
      first.close()
      second.close()

  @pytest.mark.parametrize("name, knobs, words", [
    ("openenv_toys:Nobody", {}, "no environment 'openenv_toys:Nobody'"),
    ("no_module:X", {}, "no environment"),
    ("openenv_toys:Guess", dict(speed=1), "has no speed"),
  ])  # fmt: skip
  def test_wrong_names_are_refused(self, name, knobs, words):
    with pytest.raises(ValueError, match=words):
      build.check(f"openenv:{name}", knobs, 1.0)

  def test_a_field_that_is_not_there_is_named(self):
    environment = build.find("openenv:openenv_toys:Guess")(text="said")
    with pytest.raises(KeyError, match="no text in 'said', only done, reward, metadata, text"):
      environment.reset({"number": 5}, 0)


@contextlib.contextmanager
def served():
  """The address of a server of `Guess`."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  command = [sys.executable, "-m", "uvicorn", "openenv_toys:app", "--port", str(port), "--log-level", "error"]
  server = subprocess.Popen(command, cwd=HERE, env=os.environ | {"PYTHONPATH": HERE})
  try:
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
      with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        break
      time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
  finally:
    server.kill()
    server.wait()
