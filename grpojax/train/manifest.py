"""What a run stands on beside its parameters, as plain data: in every checkpoint, compared at every start.

Host state and the checksums of all arrays lie beside it, under one digest (runtime/checkpointer.py).  A part
of schema.PARTS that differs would change what the run means, and needs config.checkpoint.allow_changed;
another version of the code or of a library, or another commit on the hub with the same rows, is said, and
needs nothing.
"""

import hashlib
from importlib import metadata

from ml_collections import ConfigDict

from grpojax.config import schema
from grpojax.config import workdir as workdir_lib
from grpojax.config.workdir import Run
from grpojax.data import pipeline
from grpojax.runtime import checksums, console, hub, processes
from grpojax.train.setup import Job

LIBRARIES = ("jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "grain", "transformers")


def describe(job: Job, run: Run) -> dict:
  """Collective: returns the manifest of this start; what process 0 read of the run counts."""
  data, devices = job.data, job.mesh.devices.flat
  tokens = data.tokenizer.backend_tokenizer.to_str().encode()
  return {
    "run": processes.gather_texts(run.id)[0],
    "config": workdir_lib.plain(job.asked),
    "data": {
      "train": pipeline.fingerprint(data.train),
      "held_out": pipeline.fingerprint(data.held_out),
      "tokenizer": hashlib.sha256(tokens).hexdigest()[:12],
    },
    "devices": " ".join(sorted({f"{device.platform}: {device.device_kind}" for device in devices})),
    "versions": processes.code() | {name: metadata.version(name) for name in LIBRARIES} | hub.commits(),
  }


def compare(saved: dict, now: dict, config: ConfigDict, step: int) -> None:
  """Raises ValueError naming the parts in which `now` differs from the manifest of checkpoint `step`.

  Says what else differs: a part that config.checkpoint.allow_changed names, and versions.
  """
  parts = [part for part in schema.PARTS if part != "frozen"]
  found = {part: _differences(part, saved[part], now[part], config) for part in parts}
  _refuse({part: what for part, what in found.items() if what}, config, step)
  if versions := _entries(saved["versions"], now["versions"]):
    console.say(f"note: the code has changed since checkpoint {step}: {versions}; last digits may differ")


def compare_records(saved: dict[str, str], now: dict[str, str], step: int) -> None:
  """Says which records up to checkpoint `step` are no longer those that the run had written."""
  for name in sorted(name for name in now if now[name] != saved[name]):
    console.say(f"note: {name}.jsonl has changed since checkpoint {step}: a record of it is another, or lost")


def compare_frozen(saved: dict[str, int], frozen: dict, config: ConfigDict, step: int) -> None:
  """Raises ValueError where the weights under the adapters are not those of checkpoint `step`."""
  if what := frozen_differences(saved, frozen, config):
    _refuse({"frozen": what}, config, step)


def compare_teacher(saved: dict[str, int], now: dict[str, int], config: ConfigDict, step: int) -> None:
  """Raises ValueError where the teachers' weights are not those of checkpoint `step`."""
  path = config.teacher.path or ", ".join(config.teacher.paths.values())
  if what := _other_weights(saved, now, f"config.teacher.path = '{path}'"):
    _refuse({"frozen": what}, config, step)


def frozen_differences(saved: dict[str, int], frozen: dict, config: ConfigDict) -> str:
  """Returns which of the weights under the adapters have other checksums than `saved`; "" for none."""
  path = config.model.get("path")
  where = f"config.model.path = {path!r}" if path else "frozen/ of the workdir"
  return _other_weights(saved, checksums.of_leaves(frozen), where)


def _other_weights(saved: dict[str, int], now: dict[str, int], where: str) -> str:
  other = sorted(name for name in saved.keys() | now.keys() if saved.get(name) != now.get(name))
  if not other:
    return ""
  more = f" and {len(other) - 3} more" if len(other) > 3 else ""
  return f"{where} holds other weights: {', '.join(other[:3])}{more}"


def _differences(part: str, saved, now, config: ConfigDict) -> str:
  if part == "config":
    return workdir_lib.changes(saved, config)
  if part == "data":
    return _entries(saved, now)
  return f"{saved} -> {now}" if saved != now else ""


def _entries(saved: dict, now: dict) -> str:
  """Returns "name: before -> after, ..." of the entries that differ."""
  names = sorted(name for name in saved.keys() | now.keys() if saved.get(name) != now.get(name))
  return ", ".join(f"{name}: {saved.get(name)} -> {now.get(name)}" for name in names)


def _refuse(found: dict[str, str], config: ConfigDict, step: int) -> None:
  """Raises ValueError for the parts that may not differ, and says those that may."""
  allowed = config.checkpoint.allow_changed
  for part, what in found.items():
    if allowed not in (part, "all"):
      raise ValueError(
        f"checkpoint {step} differs in {part} ({what}); bring that back, choose another --workdir, or "
        "go on all the same with --config.checkpoint.allow_changed="
        f"{'all' if allowed or len(found) > 1 else part}."
      )
    console.say(f"note: going on from checkpoint {step}, which differs in {part} ({what})")
