"""Decoding and updating Qwen2.5 shapes on one accelerator, beside what the same device can do at most.

    python -m benchmarks.gpu                        # all of it, in 9 minutes at most
    python -m benchmarks.gpu --only decode:7B update:7B
    python -m benchmarks.gpu --dry-run              # the same code at tiny sizes, on a CPU too

Random weights in bfloat16, made on the device.  Decoding: prompts of 512 tokens, 16 samples each of
2,048 tokens, as many slots as memory holds; its necessary bytes are the weights and the live keys and
values of every token step.  Updating: 16 rows of 4,096 tokens; its necessary work is forward and
backward, recomputation not counted.  Both are the programs of training.  Each part is a process, so
that none inherits memory; parts that no time is left for are named.  Writes benchmarks/results/gpu.json,
and the table into docs/performance.md.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import ends
from benchmarks.setting import ROOT, keep, report, setting, where
from configs import base
from grpojax import memory, metrics, models, objective, rollouts, sampler, setup, sharding, train
from grpojax.batch import Prompts, Rollout, Scored
from grpojax.models import spec as spec_lib

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
         "intermediate_size", "tie_word_embeddings")  # fmt: skip
MODELS = {  # Qwen2.5: https://arxiv.org/abs/2412.15115, and the vocabulary
  "0.5B": ((896, 24, 14, 2, 64, 4864, True), 151_936),
  "1.5B": ((1536, 28, 12, 2, 128, 8960, True), 151_936),
  "7B": ((3584, 28, 28, 4, 128, 18944, False), 152_064),
}
TINY = (32, 2, 4, 2, 8, 64, True), 64
PARTS = ["limits", *(f"{what}:{name}" for name in MODELS for what in ("decode", "update"))]
TARGETS = {"decode": 0.7, "update": 0.5}


class Work(NamedTuple):
  """How much of it; the numbers of --dry-run are other ones."""

  group_size: int = 16
  prompt: int = 512  # tokens
  new: int = 2048
  prompts: int = 64  # at most, where memory holds more
  rows: int = 8  # microbatches of the update, of two rows each
  half: int = 2048  # prompt and response of an updated row
  matmul: int = 8192
  copy: int = 2**31  # elements of 2 bytes
  memory: float = 0.0  # bytes of the device; 0: what it says


DRY = Work(4, 8, 8, 2, 2, 8, 128, 2**16, 1e9)


def build(name: str, dry: bool, param_dtype: str, **rollout):
  """A job without data, in which everything that runs on the device is a run's own."""
  sizes, vocab = TINY if dry else MODELS[name]
  c = base.get_config()
  c.model.update(dict(zip(SIZES, sizes, strict=True)), dtype="bfloat16", rope_theta=1e6)
  prompt = rollout.pop("prompt")
  c.data.prompt_budget = prompt
  c.rollout.update(rollout)
  c.updates_per_rollout, c.microbatches = 1, rollout["prompts"]
  c.logprob_chunk = 128
  c.optimizer.learning_rate = 1e-6
  c.mesh.data = 1
  mesh = sharding.make_mesh(c.mesh)
  spec = replace(spec_lib.from_config(c.model, vocab), param_dtype=param_dtype)
  model = models.from_spec(spec, mesh)
  programs = ends.programs(c, model, None, mesh, (vocab,))  # every response takes all tokens
  ids = np.arange(rollout["prompts"], dtype=np.int32)
  data = SimpleNamespace(train=SimpleNamespace(ids=ids, records=ids))
  goal = objective.build(c.objective)
  job = setup.Job(c, Path(), None, data, mesh, model, goal, programs, None, first_pass=False)
  tokens = np.random.default_rng(0).integers(0, vocab, (len(ids), prompt)).astype(np.int32)
  return job, Prompts(tokens, np.full(len(ids), prompt, np.int32), ids, [{}] * len(ids))


def initial(job):
  """Random parameters, made where they live."""
  where = sharding.param_shardings(job.mesh, job.model.axes, job.model.shapes)
  return jax.jit(job.model.init, out_shardings=where)(jax.random.key(0))


