"""Packed rows, with shared prompts and without, beside a row each: seconds, and padding.

    python -m benchmarks.packing

A model of 4 layers, width 128, vocabulary 512, float32; 64 responses of at most 96 tokens to prompts of
32, AdamW.  Lengths are all 96, geometric (mean 24, cut at 96), or log-normal (median 16, sigma 1, cut).
All forms get the same batch and must give the same gradient norm.  Timings are interleaved, one run of
each in turn; the table has medians of wall time with quartiles, and of the CPU time of all threads, whose
ratios it gives, because the machine may be shared.  Padding depends on the lengths that were drawn, so a
second table has that of 30 draws.
Writes benchmarks/results/packing.json and prints Markdown.
"""

import argparse
import itertools

import jax
import numpy as np

from benchmarks import workload
from benchmarks.clock import interleaved, said
from benchmarks.setting import keep, report, setting, where
from benchmarks.workload import G, L, P, T, V
from grpojax import objective as objective_lib
from grpojax.learner import logprobs, optimizer, packing
from grpojax.learner import rows as rows_lib
from grpojax.learner.packing import PackSpec
from grpojax.learner.state import create
from grpojax.learner.update import make_old_logp, make_update
from grpojax.recipes import base
from grpojax.types import Batch

C = L + T - 1
CUTS = {  # name: packed rows of a microbatch, or microbatches of whole rows
  "a row each": 1,
  "a row each, 8 microbatches": 8,
  "packed, 2 rows": PackSpec(T, 1, 2, C, shared=False),
  "packed, 4 rows": PackSpec(T, 1, 4, C, shared=False),
  "packed, prompts shared by 2": PackSpec(T, 1, 2, L + 2 * (T - 1), shared=True),
  "packed, prompts shared by 4": PackSpec(T, 1, 1, L + 4 * (T - 1), shared=True),
  "packed, prompts shared by 8": PackSpec(T, 1, 1, L + 8 * (T - 1), shared=True),
}


TAILS, DRAWS = ("geometric", "log-normal"), 30


def lengths(kind: str, rng, prompts: int = P) -> np.ndarray:
  """Draws [prompts, G] response lengths."""
  shape = prompts, G
  drawn = {
    "all 96 long": lambda: np.full(shape, T),
    "geometric": lambda: rng.geometric(1 / 24, shape),
    "log-normal": lambda: np.round(rng.lognormal(np.log(16), 1.0, shape)),
  }[kind]()
  return np.clip(drawn, 1, T).astype(int)


def batch_of(kind: str) -> Batch:
  rng = np.random.default_rng(0)
  length, prompt_length = lengths(kind, rng), np.full((P, G), L, np.int32)
  right, all_rows = rng.integers(0, 2, (P, G)).astype(np.float32), np.ones((P, G), bool)
  logp = -rng.exponential(1.0, (P, G, T)).astype(np.float32)
  tokens = rng.integers(0, V, (P, G, L + T)).astype(np.int32)
  tokens[..., :L] = tokens[:, :1, :L]
  return Batch(
    mask=(np.arange(T) < length[..., None]).astype(np.float32),
    reward=right,
    accuracy=right,
    valid=all_rows,
    ended=all_rows,
    sampler_logp=logp,
    old_logp=logp,
    tokens=tokens,
    prompt_length=prompt_length,
    length=length.astype(np.int32),
  )


def calls(model, batches: dict) -> dict:
  """Returns (workload, cut, what) -> a call; every program is compiled here."""
  c = base.get_config()
  schedule = optimizer.warmup_constant(c.optimizer)
  tx = optimizer.make_optimizer(c.optimizer, schedule, model.axes)
  state = create(jax.jit(model.init)(jax.random.key(0)), tx)
  objective = objective_lib.build(c.objective)
  how = dict(temperature=1.0, chunk=c.logprob_chunk)
  whole = logprobs.make_logp(model, response_budget=T, **how)
  longest = rows_lib.longest_columns(workload.config("packed", microbatches=1))
  made = {}
  for name, cut in CUTS.items():
    packed = isinstance(cut, PackSpec)
    in_rows = logprobs.make_packed_logp(model, longest=longest, **how)
    layout = rows_lib.packed(in_rows, cut) if packed else rows_lib.single(whole, cut)
    update = jax.jit(make_update(layout, tx, schedule))
    old_logp = jax.jit(make_old_logp(layout, False))
    for kind, batch in batches.items():
      if packed:
        batch = batch._replace(packing_index=packing.pack_sequences(batch.prompt_length, batch.length, cut))
      seen = batch.tokens, batch.prompt_length, None, None, batch.packing_index
      made[kind, name, "update"] = lambda f=update, b=batch: f(state, objective, b)[1]
      if packed or cut == 1:  # without a gradient, rows come whole
        made[kind, name, "log-probs"] = lambda f=old_logp, s=seen: f(state.params, *s)
  return made


