"""Saves and restores Orbax checkpoints of all that a run changes.

Device state (parameters, optimiser, reference) is the checkpoint; host state (data position, what the run
stands on) rides along as its JSON metadata, with a checksum of every array, all under one digest.  A folder's
name proves nothing: the step is the host state's.  Randomness needs no saving: every key is derived from the
seed and the step.  Saving is asynchronous; commits are atomic.
"""

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import jax
from orbax.checkpoint import v1 as ocp

from grpojax.runtime import checksums, console, processes, sharding, signals, storage
from grpojax.runtime.compile import SENDING

MOVING = ".moving"  # ends the name of a checkpoint's folder on its way to its own name


def open_checkpoints(workdir: Path, keep: int) -> ocp.training.Checkpointer:
  """Opens the checkpoints of a run, of which the newest `keep` stay."""
  return ocp.training.Checkpointer(
    workdir / "checkpoints",
    preservation_policy=ocp.training.preservation_policies.LatestN(keep),
    cleanup_tmp_directories=True,
  )


def save(checkpoints, step: int, tree, host: dict) -> None:
  """Starts saving the state after `step` steps; returns before it is on disk (`finish` waits).

  `host` is plain data with an entry "step".  Raises OSError where it cannot be written, or where there is no
  room for it.
  """
  finish(checkpoints)
  storage.check_room(checkpoints.directory, sum(x.nbytes for x in jax.tree.leaves(tree)))
  kept = {"host": host, "digests": checksums.of_leaves(tree)}
  kept["sha256"] = _digest(kept)
  # One that is made in the background and cannot be made leaves threads that keep the process for 5 minutes.
  context = ocp.Context()
  context.asynchronous.create_directories_asynchronously = False
  with _writing(checkpoints), context, SENDING:  # several processes compare their folders by their devices
    begun = checkpoints.save_checkpointables_async(step, {"tree": tree}, custom_metadata=kept)
  if begun is None:  # Orbax saves no step below those that it finds
    raise OSError(f"{checkpoints.directory}: step {step} was not saved, because of a folder of a later step")


def finish(checkpoints) -> None:
  """Waits for the save under way.  Raises OSError where it could not be written."""
  with _writing(checkpoints):
    checkpoints.wait()


@contextlib.contextmanager
def _writing(checkpoints):
  """Raises OSError for what Orbax's storage raises on a full disk, or in a folder that has gone."""
  try:
    yield
  except Exception as error:
    raise OSError(f"{checkpoints.directory}: a checkpoint could not be written ({error!r:.300})") from error


def _digest(kept: dict) -> str:
  """Returns the SHA-256 of a checkpoint's plain data."""
  return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _kept(checkpoints, step: int) -> dict:
  """Returns a checkpoint's plain data.  Raises ValueError where it is not what was saved."""
  # Read without Orbax, which on a damaged folder also prints tracebacks of its threads.
  file = checkpoints.directory / str(step) / "_CHECKPOINT_METADATA"
  kept = json.loads(file.read_text())["custom_metadata"]
  if kept.pop("sha256", None) != _digest(kept):
    raise ValueError("its host state and checksums are not what was saved")
  return kept


def latest(checkpoints, shapes, shardings, check: Callable[[dict], None] = lambda host: None):
  """Restores (tree, host) of the newest checkpoint that is whole, laid out as `shardings`; None without one.

  A checkpoint that cannot be read, or is not what was saved, is moved to `damaged/`, and the one before it
  is taken; one under another step's name gets its own.  Raises ValueError where all are damaged, where one is
  a link or of another model, optimiser or objective, and what `check` raises of its host state.
  """
  for one in checkpoints.checkpoints:
    if os.path.islink(link := checkpoints.directory / str(one.step)):
      raise ValueError(f"{link} is a link, which no save can delete; put the folder itself in its place.")
  with signals.heard():
    _rename(checkpoints)
  aside = checkpoints.directory.parent / "damaged"
  abstract = sharding.abstract(shapes, shardings)
  for step in sorted((one.step for one in checkpoints.checkpoints), reverse=True):
    with signals.heard():
      found, why = _whole(checkpoints, step, abstract, check)
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


