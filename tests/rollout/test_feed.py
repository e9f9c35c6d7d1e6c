"""Segments, feeding and cancelling: the completions of the plain sampler, as soon as they are there."""

import contextlib
import functools
from collections import Counter

import jax
import numpy as np
import pytest
from model_folders import mesh
from test_sampler_slots import EOS, G, P, T, prompts, same, tiny

from grpojax.rollout import sampler
from grpojax.runtime import sharding
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
  return sampler.engine.continuous_engine(where, None, begin, insert, send, None, S, SEGMENT), params


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


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
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


@pytest.mark.slow
def test_who_stops_listening_stops_the_sampler():
  SENT.clear()
  numbers, rollout, counts = pieces(1, 3, until=5)
  assert 5 <= len(numbers) < 2 * P
  same(rollout, jax.tree.map(lambda *x: np.concatenate(x)[numbers], *map(expected, range(3))))
  everything = sum(expected(d).length.sum() for d in range(3))
  assert rollout.length.sum() < counts["rollout/sampled_tokens"] < 0.7 * everything
  assert counts["rollout/decode_steps"] == SEGMENT * len(SENT)  # that on its way when it was told counts
