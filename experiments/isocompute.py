"""At equal compute, how many completions of a prompt?  The record frontier and n*(C).

    python -m experiments.isocompute --dry_run     # the plan, and what it can detect
    python -m experiments.isocompute  # 10 rows x 6 seeds on 2 CPU cores: half an hour by arithmetic
    python -m experiments.isocompute --scale=tiny  # seconds a run; for tests

https://arxiv.org/abs/2603.12151: compute is C = prompts of a step x completions of each (n) x steps.  Rows
spend the same C in other shapes, and are evaluated at the same amounts of it.  At each the best shape is on
the frontier where nothing cheaper was as good, and its n is n*(C); the paper finds that log n* is a sigmoid
of log C.  The learning rate is one for all, though a larger batch could take a larger one.
"""

import numpy as np

from grpojax.tools.scale import fit
from grpojax.tools.study import Figure, Row, Section, Study, figures

CONFIG = "configs/base.py"
COMPLETIONS = {"mini": 16_384, "tiny": 64}  # C of a whole run
SIZES = {"mini": (2, 4, 8, 16, 32), "tiny": (2, 4)}  # n
PROMPTS = {"mini": (8, 32), "tiny": (4, 8)}
EVALUATED = {"mini": 8, "tiny": 2}  # times, at equal amounts of C
RESAMPLES = 2000
PASS = "eval/pass@1"


def rows(scale: str) -> tuple[Row, ...]:
  """Returns a row for every n and number of prompts, each with the steps that C leaves."""
  found = []
  for prompts in PROMPTS[scale]:
    for n in SIZES[scale]:
      steps = COMPLETIONS[scale] // (n * prompts)
      changes = {
        "rollout.group_size": n, "rollout.prompts": prompts, "steps": steps,
        "rollout.slots": min(64, n * prompts), "microbatches": prompts // 2,
        "eval.every": steps // EVALUATED[scale], "checkpoint.every": steps,
      }  # fmt: skip
      if scale == "mini":
        changes |= {"eval.prompts": 512, "eval.samples": 2}
      found.append(Row(f"n = {n}", f"{CONFIG}:{scale}", changes, group=f"{prompts} prompts", at=n))
  return tuple(found)


def measured(results: dict) -> tuple[list[dict], np.ndarray, np.ndarray]:
  """Returns (rows' changes [R], C [N], accuracies [R, S, N]), of the seeds that all rows have."""
  rows = [row for row in results["rows"] if results["curves"][row["label"]].get(PASS)]
  seeds = set.intersection(*(set(row["final"]["seeds"]) for row in rows))
  accuracy = []
  for row in rows:
    curve, changes = results["curves"][row["label"]][PASS], row["changes"]
    at = [i for i, seed in enumerate(row["final"]["seeds"]) if seed in seeds]
    accuracy.append(np.array(curve["values"])[at, 1:])
  cost = changes["rollout.group_size"] * changes["rollout.prompts"]
  return [row["changes"] for row in rows], np.array(curve["steps"][1:]) * cost, np.array(accuracy)


def best(accuracy: np.ndarray) -> np.ndarray:
  """Returns the number of the best row at each C, [N], by the mean over seeds; of equals the first."""
  return accuracy.mean(1).argmax(0)


def records(accuracy: np.ndarray) -> np.ndarray:
  """Returns whether the best accuracy at each C is above all that cost less, [N]."""
  top = accuracy.mean(1).max(0)
  return top > np.concatenate([[-np.inf], np.maximum.accumulate(top)[:-1]])


