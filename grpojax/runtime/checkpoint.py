"""Orbax checkpoints of everything that changes, and the check that a workdir belongs to this run.

Device state (parameters, optimiser, reference) is the checkpoint; host state (data position, counters)
rides along as its JSON metadata.  Randomness needs no saving: every key is derived from the seed
and the step.  Saving is asynchronous; commits are atomic.
"""

import contextlib
import json
from pathlib import Path

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict
from orbax.checkpoint import v1 as ocp

from grpojax.models import Model
from grpojax.runtime import checksums, console, processes, sharding, storage

# What may change between a run and its continuation: how long, how often, on what, how loudly.
FREE_KEYS = (
  "steps", "verbose", "mesh", "attention", "microbatches", "rows", "logprob_chunk", "eval.every",
  "checkpoint", "cache_dir", "profile_steps", "print_sharding",
  "guard.nonfinite", "guard.warn_mismatch", "guard.stop_mismatch", "guard.failed_rewards",
  "guard.minutes",
)  # fmt: skip


def open_checkpoints(workdir: Path, keep: int) -> ocp.training.Checkpointer:
  return ocp.training.Checkpointer(
    workdir / "checkpoints",
    preservation_policy=ocp.training.preservation_policies.LatestN(keep),
    cleanup_tmp_directories=True,
  )


def save(checkpoints, step: int, tree, host: dict) -> None:
  """Starts saving the state after `step` steps; returns before it is on disk (`finish` waits).

  OSError if it cannot be written, or if there is no room for it.
  """
  finish(checkpoints)
  if checkpoints.latest is not None and checkpoints.latest.step >= step:
    return  # on disk already: a run that is stopped right after an interval's save
  storage.check_room(checkpoints.directory, sum(x.nbytes for x in jax.tree.leaves(tree)))
  kept = {"host": host, "digests": checksums.of_leaves(tree)}
  with _writing(checkpoints):
    checkpoints.save_checkpointables_async(step, {"tree": tree}, custom_metadata=kept)


def finish(checkpoints) -> None:
  """Waits for the save under way.  OSError if it could not be written."""
  with _writing(checkpoints):
    checkpoints.wait()


@contextlib.contextmanager
def _writing(checkpoints):
  """Orbax's storage has errors of its own for a full disk or a folder that has gone."""
  try:
    yield
  except Exception as error:
    raise OSError(f"{checkpoints.directory}: a checkpoint could not be written ({error!r:.300})") from error


def latest(checkpoints, shapes, shardings):
  """(tree, host) of the newest checkpoint that is whole, laid out as `shardings`; None if there is none.

  One that cannot be read, or is not what was saved, is set aside in `damaged/`, and the one before it is
  taken.  ValueError if all are damaged, or if one is of another model, optimiser or objective.
  """
  aside = checkpoints.directory.parent / "damaged"
  abstract = sharding.abstract(shapes, shardings)
  for step in sorted((one.step for one in checkpoints.checkpoints), reverse=True):
    found, why = _whole(checkpoints, step, abstract)
    why = next(filter(None, processes.gather_texts(why)), "")  # collective: damaged for one, for all
    if not why:
      return found
    _set_aside(checkpoints, step, aside)
    console.say(f"checkpoint {step} is damaged and now in {aside}: {why}")
  if aside.is_dir() and any(aside.iterdir()):
    raise ValueError(
      f"--workdir={aside.parent}: every checkpoint is damaged (they are in {aside}); bring one back into "
      f"{checkpoints.directory}, or choose another --workdir to begin anew."
    )
  return None


def _whole(checkpoints, step: int, abstract):
  """((tree, host), "") of a checkpoint, or (None, what is wrong with it)."""
  try:
    saved = checkpoints.checkpointables_metadata(step).metadata["tree"]
    if saved is None:
      return None, "the metadata of its arrays cannot be read"
    kept = checkpoints.metadata(step).custom_metadata
    host, digests = kept["host"], kept["digests"]
  except Exception as error:  # whatever Orbax and its storage make of a damaged file
    return None, f"{error!r:.300}"
  _refuse_another(checkpoints.directory, step, saved, abstract)
  try:
    tree = checkpoints.load_checkpointables(step, {"tree": abstract})["tree"]
    changed = _changed(tree, digests)
    return (tree, host), f"not what was saved: {', '.join(changed)}" if changed else ""
  except (jax.errors.JaxRuntimeError, MemoryError):  # no room here says nothing of the files
    raise
  except Exception as error:
    return None, f"{error!r:.300}"


