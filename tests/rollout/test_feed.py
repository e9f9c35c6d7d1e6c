"""Segments, feeding and cancelling: the completions of the plain sampler, as soon as they are there."""

import contextlib
import functools
import importlib
from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import mesh
from test_sampler_slots import EOS, G, P, T, prompts, same, tiny

from grpojax import train
from grpojax.rollout import generate, prefetch, sampler
from grpojax.runtime import sharding
from grpojax.runtime.metrics import Timer
from grpojax.train import run_stats
from grpojax.types import Prompts

S, SEGMENT, SENT = 4, 5, []
DRAWS = [(Prompts(*prompts(seed), []), jax.random.key(seed)) for seed in range(3)]


@functools.cache
def continuous(devices: int):
  """The sampler on so many devices, which read prompts three tokens at a time."""
  model, params = tiny()
  where = mesh(data=devices)
  programs = sampler.continuous.build(
    model, group_size=G, max_tokens=T, sampling=sampler.SamplingParams(), eos_ids=EOS[1], slots=S,
    shards=devices, prefill_chunk=3, kv_sharding=sharding.kv_sharding(where, 2),
  )  # fmt: skip
  rows, everywhere = sharding.batch_sharding(where), sharding.replicated(where)
  prompts, state, status = sampler.continuous.shardings(rows, everywhere, sharding.kv_sharding(where, 2))
  carried = prompts, state, rows
  begin, insert = (jax.jit(fn, out_shardings=carried) for fn in programs[:2])
  advance = jax.jit(programs[2], out_shardings=(state, rows, status), donate_argnums=2)
  send = lambda *args: SENT.append(devices) or advance(*args)
  params = jax.device_put(params, everywhere)
  return sampler.engine.continuous_engine(where, None, begin, insert, send, S, SEGMENT), params


@functools.cache
def expected(draw: int):
  """What the plain sampler makes of a draw."""
  model, params = tiny()
  how = dict(group_size=G, max_tokens=T, sampling=sampler.SamplingParams(), eos_ids=EOS[1])
  build = sampler.static_batch.build(model, **how)
  run = sampler.engine.static_engine(mesh(), None, *map(jax.jit, build))
  return run(params, *DRAWS[draw])[0]


def pieces(devices: int, draws: int, until: int = 99):
  """(numbers, rollout, counts) of feeding so many draws, until that many groups were handed on."""
  run, params = continuous(devices)
  left, counts, queue, got = DRAWS[1:draws], Counter(), sampler.PromptQueue(), []
  with contextlib.closing(run.stream(run.start(params, *DRAWS[0]), counts, queue)) as stream:
    for numbers, rollout in stream:
      got.append((numbers, rollout))
      if sum(len(n) for n, _ in got) >= until:
        break
      if queue.empty and left:
        queue.submit(*left.pop(0))
  numbers = np.concatenate([n for n, _ in got])
  return numbers, jax.tree.map(lambda *x: np.concatenate(x), *(r for _, r in got)), counts


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_whole_in_segments_and_fed_are_the_plain_samplers(devices):
  run, params = continuous(devices)
  whole, counts = run(params, *DRAWS[0])
  same(whole, expected(0))
  parts, again = run.finish(run.start(params, *DRAWS[0]))
  same(parts, whole)
  assert counts == again and counts["rollout/sampled_tokens"] == whole.length.sum()

  numbers, rollout, counts = pieces(devices, 3)
  assert sorted(numbers.tolist()) == list(range(3 * P)) != numbers.tolist()  # short ones first
  want = jax.tree.map(lambda *x: np.concatenate(x)[numbers], *map(expected, range(3)))
  same(rollout, want)
  lengths = sum(d[0].length.sum() for d in DRAWS)
  assert counts["rollout/sampled_tokens"] == rollout.length.sum()
  assert counts["rollout/prompt_tokens"] == lengths <= counts["rollout/prefill_columns"] < 2 * lengths
  assert counts["rollout/responses"] == 3 * P * G
  fewest = sum(expected(d).length.sum() - P * G for d in range(3)) / S
  assert counts["rollout/decode_steps"] < 1.5 * fewest  # slots are fed before they run dry


def test_who_stops_listening_stops_the_sampler():
  SENT.clear()
  numbers, rollout, counts = pieces(1, 3, until=5)
  assert 5 <= len(numbers) < 2 * P
  same(rollout, jax.tree.map(lambda *x: np.concatenate(x)[numbers], *map(expected, range(3))))
  everything = sum(expected(d).length.sum() for d in range(3))
  assert rollout.length.sum() < counts["rollout/sampled_tokens"] < 0.7 * everything
  assert counts["rollout/decode_steps"] == SEGMENT * len(SENT)  # that on its way when it was told counts


def odd(sample):
  return float(sum(map(ord, sample.text)) % 2)


