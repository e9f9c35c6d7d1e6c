"""Cost of each variant beside plain PPO-clip, and the share of an update that is the objective.

    python -m benchmarks.objectives                     # all recipes, all list functions
    python -m benchmarks.objectives --only gtpo luspo --rounds 40

One jitted program per variant: `prepare`, `loss`, and the gradients by log π and entropy, in float32.
Each timing is paired with one of the reference just before it, the variants take turns, and the table
has medians of these ratios: the machine may be busy, but it is equally busy for both.  Writes
benchmarks/results/objectives.json and prints Markdown.
"""

import argparse
import importlib
import inspect
import time

import jax
import numpy as np

from benchmarks.setting import keep, setting, where
from grpojax import models
from grpojax import objective as objective_lib
from grpojax.data import text
from grpojax.learner import logprobs, optimizer, rows
from grpojax.learner.state import make_init
from grpojax.learner.update import make_update
from grpojax.objective.build import BESIDE, LISTS, functions, knobs_of
from grpojax.recipes import base
from grpojax.tools.variants import recipes
from grpojax.types import ACTION, PADDING, Batch, Turns

REFERENCE = "PPO-clip, token mean"
TURNS = 4  # of every trajectory


def variants() -> dict[str, objective_lib.Objective]:
  """Returns the reference, every recipe, and GRPO without KL with one function of a list added to it."""
  plain = base.get_config().objective
  plain.aggregate = dict(fn="token_mean")
  found = {REFERENCE: objective_lib.build(plain)}
  for row in recipes():
    config = importlib.import_module(f"grpojax.recipes.{row['recipe']}").get_config()
    found[row["recipe"]] = objective_lib.build(config.objective)
  dual = base.get_config().objective
  dual.surrogate = dict(fn="dual_clip", low=0.2, high=0.2, floor=3.0)
  found["dual_clip"] = objective_lib.build(dual)
  for slot in LISTS:
    for name, fn in functions(slot).items():
      o = base.get_config().objective
      needed = [key for key, knob in knobs_of(fn).items() if knob.default is inspect.Parameter.empty]
      beside = {key: "actions" if key == "stream" else 0.1 for key in BESIDE.get(slot, ())}
      o[slot].it = dict(fn=name) | dict.fromkeys(needed, 0.1) | beside
      found[f"{slot}.{name}"] = objective_lib.build(o)
  return found


