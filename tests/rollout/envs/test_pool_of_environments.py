"""The pool: equal episodes whatever runs beside them, and an environment that misbehaves fails alone."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import toy_environments

from grpojax.rewards import server as servers
from grpojax.rollout.envs.interface import Turn
from grpojax.rollout.envs.pool import Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
EXAMPLE = {"question": "roll"}


@contextlib.contextmanager
def pool_of(name: str, timeout: float = 60.0, **knobs):
  pool = Pool(f"toy_environments:{name}", knobs, timeout=timeout)
  try:
    yield pool
  finally:
    pool.close()


def answer(pool: Pool, slot: int) -> Turn:
  """Waits for the answer of a slot, where no other is due."""
  got = []
  while not got:
    got = pool.wait(60)
  ((found, turn),) = got
  assert found == slot
  return turn


def play(pool: Pool, slot: int, seed: int, actions: list[str]) -> list[Turn]:
  pool.reset(slot, EXAMPLE, seed)
  turns = [answer(pool, slot)]
  for action in actions:
    if not turns[-1].ended:
      pool.step(slot, action)
      turns.append(answer(pool, slot))
  return turns


def play_all(pool: Pool, slots: int, steps: int) -> dict[int, list[Turn]]:
  """Plays an episode of seed = slot in every slot at once, each in its own time."""
  turns = {slot: [] for slot in range(slots)}
  for slot in turns:
    pool.reset(slot, EXAMPLE, slot)
  while any(not played or not played[-1].ended for played in turns.values()):
    for slot, turn in pool.wait(60):
      turns[slot].append(turn)
      if not turn.ended:
        pool.step(slot, f"a{len(turns[slot])}")
  assert all(len(played) == steps + 1 for played in turns.values())
  return turns


@pytest.fixture(scope="module")
def alone() -> dict[int, list[Turn]]:
  """Episodes of seeds 0, 1, ..., one after the other in this process, without a pool."""
  played = {}
  for seed in range(6):
    toy_environments.random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    dice = toy_environments.Dice()
    turns = [dice.reset(EXAMPLE, seed)]
    turns += [dice.step(f"a{number}") for number in range(1, 5)]
    played[seed] = [turn._replace(anchor=turn.text if turn.anchor is None else turn.anchor) for turn in turns]
  return played


@pytest.fixture(scope="module")
def shared():
  with pool_of("Obedient") as pool:
    yield pool


@pytest.mark.parametrize("slots", [1, 6])
def test_an_episode_is_the_same_whatever_runs_beside_it(alone, slots, shared):
  before = dict(shared.counts)
  for _ in range(2):  # workers are used again
    assert play_all(shared, slots, steps=4) == {slot: alone[slot] for slot in range(slots)}
  more = [shared.counts[name] - before[name] for name in ("steps", "failures", "replays")]
  assert more == [2 * slots * 5, 0, 0]


@pytest.mark.slow
def test_slow_environments_work_side_by_side():
  """All have begun to work before the first has answered; `poll` waits for none."""
  with pool_of("Dice", seconds=0.5) as pool:
    assert pool.poll() == [] and pool.wait(60) == []
    for slot in range(4):
      play(pool, slot, slot, ["a"])
    for slot in range(4):
      pool.step(slot, "b")
    assert pool.poll() == [] and pool.wait(0.01) == []
    time.sleep(3.0)
    assert sorted(slot for slot, _ in pool.poll()) == [0, 1, 2, 3]
    assert pool.counts["seconds"] > 4


def test_only_an_episode_that_waits_takes_an_action(shared):
  waits = lambda: pytest.raises(ValueError, match="No episode in slot 0 waits for an action")
  with waits():
    shared.step(0, "b")
  shared.reset(0, EXAMPLE, 0)
  with waits():
    shared.step(0, "b")
  answer(shared, 0)
  assert play(shared, 0, 0, ["a", "b", "c", "d"])[-1].done
  with waits():
    shared.step(0, "b")


HARMLESS = (
  "raise",
  "exit",
  "text",
  "feedback",
  "none",
  "string",
  "number",
  "surrogate",
  "nan",
  "word",
  "done",
)


@pytest.mark.parametrize("action", [*HARMLESS, "anchor", "deep"])
def test_what_is_no_sound_turn_is_a_failure_and_its_neighbour_goes_on(action, alone, shared):
  shared.reset(1, EXAMPLE, 1)
  assert answer(shared, 1) == alone[1][0]
  last = play(shared, 0, 0, [action])[-1]
  assert last.failure and last.ended and not last.done and last.text == "" and last.reward == 0
  shared.step(1, "a1")
  assert answer(shared, 1) == alone[1][1]


def test_failures_say_what_was_wrong(shared):
  words = {action: play(shared, 0, 0, [action])[-1].failure for action in ("raise", "nan", "string", "text")}
  assert words == {
    "raise": "KeyError: 'missing'",
    "nan": "ValueError: the reward of a turn is nan",
    "string": "TypeError: an environment answers with a Turn, and not with a str",
    "text": "ValueError: the text of a turn has 2,097,152 characters, and at most 1,048,576 are allowed",
  }


@pytest.mark.slow
def test_those_that_never_answer_are_killed_at_the_limit(alone):
  bad = ["hang", "spin", "print", "fork"]
  with pool_of("Obedient", timeout=5.0) as pool:
    pool.reset(9, EXAMPLE, 1)
    answer(pool, 9)
    for slot in range(len(bad)):
      play(pool, slot, 0, [])
    for slot, action in enumerate(bad):
      pool.step(slot, action)
    got = {}
    while len(got) < len(bad):
      got |= pool.wait(60)
    assert [got[slot].failure for slot in range(4)] == ["TimeoutError: no answer in 5 s"] * 4
    pool.step(9, "a1")
    assert answer(pool, 9) == alone[1][1] and pool.counts["failures"] == 4
    end = time.monotonic() + 20  # what a killed worker had forked is nobody's child here: it ends unseen
    while len(members(pool)) > 4 and time.monotonic() < end:
      time.sleep(0.1)
    assert len(members(pool)) <= 4  # server, forkserver, resource tracker, one worker


@pytest.mark.parametrize("action", ["die", "kill", "memory"])
def test_one_that_kills_its_process_is_tried_once_more_and_fails(action, shared):
  before = dict(shared.counts)
  last = play(shared, 0, 0, ["a", action])[-1]
  assert last.failure == "the environment's process died, twice"
  assert [shared.counts[name] - before[name] for name in ("replays", "failures")] == [1, 1]


def members(pool: Pool) -> list[int]:
  """The pool's processes, its server among them."""
  session = pool._server.pid
  everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
  return [pid for pid in everyone if servers.state(pid)[1] == session and servers.state(pid)[0] != "Z"]


