"""The check of one config on one slice: every program compiled, with its memory and time."""

from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.runtime import sharding
from grpojax.tools.podcheck import compiled, necessary, programs
from grpojax.tools.podcheck.compiled import Compiled
from grpojax.tools.podcheck.programs import Plan, Program
from grpojax.tools.podcheck.roofline import estimate
from grpojax.tools.podcheck.roofline.estimate import Estimate
from grpojax.tools.podcheck.topology import Slice
from grpojax.train import footprint

PROGRAMS = "update", "log-probs", "weights", "prefill", "decode"
ON_SAMPLER = "prefill", "decode"  # where it has devices of its own


class Checked(NamedTuple):
  """One program that was checked."""

  calls: float  # in a step
  compiled: Compiled
  memory: dict[str, float]  # bytes on a chip, by what; the whole of it is `needed`
  needed: float  # bytes: the compiler's, and those of arrays that stay allocated meanwhile
  estimate: Estimate | None

  @property
  def of_step(self) -> float:
    """Returns seconds in one step of training."""
    return self.calls * self.estimate.seconds if self.estimate else float("nan")


class Check(NamedTuple):
  slice: Slice
  plan: Plan
  parts: dict[str, Checked]

  @property
  def fits(self) -> bool:
    """Returns True if every program compiles and fits the chip's memory with the arrays beside it."""
    room = self.slice.chip.memory if self.slice.chip else float("inf")
    return all(not p.compiled.refused and p.needed <= room for p in self.parts.values())

  @property
  def seconds(self) -> float:
    """Returns seconds of a step whose responses take the whole budget; rewards and host not counted.

    Where the sampler has devices of its own, both work at the same time, and the slower one counts.
    """
    apart = self.plan.config.mesh.rollout_devices and self.plan.config.staleness
    return max(self.sampling, self.learning) if apart else self.sampling + self.learning

  @property
  def sampling(self) -> float:
    """Returns seconds of a step's prefills and decoding."""
    return sum(p.of_step for name, p in self.parts.items() if name in ON_SAMPLER)

  @property
  def learning(self) -> float:
    """Returns seconds of a step's other programs."""
    return sum(p.of_step for name, p in self.parts.items() if name not in ON_SAMPLER)


def check(config: ConfigDict, where: Slice, scratch: Path, only: tuple[str, ...] = ()) -> Check:
  """Compiles all programs, or those named in `only`.  Raises ValueError for a config that no run accepts."""
  if set(only) - set(PROGRAMS):
    raise ValueError(f"--programs={','.join(only)}: the programs are {', '.join(PROGRAMS)}.")
  if config.env.name:
    raise ValueError(
      f"config.env.name = '{config.env.name}': the programs of environments are not checked; leave it out to "
      "see what updates and log-probs take."
    )
  if config.teacher.path or config.teacher.paths:
    raise ValueError(
      f"config.teacher.path = '{config.teacher.path}', or .paths: the teacher's pass is not checked; leave "
      "out what reads it to see what updates, log-probs and sampling take."
    )
  plan = programs.plan(config, where.machine, scratch)
  todo = {"update": programs.update, "log-probs": programs.log_probs}
  todo = {name: make(plan) for name, make in todo.items() if not only or name in only}
  if not only or set(PROGRAMS[2:]) & set(only):
    todo |= {name: p for name, p in programs.sampling(plan).items() if not only or name in only}
  if not todo:
    raise ValueError(f"--programs={','.join(only)}: this run has none of them; leave --programs out for all.")
  return Check(where, plan, {name: _one(where, plan, name, p) for name, p in todo.items()})


def _one(where: Slice, plan: Plan, name: str, program: Program) -> Checked:
  done = compiled.compile_for(where, program)
  memory = programs.arguments(program)
  known = sum(memory.values())
  if name == "update":
    memory["gradients"] = memory["parameters"]
    memory["activations"] = footprint.activations(plan)
    known += memory["gradients"] + memory["activations"]
  memory["temporaries"] = max(done.needed - known, 0.0)
  beside = resident(plan, name)
  memory["beside"] = beside
  times = estimate.estimate(done.counts, where.chip) if done.counts else None
  return Checked(program.calls, done, memory, done.needed + beside, times)


def resident(plan: Plan, name: str) -> float:
  """Returns bytes on a device of arrays that a program does not use and that stay allocated meanwhile."""
  if name in ON_SAMPLER and plan.config.mesh.rollout_devices:
    return 0.0
  reference = footprint.parameters(plan) if plan.config.reference else 0
  if name == "update":
    return reference
  state, layout = programs.state(plan)
  optimiser = sharding.bytes_per_chip(state.opt_state, layout.opt_state)
  own = footprint.parameters(plan) if name in ("prefill", "decode") and plan.copies else 0
  return reference + optimiser + own


def per_token(plan: Plan, part: Checked) -> tuple[float, float]:
  """Returns (seconds of one step of the decode loop, bytes it cannot do without)."""
  steps = part.calls and programs.decode_steps(plan) / part.calls
  least = necessary.decode(part.memory["parameters"], part.memory.get("KV", 0), plan)
  return part.estimate.seconds / steps, least
