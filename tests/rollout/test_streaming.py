"""Dynamic sampling that submits prompts as places free up, against the same in rounds."""

import asyncio
import copy
import importlib
from collections import Counter
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict
from test_dynamic_sampling import P as SIZE
from test_dynamic_sampling import config, in_turn, world

from grpojax import rewards, train
from grpojax.rollout import curriculum, dynamic_sampling, evaluate, generate, survey, turns
from grpojax.rollout.context import RolloutContext
from grpojax.rollout.groups import concatenate, take
from grpojax.rollout.prefetch import Prefetcher
from grpojax.rollout.score import ask, score
from grpojax.runtime.data_shards import SINGLE_PROCESS


def odd(sample):
  return float(sum(map(ord, sample.text)) % 2)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
  config = importlib.import_module("grpojax.recipes.dapo").get_config("tiny")
  config.update(cache_dir=str(tmp_path_factory.mktemp("cache")), verbose=False, steps=9)
  config.rollout.update(slots=6, segment=3, group_size=2, max_tokens=24)
  config.dynamic_sampling.max_tries = 3
  config.mesh.data = 1
  config.reward.accuracy = dict(fn=f"{__name__}:odd")
  return train.prepare(config, tmp_path_factory.mktemp("dapo"))


def test_a_step_that_streams_has_the_groups_of_one_in_rounds(job, monkeypatch):
  """Groups, prompt stream and metrics of five steps, in fewer of the loop's."""
  params = jax.jit(job.model.init)(jax.random.key(3))

  def steps(streams: bool):
    job.data.stream.set_state({"position": 0})
    monkeypatch.setattr(RolloutContext, "streams", streams)
    rollouts = Prefetcher(job.rollout, 0, {})
    for step in range(1, 6):
      job.rollout.counters.clear()
      collected = rollouts.next(step, params, None)
      metrics = collected.metrics | job.rollout.counters
      yield collected.groups, collected.outcomes, metrics, job.data.stream.position

  assert job.rollout.streams
  streamed, tries, work = list(steps(True)), set(), [0, 0]
  for (a, seen, stats, position), (b, all_seen, want, at) in zip(streamed, list(steps(False)), strict=True):
    assert position == at and stats["dynamic_sampling/tries"] == want["dynamic_sampling/tries"]
    assert stats["dynamic_sampling/missing_groups"] == want["dynamic_sampling/missing_groups"]
    assert a.prompts.example == b.prompts.example
    for x, y in zip(*(jax.tree.leaves(g._replace(prompts=g.prompts[:3])) for g in (a, b)), strict=True):
      np.testing.assert_allclose(x, y, atol=1e-5)
    for x, y in zip(seen, all_seen, strict=True):
      np.testing.assert_array_equal(x, y[: len(x)])
    again = score(job.rollout, ask(job.rollout, a.prompts, a.rollout))
    np.testing.assert_array_equal(again.reward, a.scored.reward)  # all at once, or as they ended
    tries.add(want["dynamic_sampling/tries"])
    work = np.add(work, [s["rollout/decode_steps"] for s in (stats, want)])
    needed = stats["num_tokens"] - stats["dynamic_sampling/wasted_tokens"]
    assert needed == want["num_tokens"] - want["dynamic_sampling/wasted_tokens"]
    assert stats["dynamic_sampling/cancelled_groups"] >= 0
  assert len(tries) > 1 and work[0] < work[1], work


def odd_once_asked(count: int, asked: list):
  """Returns `odd` as a judge that answers nobody before it was asked `count` times, in at most a minute."""

  async def judge(sample):
    asked.append(sample)
    async with asyncio.timeout(60):
      while len(asked) < count:
        await asyncio.sleep(0.001)
    return odd(sample)

  return judge


def judged(context, judge):
  first, *others = context.scorer.all
  return context._replace(scorer=rewards.Rewards((first._replace(fn=judge, awaits=True), *others)))


