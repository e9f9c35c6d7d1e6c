"""Does it fit a GPU, and what is the largest that does?  By arithmetic: nothing is compiled.

    grpojax podcheck --config=configs/qwen_gsm8k.py:gpu --topology=gpu:24       # 24 GB; gpu:4090, gpu:8xH100
"""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.config import overrides
from grpojax.runtime import chips, sharding
from grpojax.runtime.chips import Chip
from grpojax.tools.podcheck import necessary, programs, table
from grpojax.tools.podcheck.programs import Plan
from grpojax.tools.podcheck.topology import Slice
from grpojax.train import footprint
from grpojax.train.auto import Machine
from grpojax.train.footprint import Phase

ATTENTION = "cudnn"
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # of a GPU's memory that JAX takes
DEFAULT_FRACTION = 0.75  # https://docs.jax.dev/en/latest/gpu_memory_allocation.html
PEAK, BANDWIDTH = 0.4, 0.4  # shares that are taken for granted; the H200's decoding was measured at 0.40


class Checked(NamedTuple):
  """A config on a GPU."""

  slice: Slice
  plan: Plan
  phases: list[Phase]
  room: float  # bytes of the GPU that JAX takes

  @property
  def verdict(self) -> str:
    if all(phase.most <= self.room for phase in self.phases):
      return "fits"
    return "may fit" if all(phase.least <= self.room for phase in self.phases) else "does not fit"

  @property
  def seconds(self) -> dict[str, float]:
    """Returns seconds of a step by phase, responses of the whole budget; NaN for a GPU without a name."""
    plan, chip, c = self.plan, self.slice.chip, self.plan.config
    passes = c.updates_per_rollout * (3 if plan.model.remat == "none" else 4)  # forward; backward, of two
    forward = necessary.forward(plan) / plan.mesh.size / (chip.flops * PEAK)
    decoding = self.phases[-1].parts
    weights = decoding["the sampler's weights"] or decoding["parameters"]
    of_token = necessary.decode(weights, decoding["keys and values"], plan)
    return {
      "updates": passes * forward,
      "log-probs": programs.log_prob_passes(c) * forward,
      "decoding": programs.decode_steps(plan) * of_token / (chip.hbm * BANDWIDTH),
    }


class Largest(NamedTuple):
  """The largest value of a key, all others as they are, that fits for certain; None: not even the least."""

  key: str
  now: int
  value: int | None


def check(config: ConfigDict, where: Slice, scratch: Path, change: dict | None = None) -> Checked:
  """Sums up what a config takes, with a change of it.  Raises ValueError for one that no run accepts."""
  config = overrides.changed(config, change or {})
  rates = where.chip if where.chip.hbm > 0 else chips.TPUS["v5e"]
  plan = programs.plan(config, Machine(where.devices, room(where.chip), rates, ATTENTION), scratch)
  return Checked(where, plan, footprint.phases(plan), room(where.chip))


def room(chip: Chip) -> float:
  """Returns the bytes of a GPU that JAX will take: its default share, or the one of the environment."""
  return chip.memory * float(os.environ.get(FRACTION, DEFAULT_FRACTION))


def largest(found: Checked, scratch: Path) -> Iterator[Largest]:
  """Yields how far lengths, slots and the pieces of an update can go, each alone."""
  config = found.plan.config
  fits = lambda key, value: check(config, found.slice, scratch, {key: value}).verdict == "fits"
  c, shards = config.rollout, sharding.batch_shards(found.plan.mesh)
  tokens = [128 * 2**n for n in range(9)]  # up to 32,768
  yield Largest("rollout.max_tokens", c.max_tokens, _last(fits, "rollout.max_tokens", tokens))
  if c.slots:
    slots = [shards * 2**n for n in range(15) if shards * 2**n <= c.prompts * c.group_size]
    yield Largest("rollout.slots", c.slots, _last(fits, "rollout.slots", slots))
  of_update = c.prompts // config.updates_per_rollout * c.group_size // shards
  pieces = [n for n in range(of_update, 0, -1) if of_update % n == 0]
  yield Largest("microbatches", config.microbatches, _last(fits, "microbatches", pieces))


def _last(fits: Callable, key: str, values: list[int]) -> int | None:
  """Returns the last of the values, which take more and more, that fits."""
  found = None
  for value in values:
    try:
      if not fits(key, value):
        break
    except ValueError:  # no run accepts the value
      continue
    found = value
  return found


def changes(checked: Checked) -> Iterator[dict]:
  """Yields changes for a config that may not fit, the cheapest first, each with those before it.

  Adapters come last: they train something else.
  """
  config, change = checked.plan.config, {}
  over = {phase.name for phase in checked.phases if phase.most > checked.room}
  if "update" in over:
    for change["microbatches"] in (2 * checked.plan.pieces, 4 * checked.plan.pieces):
      yield dict(change)
    if config.remat != "full":
      change["remat"] = "full"
      yield dict(change)
  if "decoding" in over:
    for change["rollout.slots"] in (checked.plan.slots // 2, checked.plan.slots // 4):
      yield dict(change)
    change["rollout.kv_cache"] = "int8"
    yield dict(change)
  if not config.lora.rank:
    yield {"lora.rank": 16}
    yield change | {"lora.rank": 16}


def text(checked: Checked) -> str:
  """Formats the table and the verdict."""
  plan, chip, GB = checked.plan, checked.slice.chip, 1e9
  line = lambda cells: f"| {' | '.join(cells)} |"
  rows = [line(["GB of one GPU", *(phase.name for phase in checked.phases)]), "|---" * 3 + "|"]
  for what in dict.fromkeys(key for phase in checked.phases for key in phase.parts):
    values = [phase.parts.get(what) for phase in checked.phases]
    if not any(values):
      continue
    rows.append(line([what, *("" if v is None else f"{v / GB:.2f}" for v in values)]))
  rows.append(line(["**in all**", *(f"**{phase.least / GB:.1f}**" for phase in checked.phases)]))
  rows.append(line(["at most, with what XLA adds", *(f"{phase.most / GB:.1f}" for phase in checked.phases)]))
  share = checked.room / chip.memory
  rows += [
    "",
    f"**{checked.verdict}** in {checked.room / GB:.1f} GB: {share:.0%} of {chip.memory / GB:.0f} GB is what "
    f"JAX takes ({FRACTION}); {plan.slots} slots, an update in {plan.pieces} piece(s), every response "
    "as long as its budget.",
    *([f"chosen: {plan.chosen}"] if plan.chosen else []),
  ]  # fmt: skip
  seconds = checked.seconds
  if not math.isnan(sum(seconds.values())):
    parts = ", ".join(f"{name} {s:.3g}" for name, s in seconds.items())
    rows.append(
      f"A step: {sum(seconds.values()):.3g} s ({parts}), if products reach {PEAK} of the peak and decoding "
      f"{BANDWIDTH} of the bandwidth."
    )
  return "\n".join([*rows, "All of it is arithmetic; nothing was compiled."])


def advice(found: list[Largest]) -> str:
  """Formats the largest values."""
  rows = ["The largest that fit, each alone:"]
  for one in found:
    what = "fewest" if one.key == "microbatches" else "at most"
    value = f"={one.value}  # {what};" if one.value else ": none fits;"
    rows.append(f"  --config.{one.key}{value} now {one.now}")
  return "\n".join(rows)


def tried(change: dict, checked: Checked) -> str:
  """Formats a change that was tried."""
  most = max(phase.most for phase in checked.phases)
  return f"  {table.flags(change)}: {checked.verdict}, at most {most / 1e9:.1f} GB"