def frontier(results: dict) -> Section:
  """Returns the best shape at each amount of compute, with n*'s interval over seeds, and the sigmoid."""
  changes, C, accuracy = measured(results)
  n = np.array([change["rollout.group_size"] for change in changes])
  chosen, is_record = best(accuracy), records(accuracy)
  S = accuracy.shape[1]
  drawn = np.random.default_rng(0).integers(S, size=(RESAMPLES, S))
  resampled = np.array([n[best(accuracy[:, seeds])] for seeds in drawn])
  low, high = np.quantile(resampled, [0.025, 0.975], axis=0, method="nearest") if S > 1 else (n[chosen],) * 2
  body = []
  for i, row in enumerate(chosen):
    shape = changes[row]
    cost = shape["rollout.group_size"] * shape["rollout.prompts"]
    star = f"{n[row]}" + (f" [{low[i]}, {high[i]}]" if S > 1 else "")
    top = f"{100 * accuracy[row, :, i].mean():.1f}"
    body.append([f"{C[i]:,}", star, str(shape["rollout.prompts"]), f"{C[i] // cost:,}", top,
                 "yes" if is_record[i] else "no"])  # fmt: skip
  kept = C[is_record], n[chosen][is_record]
  ends = (x[is_record].astype(float) for x in (n[chosen], low, high))
  line = figures.Line("n*", kept[0].astype(float), *ends)
  head = ["C, completions", "n*(C)", "prompts", "steps", "accuracy, %", "record"]
  figure = Figure("n* along the record frontier", "completions of a prompt", {}, over="swept", x=head[0])
  note = "In brackets the 95 % interval of n* over resampled seeds. " + sigmoid(*kept, int(n.max()))
  return Section("The frontier", note, head, body, figure, (line,))


def sigmoid(C: np.ndarray, n: np.ndarray, most: int) -> str:
  """Says the sigmoid of log2 n* in log C, by ScaleRL's fit with log2 n for the accuracy."""
  y = np.log2(n)
  if len(C) < 4 or np.ptp(y) == 0:
    return "No sigmoid is fitted: it takes four records, and an n* that changes."
  grid = np.linspace(0, np.log2(most), 41)
  found = fit.fit(C.astype(float), y, float(y[0]), grid, fit.mid_grid(C.astype(float)))
  if found.B in fit.B_RANGE:
    return f"The records determine no sigmoid: the best fit's exponent is {found.B:g}, where the search ends."
  return (
    f"Sigmoid of log2 n* in log C: from {2 ** found.R0:.3g} to {2**found.A:.3g}, half of it (in log2) at C = "
    f"{found.C_mid:,.0f}, exponent {found.B:.2f}."
  )


def by_size(results: dict) -> Section:
  """Returns each n's accuracy at each C, with its best number of prompts."""
  changes, C, accuracy = measured(results)
  mean, body, lines = 100 * accuracy.mean(1), [], []
  for n in sorted({change["rollout.group_size"] for change in changes}):
    mine = [i for i, change in enumerate(changes) if change["rollout.group_size"] == n]
    top = mean[mine].max(0)
    prompts = [changes[mine[i]]["rollout.prompts"] for i in mean[mine].argmax(0)]
    body.append([f"{n}", *(f"{x:.1f} ({P})" for x, P in zip(top, prompts, strict=True))])
    lines.append(figures.Line(f"n = {n}", C.astype(float), top, top, top))
  head = ["n", *(f"C = {c:,}" for c in C)]
  figure = Figure("Accuracy by n, at equal C", "% of questions", {}, over="swept", x="C, completions")
  note = "In % of held-out questions, mean over seeds, with the better number of prompts in brackets."
  return Section("By n", note, head, body, figure, tuple(lines))


def study(scale: str) -> Study:
  return Study(
    name=f"isocompute-{scale}",
    title=f"Shapes of equal compute ({scale})",
    question=f"GRPO without KL. Every row samples {COMPLETIONS[scale]:,} completions in training, two "
    "updates a step; rows are compared with the smallest n of as many prompts.",
    rows=rows(scale),
    figures=(
      Figure("Held-out accuracy along n", "% of questions", {PASS: ""}, over="swept"),
      Figure("Groups without contrast along n", "% of groups", {"frac_reward_zero_std": ""}, over="swept"),
    ),
    seeds=6,
    spread=2.7,  # of one evaluation: docs/results/dapo_ablation, 18 seeds, pooled over rows
    scatter=3.7,  # the same of differences
    swept="n, completions of a prompt",
    sections=(frontier, by_size),
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.isocompute", study, ("mini", "tiny"))
