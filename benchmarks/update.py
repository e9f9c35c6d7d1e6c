"""One update beside what the processor's matmuls allow: seconds, FLOPs, and the share of the ceiling.

    python -m benchmarks.update

64 rows of 32 + 96 tokens, vocabulary 512, 4 layers, width 128, float32, AdamW.  FLOPs are those that an
update of a row each needs: its matmuls forward and twice as many backward, attention over the causal half,
no pass made again; packed rows, which compute a prompt once for its 8 responses, need fewer.  The ceiling
is the fastest of the update's own largest matmuls, timed in turns with it.  Medians of wall time and of the
CPU time of all threads.  Writes benchmarks/results/update.json and the table of docs/performance.md.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import workload
from benchmarks.clock import interleaved, said
from benchmarks.setting import keep, report, setting, where
from benchmarks.workload import G, L, P, T, V
from grpojax import models, objective
from grpojax.learner import optimizer, packing
from grpojax.learner import rows as rows_lib
from grpojax.learner.state import make_init
from grpojax.learner.update import make_update
from grpojax.recipes import base
from grpojax.runtime import sharding
from grpojax.types import Batch


def necessary_flops(s: models.Spec, prompts: int = P * G) -> int:
  """Returns FLOPs of forward and backward over P G rows of L + T - 1 columns, logits for T of them.

  Fewer `prompts` are computed once each.
  """
  rows, S, D = P * G, L + T - 1, s.hidden_size
  tokens = rows * (T - 1) + prompts * L
  heads = (2 * s.num_attention_heads + 2 * s.num_key_value_heads) * s.head_dim
  of_token = s.num_hidden_layers * (heads * D + 3 * D * s.intermediate_size)
  pairs = rows * S * (S + 1) - (rows - prompts) * L * (L + 1)  # twice those of the causal half
  pairs *= s.num_hidden_layers * s.num_attention_heads * s.head_dim  # q k and weights v
  return 6 * (tokens * of_token + rows * T * V * D) + 3 * 2 * pairs


def batch() -> Batch:
  """Makes responses of full length at random rewards, all from the policy's own tokens."""
  rng = np.random.default_rng(0)
  reward = rng.integers(0, 2, (P, G)).astype(np.float32)
  logp = np.full((P, G, T), -np.log(V), np.float32)
  tokens = rng.integers(0, V, (P, G, L + T)).astype(np.int32)
  tokens[..., :L] = tokens[:, :1, :L]
  return jax.device_put(Batch(
    mask=np.ones((P, G, T), np.float32), reward=reward, accuracy=reward, valid=np.ones((P, G), bool),
    ended=np.zeros((P, G), bool), sampler_logp=logp, old_logp=logp, entropy=np.ones((P, G, T), np.float32),
    tokens=tokens, prompt_length=np.full((P, G), L, np.int32), length=np.full((P, G), T, np.int32),
  ))  # fmt: skip


VARIANTS = [  # config.rows, .remat, .microbatches
  ("single", "full", 1), ("single", "full", 2), ("single", "full", 4), ("single", "full", 8),
  ("single", "projections", 8), ("single", "none", 8),
  ("packed", "full", 2), ("packed", "full", 4), ("packed", "full", 8),
]  # fmt: skip


def layout_of(model, rows: str, microbatches: int, given):
  """Returns (the layout of a run, its batch)."""
  config = workload.config(rows, microbatches)
  mesh = sharding.make_mesh(config.mesh)
  if spec := rows_lib.pack_spec(config, model, mesh):
    given = given._replace(packing_index=packing.pack_sequences(given.prompt_length, given.length, spec))
  return rows_lib.build(config, model, mesh), given


def update_of(model, tx, rows: str, microbatches: int, given):
  """Returns (a call that makes one update, bytes of its temporaries)."""
  layout, given = layout_of(model, rows, microbatches, given)
  schedule = optax.constant_schedule(1e-4)
  update = make_update(layout, tx, schedule)
  formula = objective.build(base.get_config().objective)
  state = jax.jit(make_init(model, tx))(jax.random.key(0))
  compiled = jax.jit(update, donate_argnums=0).lower(state, formula, given).compile()
  kept = [state]

  def run():
    kept[0], metrics = compiled(kept[0], formula, given)
    return kept[0], metrics

  return run, compiled.memory_analysis().temp_size_in_bytes