def _changed(tree, saved: dict[str, int]) -> list[str]:
  """Paths of the leaves that are not what was saved."""
  return [path for path, now in checksums.of_leaves(tree).items() if saved.get(path) != now]


def _refuse_another(directory, step: int, saved, abstract) -> None:
  """ValueError naming the leaves in which a checkpoint differs from what this run would save."""
  leaves = lambda tree: dict(zip(checksums.paths(tree), jax.tree.leaves(tree), strict=True))
  form = lambda x: f"{x.dtype}{list(x.shape)}" if x is not None else "missing"
  there, here = leaves(saved), leaves(abstract)
  both = {path: (form(there.get(path)), form(here.get(path))) for path in sorted(there.keys() | here.keys())}
  other = [f"{path}: {was} -> {now}" for path, (was, now) in both.items() if was != now]
  if other:
    more = f" and {len(other) - 5} more" if len(other) > 5 else ""
    raise ValueError(
      f"checkpoint {step} in {directory} is of another model, optimiser or objective "
      f"({', '.join(other[:5])}{more}); give its config, or choose another --workdir."
    )


def _set_aside(checkpoints, step: int, aside) -> None:
  """Moves a checkpoint out of the run's way."""

  def move():
    aside.mkdir(exist_ok=True)
    before = aside.iterdir() if aside.is_dir() else []  # in a bucket there is no empty folder
    number = sum(other.name.split("-")[0] == str(step) for other in before)
    storage.move(checkpoints.directory / str(step), aside / (f"{step}-{number}" if number else str(step)))

  processes.on_process_0(move)
  checkpoints.reload()


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
    digests = checkpoints.metadata(step).custom_metadata["digests"]
    changed = _changed(({"params": tree[0]["params"]},), digests)
    if changed:
      what = ", ".join(changed)
      raise ValueError(f"checkpoint {step} in --workdir={workdir} is not what was saved: {what}.")
  return step, tree[0]["params"]


def _read_only(workdir: Path) -> ocp.training.Checkpointer:
  """Deletes nothing: the run may be going on."""
  return ocp.training.Checkpointer(storage.absolute(workdir) / "checkpoints")


def claim_workdir(workdir: Path, config: ConfigDict) -> None:
  """Writes config.json, or checks it against the one that is there; before anything compiles.

  Raises ValueError naming every key that differs and is not free to change.
  """
  if changes := differences(workdir, config):
    raise ValueError(
      f"--workdir={workdir} belongs to a run with another config ({changes}); "
      "choose another --workdir or give the same config."
    )
  workdir.mkdir(parents=True, exist_ok=True)
  now = json.loads(config.to_json_best_effort())
  storage.write(workdir / "config.json", json.dumps(now, indent=2, sort_keys=True))


def differences(workdir: Path, config: ConfigDict) -> str:
  """What of the config in `workdir` differs and is not free to change; "" also if there is none."""
  path = workdir / "config.json"
  if not path.exists():
    return ""
  before, after = flatten(json.loads(path.read_text())), flatten(json.loads(config.to_json_best_effort()))
  keys = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
  keys = [k for k in keys if not any(k == f or k.startswith(f + ".") for f in FREE_KEYS)]
  return ", ".join(f"{k}: {before.get(k)!r} -> {after.get(k)!r}" for k in keys)


def flatten(tree: dict, prefix: str = "") -> dict:
  """{"a": {"b": 1}} -> {"a.b": 1}."""
  flat = {}
  for key, value in tree.items():
    if isinstance(value, dict):
      flat |= flatten(value, f"{prefix}{key}.")
    else:
      flat[prefix + key] = value
  return flat
