"""Trains the cold start, supervised on the task's own demonstrations; cached by all that decides it."""

import contextlib
import hashlib
import json
import os
import time
from functools import partial
from importlib import metadata
from pathlib import Path

import jax
from ml_collections import ConfigDict
from orbax.checkpoint import v1 as ocp

from grpojax.data import pipeline
from grpojax.learner import logprobs, optimizer, rows
from grpojax.learner.state import make_init
from grpojax.models import Model
from grpojax.runtime import (
  checksums,
  console,
  lock,
  processes,
  sharding,
  signals,
  storage,
  watchdog,
)  # fmt: skip
from grpojax.runtime.metrics import Writer
from grpojax.train import supervised
from grpojax.train.supervised import Demonstrations

OPTIMIZER = ConfigDict(
  dict(fn="muon", b1=0.9, b2=0.95, momentum=0.95, weight_decay=0.0, clip_norm=1.0, state_dtype="float32")
)
# Raise it when the same config and demonstrations give other parameters: by another initialisation, forward
# pass, loss, optimizer, schedule, mask or order of the rows.  A new name or comment is no reason.
VERSION = 1
LIBRARIES = ("jax", "jaxlib", "optax", "numpy", "flax", "grain")  # whose versions decide the numbers too


def fingerprint(config: ConfigDict, model: Model, split, tokenizer) -> str:
  """Returns a hash of all that decides the cold start's parameters; what only rounds them is not in it."""
  names, shapes = checksums.paths(model.shapes), jax.tree.leaves(model.shapes)
  how = [] if split.split_special_tokens else ["special tokens"]
  if split.records[0].get("episode"):
    how.append(f"observations of {config.env.observation_tokens} tokens")
    how += [f"memory of {config.env.memory} turns"] if config.env.memory else []
  spec = config.model.to_dict()
  if spec["head_dtype"] in ("", spec["dtype"]):
    del spec["head_dtype"]  # the head's products are what they are without the key
  decides = {
    "version": VERSION,
    "libraries": {name: metadata.version(name) for name in LIBRARIES},
    "objective": supervised.OBJECTIVE.to_dict(),
    "optimizer": OPTIMIZER.to_dict(),
    "model": spec,
    "parameters": {name: f"{x.dtype}{list(x.shape)}" for name, x in zip(names, shapes, strict=True)},
    "cold_start": config.cold_start.to_dict(),
    "max_tokens": config.rollout.max_tokens,
    "demonstrations": [split.budget, pipeline.fingerprint(split), *how],
    "tokenizer": [tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.backend_tokenizer.to_str()],
  }
  return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def cold_start(config: ConfigDict, model: Model, mesh, split, tokenizer, writer: Writer) -> dict:
  """Collective: returns the parameters after SFT, sharded over `mesh`; from the cache where they are there.

  One start at a time makes a cold start; another one of the same waits, and takes it.
  """
  key = fingerprint(config, model, split, tokenizer)
  cache = storage.cache(config.cache_dir, "cold_start") / key
  if not config.cold_start.steps:
    return train(config, model, mesh, split, tokenizer, writer)
  params = _cached(cache, key, model, mesh)
  if params is None:
    with contextlib.ExitStack() as stack:
      wait = partial(lock.hold, cache.with_suffix(".lock"), f"cold start {cache}", wait=True)
      processes.on_process_0(lambda: stack.enter_context(wait()))
      params = _cached(cache, key, model, mesh)  # another start may have made it meanwhile
      if params is None:
        params = train(config, model, mesh, split, tokenizer, writer)
        ocp.save(cache, params, custom_metadata={"key": key, "digests": checksums.of_leaves(params)})
  return params


def _cached(cache: Path, key: str, model: Model, mesh) -> dict | None:
  """Collective: returns the cached parameters, None where there are none; damaged ones are moved aside."""
  if processes.any_process(not cache.exists()):  # all read, or all train
    return None
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  params, why = None, ""
  try:
    with signals.heard():
      kept = ocp.metadata(cache).custom_metadata or {}
      params = ocp.load(cache, sharding.abstract(model.shapes, where))
      found = checksums.of_leaves(params)
    changed = [name for name, sum in found.items() if kept["digests"].get(name) != sum]
    if changed or kept["key"] != key:
      why = "it is not what was saved" if changed else f"it is cold start {kept['key']}"
  except (jax.errors.JaxRuntimeError, MemoryError):  # no room here says nothing of the files
    raise
  except Exception as error:  # whatever Orbax and its storage make of a damaged file
    why = f"{error!r:.300}"
  why = next(filter(None, processes.gather_texts(why)), "")
  if not why:
    console.say(f"cold start: from {cache}")
    return params
  aside = cache.with_name(f"{cache.name}-damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


  def move():
    with contextlib.suppress(FileNotFoundError):  # another start was first
      cache.rename(aside)

  processes.on_process_0(move)
  console.say(f"the cold start in the cache is damaged ({why}); it is now {aside}, and is trained anew")
  return None


def train(config: ConfigDict, model: Model, mesh, split, tokenizer, writer: Writer) -> dict:
  """Returns the parameters after `config.cold_start.steps` updates of SFT from random parameters."""
  c, env = config.cold_start, config.env
  schedule = supervised.cosine(c.learning_rate, c.warmup_steps, c.steps)
  tx = optimizer.make_optimizer(OPTIMIZER, schedule, model.axes)
  logp_fn = logprobs.make_logp(
    model, response_budget=config.rollout.max_tokens, temperature=1.0, chunk=config.logprob_chunk
  )
  update = supervised.program("cold-start update", model, mesh, rows.single(logp_fn), tx, schedule)
  init = jax.jit(make_init(model, tx), out_shardings=optimizer.state_shardings(model, tx, mesh))
  state = init(jax.random.key(c.seed))
  how = env.observation_tokens, env.memory
  shown = Demonstrations(config, split, tokenizer, c.batch_size, c.seed, *how)
  begin = lambda step: watchdog.progress(f"taking step {step} of the cold start")
  with console.bar(c.steps, 0, config.verbose, "cold start") as progress:
    steps = range(1, c.steps + 1)
    objective, batch = supervised.of_demonstrations(shown, mesh)
    tokens = 0  # learned since the last record
    for step, moved, metrics, counts in supervised.updates(update, objective, batch, state, {}, steps, begin):
      state, tokens = moved, tokens + counts["num_tokens"]
      if step % 20 == 0 or step == c.steps:
        metrics = {k: float(v) for k, v in jax.device_get(metrics).items()}
        if metrics["update/nonfinite"]:
          raise FloatingPointError(
            f"cold start, step {step}: the update was not finite; lower config.cold_start.learning_rate = "
            f"{c.learning_rate}"
          )
        record = {k: metrics[k] for k in ("loss", "grad_norm", "entropy")}
        writer.write("cold_start", step, record | {"num_tokens": tokens})
        tokens = 0
        if not progress.disable or step % 200 == 0:
          console.advance(progress, step, {"cold_start/loss": metrics["loss"]}, "cold start")
  return state.params
