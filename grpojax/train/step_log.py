"""What a step leaves in metrics.jsonl, written while the device already works on the next one."""

from pathlib import Path
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from grpojax.rollout.dynamic_sampling import Groups
from grpojax.runtime import console, metrics
from grpojax.train import guard, run_stats
from grpojax.train.run_stats import Memory


class Owed(NamedTuple):
  """A step whose updates may still run."""

  step: int
  learned: list[dict]  # metrics of its updates, on the device
  seen: dict[str, float]  # all that the host knows already
  showcase: list[dict]  # for completions.jsonl
  times: dict[str, float] | None  # the step's seconds by phase; None: it ends when the updates have
  groups: Groups  # to be kept if an update was skipped


def settle(
  config: ConfigDict, files: Path, timer, writer, progress, known: Memory, owed: Owed | None
) -> Memory:
  """Waits for the step's updates, writes its record and shows it; the memory that has taken note of it.

  ArithmeticError where `guard` stops the run.
  """
  if owed is None:
    return known
  with timer.phase("update"):
    learned = metrics.over_updates(jax.device_get(owed.learned))
  seen = learned | owed.seen | (owed.times or timer.take())
  seen |= rates(config, seen)
  known = run_stats.after(config, known, seen)
  seen |= run_stats.describe(config, known)
  writer.write("train", owed.step, seen)
  writer.completions(owed.step, owed.showcase)
  console.advance(progress, owed.step, seen)
  if seen["update/skipped"]:
    guard.keep(files, owed.step, jax.process_index(), owed.groups)
  guard.check(config, owed.step, known, seen)
  return known


def rates(config: ConfigDict, seen: dict[str, float]) -> dict[str, float]:
  """Sampled tokens per second; the shares of slots at work and of padding in prefill.

  A phase has a speed only if the device is waited for in it.
  """
  phases = ("step",) if config.staleness else ("step", "rollout", "update")
  shares = {f"tokens_per_second/{p}": seen["num_tokens"] / seen[f"time/{p}"] for p in phases}
  if "rollout/slot_steps" in seen:
    shares["rollout/slot_utilisation"] = seen["rollout/fed_slot_steps"] / max(seen["rollout/slot_steps"], 1)
    shares["rollout/prefill_padding"] = 1 - seen["rollout/prompt_tokens"] / seen["rollout/prefill_columns"]
  return shares
