"""A step's record in metrics.jsonl, written while the device already works on the next step."""

from pathlib import Path
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from grpojax.runtime import console, diagnosis, memory
from grpojax.runtime import metrics as metrics_lib
from grpojax.train import guard, samples
from grpojax.types import Groups

AFTER_STEP = ("kl_scale", guard.NONFINITE_STEPS)  # of a step's updates the last one has these


class PendingRecord(NamedTuple):
  """A step whose updates may still run."""

  step: int
  updates: list[dict]  # metrics of the step's updates, on the device
  metrics: dict[str, float]  # all that the host knows already
  samples: list[dict]  # for completions.jsonl, advantages and entropies still on the device
  times: dict[str, float]  # seconds by phase since the record before
  groups: Groups | None  # to be kept if an update was skipped; None: nothing was sampled


def write(config: ConfigDict, files: Path, writer, progress, pending: PendingRecord) -> dict:
  """Writes, shows and returns the record.  Raises ArithmeticError where `guard` stops the run."""
  updates = jax.device_get(pending.updates)
  found = metrics_lib.over_updates(updates)
  found |= {name: float(updates[-1][name]) for name in AFTER_STEP if name in found}
  nonfinite_steps = int(found.pop(guard.NONFINITE_STEPS))
  found |= pending.metrics | pending.times
  found |= rates(config, found) | memory.peaks()
  writer.write("train", pending.step, found)
  writer.completions(pending.step, samples.on_host(pending.samples))
  shown = metrics_lib.of_drawn(found)
  if found.get("dynamic_sampling/keep_rate") == 0:
    del shown["entropy"]  # of no token
  console.advance(progress, pending.step, shown)
  if found["update/skipped"] and pending.groups:
    guard.keep(files, pending.step, jax.process_index(), pending.groups)
  guard.check(config, pending.step, nonfinite_steps, found)
  return found | {"step": pending.step}


def tell(records: list[dict], told: set[str]) -> None:
  """Prints why nothing is being learned in these steps; each cause once, which `told` remembers."""
  for cause, sentence in diagnosis.sentences(records).items():
    if cause not in told:
      console.say(sentence)
      told.add(cause)


def add_times(times: dict[str, float], more: dict[str, float]) -> dict[str, float]:
  """Returns the seconds of both, by phase."""
  return {name: times.get(name, 0.0) + more.get(name, 0.0) for name in times | more}


def rates(config: ConfigDict, metrics: dict[str, float]) -> dict[str, float]:
  """Returns sampled tokens per second, and the shares of slots at work and of padding in prefill.

  A phase has a speed only if the device is waited for in it.
  """
  phases = ("step",) if config.staleness else ("step", "rollout", "update")
  tokens, seconds = metrics["num_tokens"], {p: metrics.get(f"time/{p}") for p in phases}
  shares = {f"tokens_per_second/{p}": tokens / s for p, s in seconds.items() if s}
  if "rollout/slot_steps" in metrics:
    steps = max(metrics["rollout/slot_steps"], 1)
    shares["rollout/slot_utilisation"] = metrics["rollout/fed_slot_steps"] / steps
    padding = 1 - metrics["rollout/prompt_tokens"] / metrics["rollout/prefill_columns"]
    shares["rollout/prefill_padding"] = padding
  if "rollout/row_tokens" in metrics:
    computed = metrics["rollout/prompt_tokens"] + metrics["rollout/fed_slot_steps"]
    shares["rollout/computed_ratio"] = computed / max(metrics["rollout/row_tokens"], 1)
  return shares