def limits(work: Work) -> dict:
  """What the device does at most: bytes a second of a copy, FLOPs a second of a large product."""
  x = jnp.zeros(work.copy, jnp.bfloat16)
  copy = jax.jit(lambda x: x + 1)
  n = work.matmul
  a = jnp.ones((n, n), jnp.bfloat16)
  product = jax.jit(lambda a: jax.lax.fori_loop(0, 10, lambda _, x: a @ x, a))
  return dict(
    bytes_per_second=2 * x.nbytes / best(lambda: copy(x)),
    flops_per_second=10 * 2 * n**3 / best(lambda: product(a)),
    device=jax.devices()[0].device_kind,
  )


def best(call, times: int = 10) -> float:
  """Seconds of the fastest of so many calls, after one that compiles."""
  seconds = []
  for _ in range(times + 1):
    start = time.perf_counter()
    jax.block_until_ready(call())
    seconds.append(time.perf_counter() - start)
  return min(seconds[1:])


def device_memory(work: Work) -> float:
  return work.memory or jax.devices()[0].memory_stats()["bytes_limit"]


def sizes_of(model: models.Model) -> tuple[int, int]:
  """Parameters of the layers, and of the product that makes logits; a table that is only read is neither."""
  count = {name: sum(x.size for x in jax.tree.leaves(leaf)) for name, leaf in model.shapes.items()}
  head = count.pop("embedding")
  return sum(count.values()) - count.get("head", 0), head