def measured(made: dict, rounds: int) -> dict:
  """Returns workload -> cut -> seconds and padding.  Raises ValueError if updates differ."""
  medians, results = interleaved(made, rounds), {}
  for (kind, name, what), seconds in medians.items():
    row = results.setdefault(kind, {}).setdefault(name, {})
    row[what] = seconds
    if what == "update":
      seen = made[kind, name, what]()
      row |= dict(padding=float(seen["update/padding"]), grad_norm=float(seen["grad_norm"]))
  for kind, rows in results.items():
    norms = [row["grad_norm"] for row in rows.values()]
    if max(norms) - min(norms) > 1e-5 * max(norms):
      raise ValueError(f"{kind}: the gradients have norms {norms}.")
  return results


def paddings(kind: str, sequences: int, rows: int) -> list[float]:
  """Returns the share of padding in an update's columns, of every draw, in microbatches of so many rows."""
  found, how = [], PackSpec(T, 1, rows, C, shared=False)
  for seed in range(DRAWS):
    length = lengths(kind, np.random.default_rng(seed), sequences // G)
    prompt = np.full_like(length, L)
    place = packing.pack_sequences(prompt, length, how)
    columns = int(packing.num_microbatches(how, place)) * rows * C
    found.append(1 - float((prompt + length - 1).sum()) / columns)
  return found


def table_of_draws(draws: dict) -> str:
  lines = [f"| sequences | rows of a piece | {' | '.join(TAILS)} |", "|---|---|---|---|"]
  for sequences, rows in dict.fromkeys(key[1:] for key in draws):
    found = [np.array(draws[kind, sequences, rows]) * 100 for kind in TAILS]
    cells = [f"{x.mean():.1f} % ({x.min():.1f}-{x.max():.1f})" for x in found]
    lines.append(f"| {sequences} | {rows} | {' | '.join(cells)} |")
  return "\n".join(lines)


def table(results: dict) -> str:
  lines = [
    "| lengths | rows | padding | update (quartiles) | CPU | ratio | log-probs (quartiles) | CPU | ratio |",
    "|---|---|---|---|---|---|---|---|---|",
  ]
  for kind, rows in results.items():
    plain = rows["a row each"]
    for name, r in rows.items():
      cells = [kind, name, f"{100 * r['padding']:.0f} %"]
      for what in ("update", "log-probs"):
        x = r.get(what)
        ratio = x and plain[what]["cpu"] / x["cpu"]
        cells += [said(x), f"{x['cpu']:.3f} s", f"{ratio:.2f}"] if x else ["", "", ""]
      lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--rounds", type=int, default=9)
  args = parser.parse_args()
  batches = {kind: batch_of(kind) for kind in ("all 96 long", *TAILS)}
  results = measured(calls(workload.model(), batches), args.rounds)
  keys = itertools.product(TAILS, (64, 128, 512), (2, 4))
  draws = {key: paddings(*key) for key in keys}
  now = setting("benchmarks.packing") | {"rounds": args.rounds}
  kept = [dict(kind=kind, sequences=n, rows=rows, padding=found) for (kind, n, rows), found in draws.items()]
  keep("packing", now | {"workloads": results, "draws": kept})
  of_draws = f"Padding of {DRAWS} draws, mean (least-most):\n\n{table_of_draws(draws)}"
  report("packing", f"{table(results)}\n\n{of_draws}\n\n{where(now)}")


if __name__ == "__main__":
  main()
