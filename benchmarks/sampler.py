"""The continuous sampler beside the plain one: useful tokens per second, and memory of the caches.

    python -m benchmarks.sampler

A model of 4 layers, width 128, vocabulary 512, float32, as it is initialised: its tokens are near
uniform, so that 21 ids that end a response make lengths geometric with mean 24, cut at 96, and no id
makes all of them 96.  Every sampler gets the same requests and must return the same tokens.  Timings are
interleaved, one run of each in turn, prefill included; the table has medians of wall time and of the CPU
time of all threads, because the machine may be shared.  Writes benchmarks/results/sampler.json and prints
Markdown.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import workload
from benchmarks.clock import interleaved, said
from benchmarks.setting import keep, setting, where
from benchmarks.workload import G, L, T, V
from grpojax.recipes import base
from grpojax.rollout import sampler
from grpojax.rollout.sampler.engine import ALL
from grpojax.runtime import sharding
from grpojax.types import Prompts

HEAVY = tuple(range(21))  # 21 of 512: a response ends at each token with probability 0.041
NEVER = (V,)


def requests(count: int):
  """Makes `count` prompts of 32 tokens: tokens, lengths, ids."""
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, V, (count, L)).astype(np.int32)
  return tokens, np.full(count, L, np.int32), np.arange(count, dtype=np.int32)


def plain(model, params, eos, prompts: int, at_once: int):
  """Returns a call that samples `prompts` prompts in batches of `at_once`, as long as the longest row."""
  built = sampler.static_batch.build(
    model, group_size=G, max_tokens=T, sampling=sampler.SamplingParams(), eos_ids=eos
  )
  prefill, decode = map(jax.jit, built)
  tokens, length, ids = requests(prompts)

  def run():
    rollouts = []
    for start in range(0, prompts, at_once):
      rows = slice(start, start + at_once)
      prefilled = prefill(params, tokens[rows], length[rows])
      rollouts.append(decode(params, prefilled, jax.random.key(0), ids[rows]))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *rollouts)

  return run


def continuous(model, params, eos, prompts: int, slots: int, segment: int = 0):
  """Returns a call that samples `prompts` prompts in so many slots; with `segment`, in pieces of steps."""
  begin, insert, advance = sampler.continuous.build(
    model, group_size=G, max_tokens=T, sampling=sampler.SamplingParams(), eos_ids=eos, slots=slots
  )
  programs = jax.jit(begin), insert, jax.jit(advance, donate_argnums=2)
  mesh = sharding.make_mesh(base.get_config().mesh)
  run = sampler.engine.continuous_engine(mesh, None, *programs, slots, segment)
  asked = Prompts(*requests(prompts), []), jax.random.key(0)
  return lambda: run.finish(run.start(params, *asked, steps=None if segment else ALL))[0]


def measured(calls: dict, rounds: int) -> dict[str, dict]:
  """Returns medians, and useful tokens per second.  Raises ValueError if tokens differ."""
  first = {name: call() for name, call in calls.items()}
  want = next(iter(first.values()))
  for name, got in first.items():
    if not all(np.array_equal(a, b) for a, b in zip(got[:3], want[:3], strict=True)):
      raise ValueError(f"{name} sampled other tokens.")
  useful = int(want.length.sum())
  timed = interleaved(calls, rounds)
  return {name: t | dict(tokens=useful, tokens_per_second=useful / t["wall"]) for name, t in timed.items()}


def kv_share() -> float:
  """Returns compiled memory of decoding over that of the unshared layout's keys and values alone.

  Decoding is of 2 prompts x 16 samples, prompt 2,048 and response 2,048 tokens, all in slots.
  """
  model, long = workload.model(), 2048
  begin, _, advance = sampler.continuous.build(
    model, group_size=16, max_tokens=long, sampling=sampler.SamplingParams(), eos_ids=NEVER, slots=32
  )
  ints = lambda *s: jax.ShapeDtypeStruct(s, jnp.int32)
  key = jax.eval_shape(lambda: jax.random.key(0))
  carried = jax.eval_shape(begin, model.shapes, ints(2, long), ints(2), ints(2), key)
  loop = jax.jit(advance, donate_argnums=2).lower(model.shapes, *carried, ints())
  memory = loop.compile().memory_analysis()
  used = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
  used -= memory.alias_size_in_bytes  # donated, and written in place
  return used / (32 * sampler.kv_budget.kv_bytes(model.spec, 2 * long))


def table(results: dict[str, dict]) -> str:
  lines = [
    "| workload | sampler | wall (quartiles) | CPU time | useful tokens/s | ratio, wall | ratio, CPU |",
    "|---|---|---|---|---|---|---|",
  ]
  for kind, rows in results.items():
    ours = rows["slots"]
    for name, r in rows.items():
      ratios = f"{r['wall'] / ours['wall']:.2f} | {r['cpu'] / ours['cpu']:.2f}"
      seconds = f"{said(r)} | {r['cpu']:.2f} s"
      lines.append(f"| {kind} | {name} | {seconds} | {r['tokens_per_second']:,.0f} | {ratios} |")
  return "\n".join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--rounds", type=int, default=9)
  args = parser.parse_args()
  model = workload.model()
  params = model.init(jax.random.key(0))
  heavy, fixed = (model, params, HEAVY, 32), (model, params, NEVER, 8)
  results = {
    "heavy tail, 256 requests": {
      "slots": continuous(*heavy, slots=64),
      "slots, segments of 16": continuous(*heavy, slots=64, segment=16),
      "plain, 4 batches of 64": plain(*heavy, at_once=8),
      "plain, one batch of 256": plain(*heavy, at_once=32),
    },
    "all 96 long, 64 requests": {
      "slots": continuous(*fixed, slots=64),
      "slots, segments of 16": continuous(*fixed, slots=64, segment=16),
      "plain, 64": plain(*fixed, at_once=8),
    },
  }
  results = {kind: measured(calls, args.rounds) for kind, calls in results.items()}
  share = kv_share()
  now = setting("benchmarks.sampler") | {"rounds": args.rounds}
  keep("sampler", now | {"workloads": results, "kv_share": share})
  print(table(results))
  print(f"\nMemory of decoding, G = 16, 2k + 2k tokens: {100 * share:.1f} % of the unshared layout's KV.")
  print(f"\n{where(now)}")


if __name__ == "__main__":
  main()