def decode(name: str, work: Work, dry: bool) -> dict:
  """One wave of samples that fills the slots; what it takes after compilation, prefill included."""
  sizes = dict(group_size=work.group_size, max_tokens=work.new, prompt=work.prompt)
  job, _ = build(name, dry, "bfloat16", prompts=1, slots=work.group_size, **sizes)
  spec, (body, head) = job.model.spec, sizes_of(job.model)
  weights = 2 * (body + head)
  kv = lambda columns: sampler.budget.kv_bytes(spec, columns)  # noqa: E731
  logits = 24 * spec.vocab_size  # of a slot: float32, and the sampler's copies of them
  of_prompt = kv(work.prompt) + work.group_size * (kv(work.new - 1) + logits)
  room = 0.85 * device_memory(work) - weights * (1 if spec.tie_word_embeddings else 1.5)
  prompts = min(work.prompts, int(room // of_prompt))
  if prompts < 1:
    return dict(skipped="one prompt and its samples do not fit")
  slots = prompts * work.group_size
  job, asked = build(name, dry, "bfloat16", prompts=prompts, slots=slots, **sizes)
  params, key = initial(job), jax.random.key(1)
  start, seconds = time.perf_counter(), []
  for _ in range(3):  # the first compiles; another only if there is time for it
    began = time.perf_counter()
    rollout, _ = job.programs.sample(params, asked, key)
    seconds.append(time.perf_counter() - began)
    if len(seconds) > 1 and time.perf_counter() - start > 60:
      break
  assert (rollout.length == work.new).all()
  steps = work.new - 1  # the first token comes from prefill
  live = prompts * kv(work.prompt) * steps + slots * kv(1) * steps * (steps + 1) // 2
  took = min(seconds[1:])
  return dict(
    slots=slots, seconds=took, tokens_per_second=slots * work.new / took, step_ms=1e3 * took / work.new,
    necessary_bytes=weights * steps + live, compile_seconds=seconds[0] - took,
  )  # fmt: skip


def update(name: str, work: Work, dry: bool) -> dict:
  """Updates of one batch; parameters and optimiser in float32 where that fits, else in bfloat16."""
  sizes, total = dict(group_size=2, max_tokens=work.half, prompt=work.half), device_memory(work)
  job, prompts = build(name, dry, "float32", prompts=work.rows, slots=1, **sizes)
  body, head = sizes_of(job.model)
  parameters = sum(x.size for x in jax.tree.leaves(job.model.shapes))
  dtype = "float32"
  if 16 * parameters > 0.6 * total:  # parameters, gradients, two moments
    dtype = "bfloat16"
    job, prompts = build(name, dry, dtype, prompts=work.rows, slots=1, **sizes)
  P, G, T = work.rows, 2, work.half
  rng = np.random.default_rng(0)
  rollout = Rollout(
    rng.integers(0, job.model.spec.vocab_size, (P, G, T)).astype(np.int32),
    np.full((P, G), T, np.int32), np.zeros((P, G), bool), np.full((P, G, T), -9.0, np.float32),
  )  # fmt: skip
  reward = rng.random((P, G)).astype(np.float32)
  groups = rollouts.Groups(prompts, rollout, Scored(reward, reward, reward >= 0, {}, {}))
  timer, known = metrics.Timer(), memory.start(job.config, P)
  state = job.programs.fresh(initial(job))
  start, seconds = time.perf_counter(), []
  for _ in range(5):  # the first compiles
    outcomes = rollouts.outcomes_of([groups])
    dealt, _ = train.compare(job, timer, state.params, None, known, groups, outcomes, 0.5)
    jax.block_until_ready(dealt)
    began = time.perf_counter()
    state, learned = train.learn(job, state, {}, known, dealt)
    jax.block_until_ready((state, learned))
    seconds.append(time.perf_counter() - began)
    if len(seconds) > 1 and time.perf_counter() - start > 60:
      break
  rows, length, spec = P * G, 2 * work.half, job.model.spec
  attention = 2 * spec.num_hidden_layers * spec.num_attention_heads * spec.head_dim * length**2  # causal
  forward = rows * (2 * body * length + 2 * head * T + attention)
  took = min(seconds[1:])
  return dict(
    rows=rows, seconds=took, tokens_per_second=rows * length / took, dtype=dtype,
    necessary_flops=3 * forward, compile_seconds=seconds[0] - took,
  )  # fmt: skip


def one(part: str, dry: bool) -> dict:
  what, _, name = part.partition(":")
  work = DRY if dry else Work()
  try:
    return limits(work) if what == "limits" else dict(decode=decode, update=update)[what](name, work, dry)
  except jax.errors.JaxRuntimeError as error:  # out of memory, for one
    return dict(skipped=f"{str(error).splitlines()[0]:.120}")


def table(results: dict) -> str:
  peak = results["limits"]
  lines = [
    f"{peak['device']}: copies {peak['bytes_per_second'] / 1e12:.2f} TB/s, products in bfloat16 "
    f"{peak['flops_per_second'] / 1e12:.0f} TFLOP/s, both measured.\n",
    "| part | size | seconds | tokens/s | share of the device's limit | target | |",
    "|---|---|---|---|---|---|---|",
  ]
  for part, r in results.items():
    what = part.split(":")[0]
    if what == "limits":
      continue
    if "skipped" in r:
      lines.append(f"| {part} | not run: {r['skipped']} | | | | | |")
      continue
    size = f"{r['slots']} slots" if what == "decode" else f"{r['rows']} rows, {r['dtype']}"
    kind = "bytes" if what == "decode" else "flops"
    share = r[f"necessary_{kind}"] / r["seconds"] / peak[f"{kind}_per_second"]
    met = "reached" if share >= TARGETS[what] else "**not reached**"
    rate = f"{r['tokens_per_second']:,.0f}"
    lines.append(
      f"| {part} | {size} | {r['seconds']:.2f} | {rate} | {share:.2f} | ≥ {TARGETS[what]} | {met} |"
    )
  return "\n".join(lines)


def collect(parts: list[str], dry: bool, seconds: float) -> dict:
  """part -> what its own process found."""
  end, results = time.monotonic() + seconds, {}
  for part in ["limits", *(part for part in parts if part != "limits")]:
    command = [sys.executable, "-m", "benchmarks.gpu", f"--part={part}", *(["--dry-run"] if dry else [])]
    left = end - time.monotonic()
    try:
      done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=max(left, 1))
    except subprocess.TimeoutExpired:
      results[part] = dict(skipped="no time was left")
      continue
    if done.returncode:
      results[part] = dict(skipped=f"{done.stderr.strip().splitlines()[-1]:.120}")
    else:
      results[part] = json.loads(done.stdout.splitlines()[-1])
    print(f"{part}: {results[part]}", file=sys.stderr)
  return results


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
  parser.add_argument("--seconds", type=float, default=520)
  parser.add_argument("--dry-run", action="store_true")
  parser.add_argument("--part", choices=PARTS, help="one part in this process, for the driver")
  args = parser.parse_args(argv)
  if args.part:
    print(json.dumps(one(args.part, args.dry_run)))
    return
  results = collect(args.only, args.dry_run, args.seconds)
  now = setting("benchmarks.gpu")
  text = f"{table(results)}\n\n{where(now)}"
  if args.dry_run:
    print(text)
    return
  keep("gpu", now | dict(parts=results))
  report("gpu", text)


if __name__ == "__main__":
  main()