def pass_of(model, rows: str, given):
  """Returns a call of the log-prob pass alone."""
  layout, given = layout_of(model, rows, 1, given)
  logp, params = jax.jit(layout.logp), jax.jit(model.init)(jax.random.key(0))
  return lambda: logp(params, given.tokens, given.prompt_length, None, None, given.packing_index)


def optimizer_of(model, tx):
  """Returns a call of the optimizer alone."""
  state = jax.jit(make_init(model, tx))(jax.random.key(0))
  step = jax.jit(lambda s: tx.update(s.params, s.opt_state, s.params))
  return lambda: step(state)


def matmuls(s: models.Spec, repeats: int = 10) -> dict:
  """Returns name -> (a call, its FLOPs): the largest of the update, rows of one microbatch of eight."""
  rows, D, F = P * G * (L + T) // 8, s.hidden_size, s.intermediate_size
  calls = {}
  for n, k, m in (rows, D, F), (rows, F, D), (D, rows, F):
    x, y, dot = jnp.ones((n, k)), jnp.ones((k, m)), jax.jit(jnp.matmul)
    run = lambda x=x, y=y, dot=dot: [dot(x, y) for _ in range(repeats)]
    calls[f"[{n}, {k}] x [{k}, {m}]"] = run, 2 * n * k * m * repeats
  return calls


def table(results: dict[str, dict], flops: float, ceiling: dict[str, float]) -> str:
  lines = [
    "| what | wall (quartiles) | CPU time | temporaries | GFLOP/s | share of the ceiling, wall | CPU time |",
    "|---|---|---|---|---|---|---|",
  ]
  for name, r in results.items():
    rates = {clock: flops / r[clock] for clock in ceiling}
    shares = " | ".join(f"{100 * rates[clock] / ceiling[clock]:.0f} %" for clock in ceiling)
    whole = "temporaries" in r  # a part has fewer FLOPs
    done = f"{r['temporaries'] / 1e6:.0f} MB | {rates['wall'] / 1e9:.0f} | {shares}" if whole else "| | |"
    lines.append(f"| {name} | {said(r)} | {r['cpu']:.3f} s | {done} |")
  return "\n".join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--rounds", type=int, default=9)
  args = parser.parse_args()
  model, given = workload.model(), batch()
  tx = optimizer.make_optimizer(base.get_config().optimizer, optax.constant_schedule(1e-4), model.axes)
  updates, temporaries = {}, {}
  for rows, policy, pieces in VARIANTS:
    name = f"update, rows={rows}, microbatches={pieces}, remat={policy}"
    updates[name], temporaries[name] = update_of(model._replace(remat=policy), tx, rows, pieces, given)
  dots = matmuls(model.spec)
  passes = {f"log-prob pass, rows={rows}": pass_of(model, rows, given) for rows in ("single", "packed")}
  calls = updates | passes | {"AdamW": optimizer_of(model, tx)}
  timed = interleaved(calls | {name: call for name, (call, _) in dots.items()}, args.rounds)
  clocks = "wall", "cpu"
  ceilings = {name: {clock: n / timed[name][clock] for clock in clocks} for name, (_, n) in dots.items()}
  timed = {name: t for name, t in timed.items() if name not in dots}
  ceiling = {clock: max(c[clock] for c in ceilings.values()) for clock in clocks}
  for name in updates:
    timed[name]["temporaries"] = temporaries[name]
  flops, shared = necessary_flops(model.spec), necessary_flops(model.spec, prompts=P)
  now = setting("benchmarks.update")
  found = {"rounds": args.rounds, "flops": flops, "matmuls": ceilings, "results": timed}
  keep("update", now | found)
  lines = [table(timed, flops, ceiling), ""]
  lines += [f"{flops / 1e9:.1f} GFLOP are necessary for a row each, {shared / 1e9:.1f} for packed ones.", ""]
  lines += ["Matmuls, GFLOP/s by wall time and by CPU time:", ""]
  lines += [f"- {name}: {r['wall'] / 1e9:.0f}, {r['cpu'] / 1e9:.0f}" for name, r in ceilings.items()]
  report("update", "\n".join([*lines, "", where(now)]))


if __name__ == "__main__":
  main()