def _rename(checkpoints) -> None:
  """Collective: gives each checkpoint the name of the step that it holds, where that is free or will be."""
  folder, own = checkpoints.directory, {}
  for step in (one.step for one in checkpoints.checkpoints):
    try:
      own[step] = int(_kept(checkpoints, step)["host"]["step"])
    except Exception:  # damaged: `_whole` says how
      own[step] = step
  own = {int(name): step for name, step in json.loads(processes.gather_texts(json.dumps(own))[0]).items()}
  wrong = {name: step for name, step in own.items() if name != step and own.get(step) != step}

  def move():  # in two turns, because two may have each other's name; a start that is killed leaves no third
    for name, step in wrong.items():
      storage.move(folder / str(name), folder / f"{step}{MOVING}")
    for moving in [one for one in folder.iterdir() if one.name.endswith(MOVING)]:
      storage.move(moving, folder / moving.name.removesuffix(MOVING))

  if folder.exists():
    processes.on_process_0(move)
    checkpoints.reload()
  for name, step in wrong.items():
    console.say(f"checkpoint {step} was in a folder of the name {name}, and has its own again")


def _whole(checkpoints, step: int, abstract, check: Callable[[dict], None]):
  """Returns ((tree, host), "") of a checkpoint, or (None, the damage in words)."""
  try:
    kept = _kept(checkpoints, step)
    host, digests = kept["host"], kept["digests"]
    if host["step"] != step:
      return None, f"it holds step {host['step']}"
    saved = checkpoints.checkpointables_metadata(step).metadata["tree"]
    if saved is None:
      return None, "the metadata of its arrays cannot be read"
  except Exception as error:  # whatever Orbax and its storage make of a damaged file
    return None, f"{error!r:.300}"
  check(host)
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
  """Returns the paths of the leaves that are not what was saved."""
  return [path for path, now in checksums.of_leaves(tree).items() if saved.get(path) != now]


def _refuse_another(directory, step: int, saved, abstract) -> None:
  """Raises ValueError naming the leaves in which a checkpoint differs from what this run would save."""
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
  """Moves a damaged checkpoint out of the run's way."""

  def move():
    aside.mkdir(exist_ok=True)
    names = itertools.chain([str(step)], (f"{step}-{n}" for n in itertools.count(1)))
    storage.move(checkpoints.directory / str(step), storage.unused(aside, names))

  processes.on_process_0(move)
  checkpoints.reload()


def steps(workdir: Path) -> list[int]:
  """Returns the steps of the checkpoints in `workdir`, the newest last."""
  with _read_only(workdir) as checkpoints:
    return [one.step for one in checkpoints.checkpoints]


def host_state(workdir: Path, step: int) -> dict:
  """Returns the plain data of a checkpoint.  Raises ValueError where it is not what was saved."""
  with _read_only(workdir) as checkpoints:
    return _kept(checkpoints, step)["host"]


def trained(workdir: Path, shapes, shardings, step: int | None = None) -> tuple[int, dict]:
  """Returns (steps taken, trained parameters) of the newest checkpoint or of `step`; reads nothing else.

  `shapes` and `shardings` are those of the trained parameters.  Raises ValueError where there is no
  checkpoint, and for parameters that are not what was saved.
  """
  with signals.heard(), _read_only(workdir) as checkpoints:
    if checkpoints.latest is None:
      raise ValueError(f"--workdir={workdir} holds no checkpoint; train first, or name another.")
    step = checkpoints.latest.step if step is None else step
    state = {"params": sharding.abstract(shapes, shardings)}
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    try:
      digests = _kept(checkpoints, step)["digests"]
      others = len(checkpoints.checkpointables_metadata(step).metadata["tree"]) - 1
      with context:
        tree = checkpoints.load_checkpointables(step, {"tree": (state, *[None] * others)})["tree"]
    except (jax.errors.JaxRuntimeError, MemoryError):  # no room here says nothing of the files
      raise
    except Exception as error:  # whatever Orbax and its storage make of a damaged file
      raise ValueError(
        f"checkpoint {step} in --workdir={workdir} is damaged ({error!r:.300}); the command that trains takes"
        " the one before it."
      ) from error
    params = tree[0]["params"]
    changed = _changed(({"params": params},), digests)
    if changed:
      what = ", ".join(changed)
      raise ValueError(f"checkpoint {step} in --workdir={workdir} is not what was saved: {what}.")
  return step, params


def _read_only(workdir: Path) -> ocp.training.Checkpointer:
  """Opens checkpoints and deletes none: the run may be going on."""
  return ocp.training.Checkpointer(storage.absolute(workdir) / "checkpoints")
