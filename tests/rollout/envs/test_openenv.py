"""Environments of OpenEnv, of a class in this process and behind an address."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpojax.rollout.envs import build

pytest.importorskip("openenv.core", reason="needs the library openenv-core, of the extra [envs]")
HERE = str(Path(__file__).parent)


def play(environment) -> list:
  turns = [environment.reset({"number": 5}, 0), *map(environment.step, "0123456789")]
  environment.close()
  return [(turn.text, turn.reward, turn.done) for turn in turns]


@pytest.mark.slow
def test_a_class_and_its_server_play_the_same_episode():
  """Each episode by the address has a session of its own: two are stepped in turns."""
  here = build.find("openenv:openenv_toys:Guess")
  wanted = play(here())
  assert wanted[0] == ("a number, 5", 0.0, False) and sum(reward for _, reward, _ in wanted) == 1
  with served() as address:
    there = build.find(f"openenv:{address}")
    assert play(there()) == wanted
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
def test_wrong_names_are_refused(name, knobs, words):
  with pytest.raises(ValueError, match=words):
    build.check(f"openenv:{name}", knobs, 1.0)


def test_a_field_that_is_not_there_is_named():
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
    end = time.monotonic() + 400
    while time.monotonic() < end and server.poll() is None:
      with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        break
      time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
  finally:
    server.kill()
    server.wait()
