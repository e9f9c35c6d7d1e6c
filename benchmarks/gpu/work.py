"""The parts of `python -m benchmarks.gpu`: limits, decoding, updates, whole steps.

A job without data, in which everything that runs on the device is a run's own.
"""

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from benchmarks import ends
from grpojax import models, objective
from grpojax.config.overrides import changed
from grpojax.learner import batching, logprobs, packing
from grpojax.learner.rows import pack_spec
from grpojax.models import kernels
from grpojax.models import spec as spec_lib
from grpojax.recipes import base
from grpojax.rollout import sampler
from grpojax.runtime import sharding
from grpojax.tools.podcheck import known
from grpojax.train import programs as programs_lib
from grpojax.train.auto import machine
from grpojax.train.auto.choose import accelerated
from grpojax.types import Groups, Prompts, Rollout, Scored

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
         "intermediate_size", "tie_word_embeddings")  # fmt: skip
QWEN = {name: known.MODELS[f"Qwen2.5-{name}"] for name in ("0.5B", "1.5B", "7B")}
QWEN = {name: c | dict(head_dim=c["hidden_size"] // c["num_attention_heads"]) for name, c in QWEN.items()}
MODELS = {name: (tuple(c[key] for key in SIZES), c["vocab_size"]) for name, c in QWEN.items()}
TINY = (32, 2, 4, 2, 8, 64, True), 64


class Work(NamedTuple):
  """Sizes of the work; --dry-run has smaller ones."""

  group_size: int = 16
  prompt: int = 512  # tokens
  new: int = 2048
  prompts: int = 64  # at most, where memory holds more
  rows: int = 8  # microbatches of the update, of two rows each
  half: int = 2048  # prompt and response of an updated row
  step_prompts: int = 4  # of a whole step
  matmul: int = 8192
  copy: int = 2**31  # elements of 2 bytes
  memory: float = 0.0  # bytes of the device; 0: what it says


class Device(NamedTuple):
  """The part of a run that works on the device."""

  config: ConfigDict
  mesh: Mesh
  model: models.Model
  objective: objective.Objective
  programs: programs_lib.Programs
  pack: packing.PackSpec | None


STEPS = 2  # of those that are timed whole
DRY = Work(4, 8, 8, 2, 2, 8, 2, 128, 2**16, 1e9)


def build(name: str, dry: bool, param_dtype: str, **rollout):
  """Returns (Device, Prompts): everything that runs on the device is a run's own; there is no data.

  Attention, pieces, remat and chunks are those of a run that leaves them open.
  """
  sizes, vocab = TINY if dry else MODELS[name]
  c = base.get_config()
  c.model.update(dict(zip(SIZES, sizes, strict=True)), dtype="bfloat16", rope_theta=1e6)
  prompt = rollout.pop("prompt")
  c.data.prompt_budget = prompt
  c.rollout.update(rollout)
  c.updates_per_rollout = 1
  c.update(microbatches=0, logprob_chunk=0, remat="auto")
  c.optimizer.learning_rate = 1e-6
  c.mesh.data = 1
  mesh = sharding.make_mesh(c.mesh)
  spec = replace(spec_lib.from_config(c.model, vocab), param_dtype=param_dtype)
  model = models.from_spec(spec, mesh)._replace(attention=kernels.choose(c.attention, spec, mesh)[0])
  c = changed(c, accelerated(c, machine.here(), model, mesh)[1])
  model = model._replace(remat=c.remat)
  programs = ends.programs(c, model, None, mesh, (vocab,))  # every response takes all tokens
  ids = np.arange(rollout["prompts"], dtype=np.int32)
  job = Device(c, mesh, model, objective.build(c.objective), programs, pack_spec(c, model, mesh))
  tokens = np.random.default_rng(0).integers(0, vocab, (len(ids), prompt)).astype(np.int32)
  return job, Prompts(tokens, np.full(len(ids), prompt, np.int32), ids, [{}] * len(ids))


def initial(job):
  """Makes random parameters where they live."""
  where = sharding.param_shardings(job.mesh, job.model.axes, job.model.shapes)
  return jax.jit(job.model.init, out_shardings=where)(jax.random.key(0))


def limits(work: Work) -> dict:
  """Measures the device's limits: bytes a second of a copy, FLOPs a second of a large product."""
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
  """Returns seconds of the fastest of so many calls, after one that compiles."""
  seconds = []
  for _ in range(times + 1):
    start = time.perf_counter()
    jax.block_until_ready(call())
    seconds.append(time.perf_counter() - start)
  return min(seconds[1:])


def device_memory(work: Work) -> float:
  return work.memory or jax.devices()[0].memory_stats()["bytes_limit"]


def sizes_of(model: models.Model) -> tuple[int, int]:
  """Returns parameters of the layers, and of the product that makes logits; a mere table is neither."""
  count = {name: sum(x.size for x in jax.tree.leaves(leaf)) for name, leaf in model.shapes.items()}
  head = count.pop("embedding")
  return sum(count.values()) - count.get("head", 0), head


def decode(name: str, work: Work, dry: bool) -> dict:
  """Measures one wave of samples that fills the slots, after compilation, prefill included."""
  sizes = dict(group_size=work.group_size, max_tokens=work.new, prompt=work.prompt)
  job, _ = build(name, dry, "bfloat16", prompts=1, slots=work.group_size, **sizes)
  spec, (body, head) = job.model.spec, sizes_of(job.model)
  weights = 2 * (body + head)
  kv = lambda columns: sampler.kv_budget.kv_bytes(spec, columns)
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
  """Measures updates of one batch; parameters and optimizer in float32 where that fits, else bfloat16."""
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
    np.full((P, G), T, np.int32), np.zeros((P, G), bool), *np.full((2, P, G, T), -9.0, np.float32),
  )  # fmt: skip
  groups = graded(prompts, rollout, rng.random((P, G)))
  state = job.programs.fresh(initial(job))
  start, seconds = time.perf_counter(), []
  for _ in range(5):  # the first compiles
    dealt = compared(job, state.params, groups)
    began = time.perf_counter()
    state = learned(job, state, dealt)
    seconds.append(time.perf_counter() - began)
    if len(seconds) > 1 and time.perf_counter() - start > 60:
      break
  L, spec = work.half, job.model.spec
  tokens = P * (L + G * T)  # a prompt once
  pairs = P * (L**2 / 2 + G * T * (L + T / 2))
  attention = 4 * spec.num_hidden_layers * spec.num_attention_heads * spec.head_dim * pairs
  forward = 2 * body * tokens + 2 * head * P * G * T + attention
  took = min(seconds[1:])
  return dict(
    rows=P * G, seconds=took, tokens_per_second=P * G * T / took, dtype=dtype, necessary_flops=3 * forward,
    compile_seconds=seconds[0] - took, attention=job.model.attention, remat=job.config.remat,
    microbatches=job.config.microbatches, logprob_chunk=job.config.logprob_chunk,
  )  # fmt: skip


def step(name: str, work: Work, dry: bool) -> dict:
  """Measures whole steps of one update; parameters and optimizer in bfloat16."""
  sizes = dict(group_size=work.group_size, max_tokens=work.new, prompt=work.prompt)
  slots = work.step_prompts * work.group_size
  job, prompts = build(name, dry, "bfloat16", prompts=work.step_prompts, slots=slots, **sizes)
  state, seconds = job.programs.fresh(initial(job)), []
  for number in range(1 + STEPS):  # the first compiles
    began = time.perf_counter()
    rollout, _ = job.programs.sample(state.params, prompts, jax.random.key(number))
    groups = graded(prompts, rollout, (rollout.tokens % 2 == 0).mean(-1))
    state = learned(job, state, compared(job, state.params, groups))
    seconds.append(time.perf_counter() - began)
  took = float(np.median(seconds[1:]))
  return dict(rows=slots, seconds=took, tokens_per_second=slots * work.new / took, dtype="bfloat16")


def in_trl(name: str, work: Work, dry: bool, python: str) -> dict:
  """Measures the same steps in TRL, in its own environment."""
  sizes, vocab = TINY if dry else MODELS[name]
  asked = dict(zip(SIZES, sizes, strict=True)) | dict(
    vocab_size=vocab, prompts=work.step_prompts, group_size=work.group_size, prompt=work.prompt,
    new=work.new, steps=STEPS,
  )  # fmt: skip
  script = [python, str(Path(__file__).with_name("on_trl.py")), json.dumps(asked)]
  done = subprocess.run(script, capture_output=True, text=True)
  if done.returncode:
    return dict(skipped=f"{done.stderr.strip().splitlines()[-1]:.120}")
  found, rows = json.loads(done.stdout.splitlines()[-1]), work.step_prompts * work.group_size
  took = float(np.median(found["seconds"]))
  return dict(
    rows=rows, seconds=took, tokens_per_second=rows * work.new / took, dtype="bfloat16",
    versions=found["versions"], device=found["device"],
  )  # fmt: skip


def graded(prompts: Prompts, rollout: Rollout, reward) -> Groups:
  reward = np.asarray(reward, np.float32)
  return Groups(prompts, rollout, Scored(reward, reward, reward >= 0, {}, {}))


def compared(job, params, groups) -> list:
  """Returns the optimiser batches of these groups with their log-probs."""
  batches = batching.make_batches(job.config, job.mesh, job.pack, groups, None)
  return jax.block_until_ready(logprobs.add_logprobs(job.programs.logp, params, None, batches, True))


def learned(job, state, batches):
  """Returns the learner's state after an update by each batch."""
  objective = sharding.everywhere(job.mesh, job.objective)
  for batch in batches:
    state, _ = job.programs.update(state, objective, batch, {})
  return jax.block_until_ready(state)


def one(part: str, dry: bool, trl: str = "") -> dict:
  what, _, name = part.partition(":")
  work = DRY if dry else Work()
  try:
    if what == "limits":
      return limits(work)
    if what == "trl":
      return in_trl(name, work, dry, trl)
    return dict(decode=decode, update=update, step=step)[what](name, work, dry)
  except jax.errors.JaxRuntimeError as error:  # out of memory, for one
    return dict(skipped=f"{str(error).splitlines()[0]:.120}")
