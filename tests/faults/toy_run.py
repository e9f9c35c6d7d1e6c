"""A run of four steps, checkpoints after 2 and 4, to be damaged and disturbed."""

import importlib
import re

from grpojax import train
from grpojax.runtime import checkpointer, metrics
from grpojax.train import checkpoint


def config(cache):
  """The programs of test_staleness.py."""
  c = importlib.import_module("grpojax.recipes.grpo").get_config("tiny")
  c.update(steps=4, verbose=False, cache_dir=str(cache), updates_per_rollout=1)
  c.mesh.data = 1
  c.optimizer.warmup_steps = 0
  c.eval.every = 100
  c.checkpoint.update(every=2, keep=3)
  c.reward.accuracy = dict(fn=f"{__name__}:short")
  return c


def short(sample):
  return float(sample.length < 30)


def newest(workdir, job):
  checkpoints = checkpointer.open_checkpoints(workdir, 3)
  try:
    return checkpointer.latest(checkpoints, *checkpoint.tree_layout(job))
  finally:
    checkpoints.close()


def timeless(workdir):
  """The training records without what depends on the clock."""
  clock = re.compile("time/|tokens_per_second/|memory/|wall$")
  train = [r for r in metrics.read(workdir) if r["kind"] == "train"]
  return [{k: v for k, v in r.items() if not clock.match(k)} for r in train]


def files(folder, name):
  return sorted((f for f in (folder / "tree").rglob(name) if f.is_file()), key=lambda f: f.stat().st_size)


def rewrite(file, change):
  data = bytearray(file.read_bytes())
  file.write_bytes(change(data) or data)


def flip(data):
  data[len(data) // 2] ^= 4


def disturbed(job, workdir, at: int, what):
  """train.run, with `what` done to `workdir` before its update number `at`, one a step."""
  seen = []
  job.data.stream.set_state({"position": 0})  # of the job that the other tests ran

  def update(*rest):
    seen.append(what(workdir) if len(seen) + 1 == at else None)
    return job.programs.update(*rest)

  return train.run(job._replace(workdir=workdir, programs=job.programs._replace(update=update)))