def make_batch(P: int, G: int, T: int, seed: int = 0) -> tuple[Batch, np.ndarray, np.ndarray]:
  """Makes a ragged batch with every field that some variant reads, and log π and entropy of π_θ."""
  rng = np.random.default_rng(seed)
  single = lambda x: x.astype(np.float32)
  noise = lambda scale: single(rng.normal(0, scale, (P, G, T)))
  accuracy = single(rng.integers(0, 2, (P, G)))
  old = single(-rng.exponential(0.5, (P, G, T)))
  length = rng.integers(T // 8, T + 1, (P, G))
  on = np.arange(T) < length[..., None]
  batch = Batch(
    mask=single(on),
    length=length.astype(np.int32),
    reward=accuracy,
    accuracy=accuracy,
    valid=np.ones((P, G), bool),
    ended=rng.uniform(size=(P, G)) < 0.9,
    sampler_logp=old + noise(0.02),
    old_logp=old,
    ref_logp=old + noise(0.1),
    teacher_logp=old + noise(0.5),
    divergence=np.abs(noise(0.5)),
    entropy=single(rng.exponential(0.3, (P, G, T))),
    turns=Turns(
      index=np.where(on, np.arange(T) * TURNS // length[..., None], -1).astype(np.int32),
      count=np.full((P, G), TURNS, np.int32),
      reward=single(rng.integers(0, 2, (P, G, TURNS))),
      anchor=rng.integers(0, 4, (P, G, TURNS)).astype(np.int32),
      invalid=rng.integers(0, 2, (P, G, TURNS)) > 0,
    ),
    extra=dict(
      baseline=single(np.full((P, G), 0.5)), moment=single(np.full((P, G), 0.25)),
      part=np.stack([accuracy, accuracy[::-1]], -1), part_valid=np.ones((P, G, 2), bool),
      part_weight=np.ones((P, G, 2), np.float32),
      grad_norm=single(rng.uniform(0.5, 2, (P, G))),
      lag=on.astype(np.int32), kind=np.where(on, ACTION, PADDING).astype(np.int32),
    ),
  )
  return batch, old + noise(0.05), single(rng.exponential(0.3, (P, G, T)))


def step(objective, batch: Batch, logp, entropy):
  """Computes the objective's part of an update: loss, metrics, gradients by log π and entropy."""
  prepared = objective_lib.prepare(objective, batch, logp)
  value = lambda x, h: objective_lib.loss(objective, x, prepared, h)
  return jax.value_and_grad(value, (0, 1), has_aux=True)(logp, entropy)


def seconds(call) -> float:
  start = time.perf_counter()
  jax.block_until_ready(call())
  return time.perf_counter() - start


def against(reference, calls: dict, rounds: int) -> dict[str, dict]:
  """Returns medians of seconds, and of ratios to the reference's run just before; round one warms up."""
  pairs = {name: [] for name in calls}
  for _ in range(rounds + 1):
    for name, call in calls.items():
      pairs[name].append((seconds(reference), seconds(call)))
  results = {}
  for name, timed in pairs.items():
    before, own = np.array(timed[1:]).T
    low, ratio, high = np.quantile(own / before, [0.25, 0.5, 0.75])
    results[name] = dict(ms=1e3 * np.median(own), ratio=ratio, quartiles=[low, high])
  return results


def compiled(objectives: dict, arrays) -> dict:
  """Returns name -> a call without arguments."""
  arrays = jax.device_put(arrays)
  program = jax.jit(step)
  return {name: lambda o=o: program(o, *arrays) for name, o in objectives.items()}


def share_of_update(objectives: dict, rounds: int) -> dict[str, dict]:
  """Returns `against` the learner's update of the default job with its own model, at its own shapes."""
  c = base.get_config()
  model = models.build(c.model, len(text.load_tokenizer()))
  P, G, T, L = c.rollout.prompts // c.updates_per_rollout, c.rollout.group_size, c.rollout.max_tokens, 32
  logp = logprobs.make_logp(model, response_budget=T, temperature=1.0, chunk=c.logprob_chunk)
  schedule = optimizer.warmup_constant(c.optimizer)
  tx = optimizer.make_optimizer(c.optimizer, schedule, model.axes)
  update = jax.jit(make_update(rows.single(logp, c.microbatches), tx, schedule))
  state = jax.jit(make_init(model, tx))(jax.random.key(0))
  arrays = make_batch(P, G, T)
  batch = arrays[0]._replace(
    tokens=np.ones((P, G, L + T), np.int32), prompt_length=np.full((P, G), L, np.int32)
  )
  whole = lambda: update(state, objectives[REFERENCE], batch)
  return against(whole, compiled(objectives, arrays), rounds)


def table(results: dict, shares: dict) -> str:
  lines = [
    "| variant | ratio to PPO-clip | quartiles | share of an update |",
    "|---|---|---|---|",
  ]
  for name, r in sorted(results.items(), key=lambda item: -item[1]["ratio"]):
    low, high = r["quartiles"]
    share = f"{100 * shares[name]['ratio']:.2f} %"
    lines.append(f"| {name} | {r['ratio']:.2f} | {low:.2f} .. {high:.2f} | {share} |")
  return "\n".join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--shape", nargs=3, type=int, default=[64, 16, 2048], metavar=("P", "G", "T"))
  parser.add_argument("--rounds", type=int, default=20)
  parser.add_argument("--only", nargs="+", default=[], help="names of variants")
  args = parser.parse_args()
  objectives = variants()
  if args.only:
    objectives = {name: objectives[name] for name in [REFERENCE, *args.only]}
  calls = compiled(objectives, make_batch(*args.shape))
  results = against(calls[REFERENCE], calls, args.rounds)
  shares = share_of_update(objectives, args.rounds)
  now = setting("benchmarks.objectives") | {"shape": args.shape}
  if not args.only:
    keep("objectives", now | {"variants": results, "of_an_update": shares})
  print(table(results, shares))
  print(f"\n{where(now)}")


if __name__ == "__main__":
  main()
