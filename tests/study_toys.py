"""A study whose runs never ran: what they would have recorded is written down."""

import json

from grpojax.tools.study import Figure, Row, Study, plan

STUDY = Study(
  name="toy",
  title="A toy",
  question="Is <b> better?",
  rows=(
    Row("a", "configs/base.py:tiny", quoted=30),
    Row("<b>", "configs/base.py:tiny", {"objective.surrogate.high": 0.28}, quoted=36, at=0.28),
    Row("c", "configs/base.py:tiny", {"objective.surrogate.high": 0.4}, at=0.4),
  ),
  figures=(
    Figure("Accuracy", "% of questions", {"eval/pass@1": "held out"}),
    Figure("By tokens", "% of questions", {"eval/pass@1": "held out"}, over="tokens"),
    Figure("Along ε", "nats per token", {"entropy": "policy"}, over="swept"),
    Figure("Of one row", "nats per token", {"entropy": "policy"}, ("c",), "swept"),
    Figure("Odds", "mean", {"up / down": "ratio"}, rows=("a",)),
    Figure("Against a", "points", {"over_first": ""}, over="rows"),
    Figure("Nothing", "mean", {"never": "measured"}),
  ),
  seeds=3,
  quoted="paper",
  swept="ε",
)

# [row][seed] the accuracy after training; 0.2 before.
FINAL = {"a": (0.5, 0.6, 0.7), "<b>": (0.6, 0.7, 0.8), "c": (0.5, 0.7, 0.6)}
TOKENS = {"a": 100, "<b>": 200, "c": 100}  # of each of the 4 steps
MACHINE = dict(processor="3 cores, Z80", python="3.99", jax="9.1", flax="9.2", optax="9.3")
LOG = f"commit abc123\nmachine {json.dumps(MACHINE)}\nx on 1 of 1 cpu device(s)\n"


def runs(out, seeds=3, only=(), extra=()):
  return plan.make(STUDY, out, seeds, list(only), ["--config.steps=4", *extra])


def finish(run, **changes):
  """Leaves what a finished run leaves."""
  final, spent = FINAL[run.row.name][run.seed], TOKENS[run.row.name]
  records = [{"step": 9, "wall": 0.5, "kind": "cold_start", "entropy": 7.0}]
  records += [{"step": 0, "wall": 1.0, "kind": "eval", "eval/pass@1": 0.2}]
  for step in range(1, 5):
    record = {"step": step, "wall": 1.0, "kind": "train", "num_tokens": spent, "entropy": step + run.seed}
    records.append(record | {"up": 2.0 * step, "down": 1.0 * step, "time/step": 9.0} | changes)
  records.append({"step": 4, "wall": 2.0, "kind": "eval", "eval/pass@1": final})
  (run.workdir / "checkpoints" / "4").mkdir(parents=True)
  (run.workdir / "config.json").write_text(run.config.to_json_best_effort())
  (run.workdir / "metrics.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
  (run.workdir / "log.txt").write_text(LOG)


def coin(sample, *, form="boxed", timeout=3.0, workers=2) -> float:
  """Right at times, also of random weights; with the knobs of the verdict that it stands for."""
  return float(len(sample.text) % 2 == 0)
