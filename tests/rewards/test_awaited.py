"""Rewards that are `async def`: the numbers of plain ones, asked before anyone waits, in one event loop."""

import asyncio
import json
import os
import threading

import numpy as np
import pytest

from grpojax import rewards
from grpojax.rewards import awaited

ROWS = [{"answer": "2", "meta": json.dumps({"task": task})} for task in ("sum", "chat")]
TEXTS = [["2", "3"], ["2", "no 2"]]
LOOPS = []


def right(sample):
  return None if sample.text == "no 2" else float(sample.text == sample.example["answer"])


async def right_awaited(sample):
  LOOPS.append(asyncio.get_running_loop())
  await asyncio.sleep(0.02 if sample.text == "2" else 0)  # the first asked answers last
  return right(sample)


def lengths(samples, *, unit):
  return [len(one.text) / unit for one in samples]


async def lengths_awaited(samples, *, unit):
  assert samples, "nobody is asked about nothing"
  return lengths(samples, unit=unit)


def half(group, accuracy):
  return [x / 2 for x in accuracy]


async def half_awaited(group, accuracy):
  return half(group, accuracy)


async def fails(samples):
  return 1 / 0


def build(suffix: str = "", **changes):
  slots = dict(
    accuracy=dict(fn=f"{__name__}:right{suffix}"),
    length=dict(fn=f"{__name__}:lengths{suffix}", unit=4, weight=0.5, only={"task": ["chat"]}),
    half=dict(fn=f"{__name__}:half{suffix}"),
  )
  return rewards.build(slots | changes)


def groups(rows=ROWS, texts=TEXTS):
  return rewards.samples(rows, texts, [[1, 1]] * len(rows), [[True, True]] * len(rows))


def test_awaited_rewards_give_the_numbers_of_plain_ones():
  found, want = rewards.score(build("_awaited"), groups()), rewards.score(build(), groups())
  for a, b in zip(found, want, strict=True):
    np.testing.assert_equal(a, b)
  assert found.counts["rewards/accuracy/abstained"] == 1 and found.reward[0, 0] == 1.5


def test_what_is_asked_beforehand_is_not_asked_again_and_no_one_waits_for_it():
  scorer, answer = build("_awaited"), threading.Event()

  async def later(sample):
    while not answer.is_set():
      await asyncio.sleep(0.001)
    return right(sample)

  first, *others = scorer.all
  scorer = rewards.Rewards((first._replace(fn=later), *others))
  begun = rewards.begin(scorer, groups())
  assert not begun["accuracy"].done() and "half" not in begun  # which reads what accuracy says
  answer.set()
  assert rewards.score(scorer, groups(), begun).accuracy[0].tolist() == [1.0, 0.0]


def test_a_call_that_nobody_waits_for_any_more_is_cancelled():
  cancelled = threading.Event()

  async def never():
    try:
      await asyncio.sleep(3600)
    except asyncio.CancelledError:
      cancelled.set()
      raise

  begun = awaited.begin([never()])
  awaited.told(awaited.begin([asyncio.sleep(0)]))()  # the loop has begun with what came before
  assert begun.cancel() and cancelled.wait(60)
  test_awaited_rewards_give_the_numbers_of_plain_ones()


def test_a_reward_is_not_asked_about_no_completions():
  found = rewards.score(build("_awaited"), groups(ROWS[:1], TEXTS[:1]))
  assert np.isnan(found.parts["length"]).all() and found.valid.all()


def test_a_call_that_fails_costs_its_completions_and_is_told():
  found = rewards.score(build("_awaited", length=dict(fn=f"{__name__}:fails")), groups())
  assert not found.valid.any() and "Reward 'length' raised ZeroDivisionError" in found.first_error


def test_a_call_that_would_end_the_loop_ends_the_caller_and_the_loop_goes_on():
  async def gives_up():
    raise SystemExit(3)

  with pytest.raises(SystemExit):
    awaited.told(awaited.begin([gives_up()]))()
  test_awaited_rewards_give_the_numbers_of_plain_ones()


def test_all_steps_share_a_loop_and_a_forked_process_has_its_own():
  LOOPS.clear()
  for _ in range(2):
    rewards.score(build("_awaited"), groups())
  assert len(LOOPS) == 8 and len(set(LOOPS)) == 1
  child = os.fork()
  if not child:
    rewards.score(build("_awaited"), groups())
    os._exit(0 if LOOPS[-1] is not LOOPS[0] else 1)
  assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
