"""Suggestions for a config that does not fit: single changes in turn, then all that helped."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.config import overrides
from grpojax.tools.podcheck import check as check_lib
from grpojax.tools.podcheck.check import Check
from grpojax.tools.podcheck.topology import Slice

LEARNING, SAMPLING = ("update", "log-probs"), ("weights", "prefill", "decode")


class Tried(NamedTuple):
  """A change of the config, and the result of its check."""

  change: dict  # dotted key -> value
  fits: bool
  needed: float  # bytes of a chip, of the program that takes most; NaN where the compiler does not say
  error: str = ""  # why no run accepts the change


def suggest(config: ConfigDict, found: Check, scratch: Path) -> Iterator[Tried]:
  """Tries changes until one fits, compiling only the programs that did not; none if `found` fits."""
  failed = [name for name, p in found.parts.items() if _too_large(found, p)]
  if not failed:
    return
  helped = {}
  for change in changes(failed, found):
    tried = attempt(config, found.slice, change, failed, scratch)
    yield tried
    if tried.fits:
      return
    if not tried.error:
      helped |= change
  if helped:
    yield attempt(config, found.slice, helped, failed, scratch)


def changes(failed: list[str], found: Check) -> list[dict]:
  """Lists changes, the cheapest first: those that cost no time, then those that cost some."""
  config, mesh, listed = found.plan.config, found.plan.mesh.shape, []
  c = config.rollout
  if set(failed) & set(LEARNING):
    listed.append(dict(microbatches=2 * found.plan.pieces))
    listed.append(dict(logprob_chunk=max(config.logprob_chunk // 4, 32)))
    if config.remat != "full":
      listed.append(dict(remat="full"))
  if set(failed) & set(SAMPLING):
    listed.append({"rollout.kv_cache": "int8"})
    listed.append({"rollout.slots": found.plan.slots // 2})
    listed.append({"rollout.weights": "int8"})
    listed.append({"rollout.prefill_chunk": max(c.prefill_chunk // 4, 32)})
  if "update" in failed and config.optimizer.fn != "adafactor" and config.optimizer.b2 <= 0.99:
    listed.append({"optimizer.state_dtype": "bfloat16"})
  if mesh["fsdp"] > 1 and mesh["fsdp"] % 2 == 0:
    listed.append({"mesh.tensor": 2 * mesh["tensor"], "mesh.fsdp": mesh["fsdp"] // 2})
  if mesh["data"] > 1:
    listed.append({"mesh.fsdp": mesh["fsdp"] * mesh["data"], "mesh.data": 1})
  now = config.to_dict()
  return [change for change in listed if any(_value(now, key) != value for key, value in change.items())]


def attempt(config: ConfigDict, where: Slice, change: dict, only: list[str], scratch: Path) -> Tried:
  """Checks a changed config, for some of its programs."""
  changed = overrides.changed(config, change)
  try:
    found = check_lib.check(changed, where, scratch, tuple(only))
  except ValueError as error:
    return Tried(change, False, float("nan"), str(error))
  needed = max((found.parts[name].needed for name in only if name in found.parts), default=float("nan"))
  return Tried(change, found.fits, needed)


def _too_large(found: Check, part: check_lib.Checked) -> bool:
  room = found.slice.chip.memory if found.slice.chip else float("inf")
  return bool(part.compiled.refused) or part.needed > room


def _value(tree: dict, dotted: str):
  for key in dotted.split("."):
    tree = tree[key]
  return tree