def test_sampling_goes_on_while_a_reward_is_waited_for(job):
  """Nobody is answered before all are asked: waiting for those which ended first would last for ever."""
  params, prompts = jax.jit(job.model.init)(jax.random.key(3)), job.data.stream.next()

  def groups(context):
    own = generate.synced(context, {}, params)
    return generate.generate_and_score(context, generate.start(context, own, params, prompts, 1, 0, 0))

  plain, asked = groups(job.rollout), []
  found = groups(judged(job.rollout, odd_once_asked(plain.rollout.length.size, asked)))
  jax.tree.map(np.testing.assert_array_equal, found, plain)
  assert len(asked) == plain.rollout.length.size > job.rollout.config.rollout.slots


def test_dynamic_sampling_goes_on_while_a_reward_is_waited_for_and_keeps_the_same_groups(job):
  """Nobody is answered before more are asked than a batch has."""
  params, c = jax.jit(job.model.init)(jax.random.key(3)), job.config.rollout
  size = c.prompts * c.group_size

  def collect(context):
    job.data.stream.set_state({"position": 0})
    return Prefetcher(context, 0, {}).next(1, params, None), job.data.stream.position

  (plain, at), asked = collect(job.rollout), []
  found, position = collect(judged(job.rollout, odd_once_asked(size + 1, asked)))
  jax.tree.map(np.testing.assert_array_equal, found.groups, plain.groups)
  assert position == at and found.groups.scored.valid.all() and len(asked) > size


