"""SIGKILL, for real, in every phase of a run: what is started again ends as the run that nothing stopped.

More points, at random moments and of the default job: `python -m benchmarks.endurance`, docs/faults.md.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import subprocesses

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks/ is not installed

from benchmarks.endurance import compare  # noqa: E402
from grpojax.runtime import checkpointer  # noqa: E402

# All that is imported is imported once; every start is a fork that has not used JAX yet.
DRIVER = """
import os, sys
from benchmarks.endurance.killed import commandline, killer, main, watch

for start in sys.argv.pop(1).split(","):
  workdir, point = start.split("=")
  if not (child := os.fork()):
    sys.argv.append(f"--workdir={workdir}")
    if point:
      watch(killer(point))
    commandline.run(main.main)
  print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
POINTS = (  # phase, its n-th entry, and so many seconds later; 0: before it
  "cold start:1:0.3", "evaluation:1:0.05", "save:1:0.01", "refill:1:0.02", "commit:2:0", "rollout:2:0.05",
  "epoch edge:1:0",
)  # fmt: skip
MORE = int(os.environ.get("KILLS", 0))  # random points, for which the suite has no time: docs/faults.md
SETTINGS = {
  "steps": 6 + MORE, "verbose": False, "checkpoint.every": 1, "checkpoint.keep": 3, "data.train": 20,
  "rollout.max_tokens": 16, "rollout.segment": 4, "eval.every": 3, "eval.samples": 4, "eval.prompts": 4,
  "model.num_hidden_layers": 1, "remat": "none", "reward.accuracy": {"fn": "subprocesses:odd"},
}  # fmt: skip


def more_points():
  rng = Random(0)
  phases = ("save", "commit", "refill", "rollout", "evaluation", "epoch edge")
  return [f"{rng.choice(phases)}:{rng.choice([1, 1, 2])}:{rng.uniform(0, 0.1):.3f}" for _ in range(MORE)]


@pytest.mark.slow
def test_killed_in_a_phase_and_started_again_it_is_bit_equal_to_unbroken(tmp_path):
  cache = subprocesses.cache_in(tmp_path / "cache")  # the cold start is killed too
  points = (*POINTS, *more_points(), "")
  starts = [f"{tmp_path / 'cut'}={point}" for point in points] + [f"{tmp_path / 'whole'}="]
  flags = [f"--config.{key}={value}" for key, value in {**SETTINGS, "cache_dir": cache}.items()]
  done = subprocess.run(
    [sys.executable, "-c", DRIVER, ",".join(starts), "--config=configs/dapo.py:tiny", *flags],
    cwd=ROOT, env=subprocesses.environment(), capture_output=True, text=True,
  )  # fmt: skip
  ended = [int(status) for status in re.findall(r"status (-?\d+)$", done.stdout, re.M)]  # or in a killed line
  assert ended == [-9] * (len(points) - 1) + [0, 0], done.stdout + done.stderr
  assert not any(compare.differences(tmp_path / "cut", tmp_path / "whole").values())
  assert all(compare.differences(spoilt(tmp_path / "cut"), tmp_path / "whole").values())


def spoilt(workdir):
  """The last checkpoint is lost, one record is there twice, one is missing, and the report is another."""
  shutil.rmtree(workdir / "checkpoints" / str(checkpointer.steps(workdir)[-1]))
  lines = lambda name: (workdir / name).read_text().splitlines(keepends=True)
  (workdir / "metrics.jsonl").write_text("".join([*(kept := lines("metrics.jsonl")), kept[-1]]))
  (workdir / "completions.jsonl").write_text("".join(lines("completions.jsonl")[:-1]))
  report = (workdir / "report.html").read_text()
  (workdir / "report.html").write_text(report.replace("<td>", "<td>1"))
  return workdir
