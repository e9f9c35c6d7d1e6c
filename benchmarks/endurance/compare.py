"""Comparison of what a disturbed and an undisturbed run left behind; everything has to be equal."""

import re
from pathlib import Path

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from benchmarks.endurance.job import Job
from grpojax.runtime import metrics

CLOCK = re.compile(  # of a record: clock and machine, and when environments have answered
  "time/|tokens_per_second/|memory/|wall$|environment/(idle_)?seconds$"
)
# Of a job that plays, what the sampler did while environments worked, too.
WAITING = re.compile("rollout/(prefill_columns|prefill_padding|decode_steps|slot_steps|slot_utilisation)$")
# Of the report: until when, how long it took, the commands, the drawings of speed, seconds and memory, and of
# a cold start that this run trained, and the numbers for its scripts, which are those of the records.
CLOCKS = re.compile(
  r'<p class="soft" id="facts">.*?</p>|<h2>Command</h2>.*?</pre>|<script type="application/json".*?</script>'
  r'|<figure data-chart="(Speed|Time|Memory|Cold start)\b.*?</figure>\s*',
  re.DOTALL,
)


def differences(ours: Path, theirs: Path) -> dict[str, int]:
  """Counts the differences of each kind between two workdirs."""
  (tree, kept), (their_tree, their_kept) = _checkpoint(ours), _checkpoint(theirs)
  return {
    "parameters, optimiser, reference, memory (leaves)": _leaves(tree, their_tree),
    "data position and digests": _entries(kept, their_kept),
    "records of metrics.jsonl": _records(ours, theirs, "metrics"),
    "records of completions.jsonl": _records(ours, theirs, "completions"),
    "report": int(_report(ours) != _report(theirs)),
  }


def _checkpoint(workdir: Path):
  """Reads (arrays, metadata) of the newest checkpoint, without the layout that a run would ask for."""
  with ocp.training.Checkpointer(workdir / "checkpoints") as checkpoints:
    step = checkpoints.latest.step
    saved = checkpoints.checkpointables_metadata(step).metadata["tree"]
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), saved)
    tree = checkpoints.load_checkpointables(step, {"tree": abstract})["tree"]
    kept = checkpoints.metadata(step).custom_metadata
    for own in ("run", "records"):  # each run has its own name and its own clock
      kept["host"]["stands_on"].pop(own)
    return jax.tree.map(np.asarray, tree), kept["host"] | kept["digests"]


def _leaves(ours, theirs) -> int:
  a, b = dict(jax.tree.leaves_with_path(ours)), dict(jax.tree.leaves_with_path(theirs))
  same = [path for path in a.keys() & b.keys() if _equal(a[path], b[path])]
  return len(a.keys() | b.keys()) - len(same)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
  """Returns True for arrays equal bit for bit."""
  return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _entries(ours: dict, theirs: dict) -> int:
  return sum(ours.get(key) != theirs.get(key) for key in ours.keys() | theirs.keys())


def _records(ours: Path, theirs: Path, name: str) -> int:
  """Counts records that differ beside their clock, and those that only one run has."""
  a, b = timeless(ours, name), timeless(theirs, name)
  return abs(len(a) - len(b)) + sum(x != y for x, y in zip(a, b, strict=False))


def timeless(workdir: Path, name: str) -> list[dict]:
  """Returns records of RL without their clock; the cold start came from the cache."""
  records = [r for r in metrics.read(workdir, name) if r.get("kind") != "cold_start"]
  kept = lambda record, key: not (CLOCK.match(key) or ("environment/steps" in record and WAITING.match(key)))
  return [{key: value for key, value in r.items() if kept(r, key)} for r in records]


def sampled(job: Job) -> set[str]:
  """Returns every completion that any attempt sampled, also in steps that were taken again."""
  lines = [line for log in job.sampled() for line in log.read_text().splitlines(keepends=True)]
  return {line for line in lines if line.endswith("\n")}  # else its process was killed while it wrote


def _report(workdir: Path) -> str:
  return CLOCKS.sub("", (workdir / "report.html").read_text()).replace(str(workdir), "")


def failed_verifiers(job: Job) -> dict[str, int]:
  """Completions of training that each reward failed on, and that were left out for it."""
  found = {}
  for record in metrics.read(job.workdir):
    for name, value in record.items():
      if match := re.fullmatch("rewards/(.+)/failed", name):
        found[match[1]] = found.get(match[1], 0) + int(value)
  return found