def test_an_evaluation_asks_about_every_batch_before_it_waits(job):
  params = jax.jit(job.model.init)(jax.random.key(3))
  config, asked = job.rollout.config, []
  questions, batch = min(config.eval.prompts, len(job.data.held_out.records)), config.rollout.prompts
  size = -(-questions // batch) * batch * config.eval.samples
  found = evaluate.evaluate(judged(job.rollout, odd_once_asked(size, asked)), params)
  assert found == evaluate.evaluate(job.rollout, params)
  assert len(asked) == size and questions > batch


def test_an_evaluation_of_many_batches_has_the_numbers_of_one_batch_at_a_time(job, monkeypatch):
  """29 questions in batches of 4, the last of which repeats one."""
  params = jax.jit(job.model.init)(jax.random.key(3))
  context = job.rollout._replace(config=copy.deepcopy(job.rollout.config))
  context.config.eval.update(prompts=29)
  engine, steps = context.eval_engine, []

  def counting(state, counters, queue=None):
    yield from engine.stream(state, counters, queue)
    steps.append(counters["rollout/decode_steps"])

  context = context._replace(eval_engine=engine._replace(stream=counting))
  found = [evaluate.evaluate(context, params)]
  monkeypatch.setattr(evaluate, "STREAMED", 9)
  found.append(evaluate.evaluate(context, params))
  assert found[0] == found[1] and 0 < found[0]["eval/pass@1"] < 1
  assert len(steps) == 1 + 8 and steps[0] < sum(steps[1:]), steps


def broken(sample) -> float:
  if len(sample.text) % 2:
    raise RuntimeError("no verdict today")
  return 1.0


def test_an_evaluation_counts_what_got_no_verdict_and_says_why(job, capsys):
  params = jax.jit(job.model.init)(jax.random.key(3))
  scorer = rewards.build(ConfigDict({"accuracy": {"fn": f"{__name__}:broken"}}))
  found = evaluate.evaluate(job.rollout._replace(scorer=scorer), params)
  assert 0 < found["eval/no_verdict"] < 1
  assert found["eval/pass@1"] == pytest.approx(1 - found["eval/no_verdict"])
  assert "RuntimeError('no verdict today')" in capsys.readouterr().out
  assert evaluate.evaluate(job.rollout, params)["eval/no_verdict"] == 0


def test_a_survey_leaves_nothing_to_the_first_step(job, capsys):
  context = job.rollout._replace(config=copy.deepcopy(job.rollout.config), counters=Counter())
  context.config.difficulty.update(kind="ema", offline=2)
  rows = len(job.data.train.records)
  known = curriculum.start(context.config.difficulty, rows, 2, context.config.rollout.max_tokens)
  survey.estimate_difficulty(context, {}, jax.jit(job.model.init)(jax.random.key(3)), known)
  batch = context.config.rollout.prompts
  graded = -(-rows // batch) * batch * 2
  assert not context.counters and list(context.timer.seconds) == ["start"]
  assert f"survey: {graded:,} completions, 0 verdicts are missing" in capsys.readouterr().out


@pytest.mark.slow
def test_an_evaluation_of_games_has_the_same_numbers_whatever_is_played_at_a_time(tmp_path, monkeypatch):
  """5 games, 2 trajectories each: in one slot, and in as many as a training step has, which are more."""
  c = importlib.import_module("grpojax.recipes.gigpo").get_config("tiny_lake")
  c.update(cache_dir=str(tmp_path / "cache"), verbose=False, steps=9)
  c.mesh.data = 1
  c.eval.update(prompts=5, samples=2)
  c.cold_start.steps = 0
  most = min(c.rollout.slots, c.rollout.prompts * c.rollout.group_size)
  found, slots = [], []
  of = turns.build.slots_of
  monkeypatch.setattr(turns.build, "slots_of", lambda *given: slots.append(of(*given)) or slots[-1])
  for number in (1, most):
    c.rollout.slots = number
    job = train.prepare(c, tmp_path / str(number))
    params = jax.jit(job.model.init)(jax.random.key(3))
    found.append(evaluate.evaluate(job.rollout, params))
  assert found[0] == found[1] and found[0]["eval/turns"] > 1
  assert {1, most} <= set(slots), slots


class AnyOrder:
  """A stream of scored groups that end in any order, as `data` says."""

  def __init__(self, data, first, generate):
    self.data, self.generate, self.batches = data, generate, []
    self.groups, self.open = [], set()
    self.context = SimpleNamespace(
      counters={"rollout/sampled_tokens": 0, "rollout/responses": 0}, shards=SINGLE_PROCESS
    )
    self.submit(first)

  def submit(self, prompts):
    self.groups.append(self.generate(prompts, len(self.batches)))
    self.open |= set(range(SIZE * len(self.batches), SIZE * len(self.batches) + SIZE))
    self.batches.append(prompts)

  @property
  def size(self):
    return SIZE

  def gather(self, x):
    return x

  @property
  def hungry(self):
    return not self.open or self.data.draw(st.booleans())

  def __iter__(self):
    while self.open:
      numbers = self.data.draw(st.lists(st.sampled_from(sorted(self.open)), min_size=1, unique=True))
      self.open -= set(numbers)
      yield [(np.array([n]), take(concatenate(self.groups), np.array([n]))) for n in numbers]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_groups_count_in_the_order_of_drawing_whatever_ends_first(data):
  """The rule alone, with groups that end in any order."""
  pattern = data.draw(st.lists(st.booleans(), min_size=3 * SIZE, max_size=3 * SIZE))
  want, outcomes, stats = dynamic_sampling.collect(config(), in_turn(*world(pattern)))
  draw, generate = world(pattern)
  stream, back = AnyOrder(data, draw(), generate), []
  got, seen, found = dynamic_sampling.collect_streaming(config(), stream, draw, back.append)
  for x, y in zip(*(jax.tree.leaves(g._replace(prompts=g.prompts[:3])) for g in (got, want)), strict=True):
    np.testing.assert_array_equal(x, y)
  assert got.prompts.example == want.prompts.example
  tries = found["dynamic_sampling/tries"]
  assert len(stream.batches) - back[0] == stats["dynamic_sampling/tries"] == tries
  assert seen.id.tolist() == outcomes.id[: len(seen.id)].tolist()
  needed = np.flatnonzero(np.cumsum(pattern) >= SIZE)
  assert len(seen.id) == (needed[0] + 1 if needed.size else 3 * SIZE)
  assert found["dynamic_sampling/skipped_prompts"] == SIZE * tries - len(seen.id)
