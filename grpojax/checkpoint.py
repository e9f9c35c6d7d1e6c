"""Orbax checkpoints of everything that changes, and the check that a workdir belongs to this run.

Device state (parameters, optimiser, reference) is the checkpoint; host state (data position, counters)
rides along as its JSON metadata.  Randomness needs no saving: every key is derived from the seed
and the step.  Saving is asynchronous; commits are atomic.
"""

import json
from pathlib import Path

from jax.sharding import Mesh
from ml_collections import ConfigDict
from orbax.checkpoint import v1 as ocp

from grpojax import sharding, storage
from grpojax.models import Model

# What may change between a run and its continuation: how long, how often, on what, how loudly.
FREE_KEYS = (
  "steps", "verbose", "mesh", "attention", "microbatches", "packing", "logprob_chunk", "eval.every",
  "checkpoint", "cache_dir", "profile_steps", "print_sharding",
)  # fmt: skip


def open_checkpoints(workdir: Path, keep: int) -> ocp.training.Checkpointer:
  return ocp.training.Checkpointer(
    workdir / "checkpoints",
    preservation_policy=ocp.training.preservation_policies.LatestN(keep),
    cleanup_tmp_directories=True,
  )


def save(checkpoints, step: int, tree, host: dict) -> None:
  """Starts saving the state after `step` steps; returns before it is on disk (`finish` waits)."""
  finish(checkpoints)
  if checkpoints.latest is not None and checkpoints.latest.step >= step:
    return  # on disk already: a run that is stopped right after an interval's save
  checkpoints.save_checkpointables_async(step, {"tree": tree}, custom_metadata=host)


def finish(checkpoints) -> None:
  """Waits for the save under way and raises what went wrong with it (a full disk, for one)."""
  checkpoints.wait()


def latest(checkpoints, shapes, shardings):
  """(tree, host) of the newest checkpoint, laid out as `shardings`; None if there is none."""
  if checkpoints.latest is None:
    return None
  step = checkpoints.latest.step
  abstract = sharding.abstract(shapes, shardings)
  tree = checkpoints.load_checkpointables(step, {"tree": abstract})["tree"]
  return tree, checkpoints.metadata(step).custom_metadata


def steps(workdir: Path) -> list[int]:
  """Those that are saved, the newest last."""
  with _read_only(workdir) as checkpoints:
    return [one.step for one in checkpoints.checkpoints]


def trained(workdir: Path, model: Model, mesh: Mesh, step: int | None = None) -> tuple[int, dict]:
  """(steps taken, what is trained) of the newest checkpoint or of `step`; nothing else is read."""
  with _read_only(workdir) as checkpoints:
    if checkpoints.latest is None:
      raise ValueError(f"--workdir={workdir} holds no checkpoint; train first, or name another.")
    step = checkpoints.latest.step if step is None else step
    where = sharding.param_shardings(mesh, model.trained.axes, model.trained.shapes, model.rules)
    state = {"params": sharding.abstract(model.trained.shapes, where)}
    others = len(checkpoints.checkpointables_metadata(step).metadata["tree"]) - 1
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    with context:
      tree = checkpoints.load_checkpointables(step, {"tree": (state, *[None] * others)})["tree"]
  return step, tree[0]["params"]


def _read_only(workdir: Path) -> ocp.training.Checkpointer:
  """Deletes nothing: the run may be going on."""
  return ocp.training.Checkpointer(storage.absolute(workdir) / "checkpoints")


def claim_workdir(workdir: Path, config: ConfigDict) -> None:
  """Writes config.json, or checks it against the one that is there; before anything compiles.

  Raises ValueError naming every key that differs and is not free to change.
  """
  path = workdir / "config.json"
  now = json.loads(config.to_json_best_effort())
  if path.exists():
    before, after = flatten(json.loads(path.read_text())), flatten(now)
    keys = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    keys = [k for k in keys if not any(k == f or k.startswith(f + ".") for f in FREE_KEYS)]
    if keys:
      changes = ", ".join(f"{k}: {before.get(k)!r} -> {after.get(k)!r}" for k in keys)
      raise ValueError(
        f"--workdir={workdir} belongs to a run with another config ({changes}); "
        "choose another --workdir or give the same config."
      )
  workdir.mkdir(parents=True, exist_ok=True)
  path.write_text(json.dumps(now, indent=2, sort_keys=True))


def flatten(tree: dict, prefix: str = "") -> dict:
  """{"a": {"b": 1}} -> {"a.b": 1}."""
  flat = {}
  for key, value in tree.items():
    if isinstance(value, dict):
      flat |= flatten(value, f"{prefix}{key}.")
    else:
      flat[prefix + key] = value
  return flat