@pytest.mark.parametrize("number, whom", [
  (signal.SIGKILL, "worker"), (signal.SIGKILL, "server"),
  *(pytest.param(*case, marks=pytest.mark.slow) for case in (
    (signal.SIGKILL, "all"), (signal.SIGSTOP, "worker"), (signal.SIGSTOP, "server"), (signal.SIGSTOP, "all"),
  )),
])  # fmt: skip
def test_what_somebody_does_to_processes_changes_no_episode(number, whom, alone, tmp_path):
  """One is at work while it happens, the other waits for an action."""
  with pool_of("Obedient") as pool:
    waiting = play(pool, 1, 1, ["a1"])
    pool.reset(0, EXAMPLE, 0)
    turns = [answer(pool, 0)]
    pool.step(0, f"once {tmp_path}/pid")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
      time.sleep(0.02)
    worker, server = int((tmp_path / "pid").read_text()), pool._server.pid
    for pid in {"worker": [worker], "server": [server], "all": members(pool)}[whom]:
      with contextlib.suppress(ProcessLookupError):  # a worker ends with its server
        os.kill(pid, number)
    turns.append(answer(pool, 0))
    rolled = lambda turn: turn.text.split()[-3:]
    assert [rolled(turn) for turn in turns] == [rolled(turn) for turn in alone[0][:2]]
    pool.step(1, "a2")
    assert [*waiting, answer(pool, 1)] == alone[1][:3]
    assert pool.counts["replays"] >= 1 and not pool.counts["failures"]


def test_an_episode_that_cannot_be_played_again_fails(tmp_path):
  with pool_of("Forgetful") as pool:
    last = play(pool, 0, 0, ["a", f"die {tmp_path}/died"])[-1]
    assert "gave other turns" in last.failure


def test_an_answer_that_nobody_waits_for_any_more_is_no_other_requests(alone, shared):
  play(shared, 0, 0, [])
  shared.step(0, "late")
  time.sleep(2.0)  # until the answer has been sent, and nobody has read it
  shared.reset(0, EXAMPLE, 2)
  assert answer(shared, 0) == alone[2][0]
  shared.step(0, "a1")
  assert answer(shared, 0) == alone[2][1]


def test_a_row_may_have_arrays_and_a_closed_pool_starts_anew(alone, shared):
  example = EXAMPLE | {"grid": np.arange(4).reshape(2, 2), "size": np.int32(2)}
  for _ in range(2):
    shared.reset(0, example, 0)
    assert answer(shared, 0) == alone[0][0]
    shared.close()


def test_an_end_before_its_time_frees_the_slot_and_its_process(alone):
  with pool_of("Obedient") as pool:
    play(pool, 0, 0, [])
    pool.step(0, "hang")
    pool.end(0)
    assert pool.poll() == [] and pool.wait(60) == []
    played = play(pool, 0, 2, ["a1"])
    assert played == alone[2][:2]
    pool.step(0, "hang")
    assert play(pool, 0, 3, []) == alone[3][:1]  # a reset ends it too
    for slot in range(10, 30):
      play(pool, slot, 0, [])
      pool.end(slot)
    assert len(members(pool)) < 3 + 10  # of server and helpers, and far fewer workers than episodes


TRAINER = """
import sys
from grpojax.rollout.envs.pool import Pool
pool = Pool("toy_environments:Obedient")
pool.reset(0, {"question": "roll"}, 0)
pool.wait(60)
pool.step(0, "spin")
print(pool._server.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("stopped", [pytest.param(False, marks=pytest.mark.slow), True])
def test_no_process_outlives_the_trainer(stopped):
  folders = [str(Path(servers.__file__).parents[2]), str(Path(__file__).parent)]
  trainer = subprocess.Popen(
    [sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
  )  # fmt: skip
  leader = int(trainer.stdout.readline())
  all_of = [int(p.name) for p in Path("/proc").glob("[0-9]*") if servers.state(int(p.name))[1] == leader]
  assert len(all_of) >= 3
  if stopped:
    os.kill(leader, signal.SIGSTOP)
  trainer.kill()
  trainer.wait()
  end = time.monotonic() + 20
  while (
    left := [pid for pid in all_of if servers.state(pid)[0] not in ("", "Z")]
  ) and time.monotonic() < end:
    time.sleep(0.1)
  for pid in left:
    os.kill(pid, signal.SIGKILL)
  assert not left