@pytest.fixture(scope="module")
def job(cache, tmp_path_factory):
  config = importlib.import_module("configs.dapo").get_config("tiny")
  config.update(cache_dir=str(cache), verbose=False, steps=9)
  config.rollout.update(slots=6, segment=3, group_size=2, max_tokens=24)
  config.dynamic_sampling.max_tries = 3
  config.mesh.data = 1
  config.reward.accuracy = dict(fn=f"{__name__}:odd")
  return train.prepare(config, tmp_path_factory.mktemp("dapo"))


def test_a_step_that_is_fed_has_the_groups_of_one_in_rounds(job, monkeypatch):
  """Groups, stream and reports of five steps, in fewer of the loop's."""
  params = jax.jit(job.model.init)(jax.random.key(3))
  known = run_stats.start(job.config, len(job.data.train.records))

  def steps(fed: bool):
    job.data.stream.set_state({"position": 0})
    monkeypatch.setattr(prefetch, "feeds", lambda _: fed)
    for step in range(1, 6):
      timer, counts = Timer(), Counter()
      asked = prefetch.ask(job, timer, params, known, step)
      groups, outcomes, stats = prefetch.collect(job, timer, counts, known, asked, step)
      yield groups, outcomes, stats | counts, job.data.stream.position

  assert prefetch.feeds(job)
  fed, tries, work = list(steps(True)), set(), [0, 0]
  for (a, seen, stats, position), (b, all_seen, want, at) in zip(fed, list(steps(False)), strict=True):
    assert position == at and stats["dynamic_sampling/tries"] == want["dynamic_sampling/tries"]
    assert stats["dynamic_sampling/missing_groups"] == want["dynamic_sampling/missing_groups"]
    assert a.prompts.example == b.prompts.example
    for x, y in zip(*(jax.tree.leaves(g._replace(prompts=g.prompts[:3])) for g in (a, b)), strict=True):
      np.testing.assert_allclose(x, y, atol=1e-5)
    for x, y in zip(seen, all_seen, strict=True):
      np.testing.assert_array_equal(x, y[: len(x)])
    again = generate.score(job, Counter(), a.prompts, a.rollout)
    np.testing.assert_array_equal(again.reward, a.scored.reward)  # all at once, or as they ended
    tries.add(want["dynamic_sampling/tries"])
    work = np.add(work, [s["rollout/decode_steps"] for s in (stats, want)])
    needed = stats["num_tokens"] - stats["dynamic_sampling/wasted_tokens"]
    assert needed == want["num_tokens"] - want["dynamic_sampling/wasted_tokens"]
    assert stats["dynamic_sampling/cancelled_groups"] >= 0
  assert len(tries) > 1 and work[0] < work[1], work


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_groups_count_in_the_order_of_drawing_whatever_ends_first(data):
  """The rule alone, with groups that end in any order."""
  from test_dynamic_sampling import P as size
  from test_dynamic_sampling import config, world

  from grpojax.rollout import dynamic_sampling

  pattern = data.draw(st.lists(st.booleans(), min_size=3 * size, max_size=3 * size))
  want, outcomes, stats = dynamic_sampling.collect(config(), *world(pattern))
  draw, ask = world(pattern)
  batches, back, counts = [draw()], [], Counter()

  def graded(more):
    groups, open_ = [dynamic_sampling.Groups(batches[0], *ask(batches[0], 0))], set(range(size))
    while True:
      drawn = data.draw(st.booleans()) or not open_
      if drawn and (batch := more()):
        batches.append(batch)
        groups.append(dynamic_sampling.Groups(batch, *ask(batch, len(groups))))
        open_ |= set(range(size * len(groups) - size, size * len(groups)))
      if not open_:
        return
      numbers = data.draw(st.lists(st.sampled_from(sorted(open_)), min_size=1, unique=True))
      open_ -= set(numbers)
      yield np.array(numbers), dynamic_sampling.take(dynamic_sampling.concatenate(groups), np.array(numbers))

  got, seen, fed = dynamic_sampling.feed(config(), batches[0], lambda _: draw(), graded, back.append, counts)
  for x, y in zip(*(jax.tree.leaves(g._replace(prompts=g.prompts[:3])) for g in (got, want)), strict=True):
    np.testing.assert_array_equal(x, y)
  assert got.prompts.example == want.prompts.example
  assert len(batches) - back[0] == stats["dynamic_sampling/tries"] == fed["dynamic_sampling/tries"]
  assert seen.id.tolist() == outcomes.id[: len(seen.id)].tolist()
  needed = np.flatnonzero(np.cumsum(pattern) >= size)
  assert len(seen.id) == (needed[0] + 1 if needed.size else 3 * size)
  assert fed["dynamic_sampling/skipped_prompts"] == size * fed["dynamic_sampling/tries"] - len(seen.id)
