"""Fields that a function reads beside its arguments, and the sentence for a run that lacks one."""

from typing import NamedTuple

from grpojax.types import Array, Batch


class Extra(NamedTuple):
  """An entry of Batch.extra."""

  per: str  # "row": [P, G]; "token": [P, G, T]; "step", "part": [P, G, K] of K process steps, rewards
  source: str  # who fills it


_PROCESS = "set config.process.scorer"
_POOL = "set config.adaptive_group.stop"
_PARTS = "set config.objective.advantage.fn = 'gdpo', for which rewards are kept apart"
EXTRA = dict(
  part=Extra("part", _PARTS),
  part_valid=Extra("part", _PARTS),
  part_weight=Extra("part", _PARTS),
  baseline=Extra("row", "set config.baseline.kind"),
  moment=Extra("row", "set config.moment.kind"),
  pool_mean=Extra("row", _POOL),
  pool_std=Extra("row", _POOL),
  grad_norm=Extra("row", "set config.objective.advantage.fn = 'optimal_baseline'"),
  kind=Extra("token", "set config.env.name, without which there are no observations"),
  lag=Extra("token", "take what reads it out, or set config.objective.shape: log_linear"),
  teacher=Extra("row", "set config.teacher.paths"),
  step_score=Extra("step", _PROCESS),
  step_end=Extra("step", _PROCESS),
)
SOURCE = dict(
  ref_logp="set config.reference = 'init'",
  sampler_logp="take what reads it out of config.objective, or let the sampler return it",
  old_logp="let the learner recompute it, or set config.objective.shape.bypass = dict(fn='bypass')",
  entropy="let the learner return it beside log π_old",
  teacher_logp="set config.teacher.path or .paths",
  divergence="set config.teacher.path or .paths, and config.teacher.divergence",
) | {name: extra.source for name, extra in EXTRA.items()}


def field(batch: Batch, name: str) -> Array:
  """Returns batch.<name> or batch.extra[name]; raises ValueError, while tracing, where it is absent."""
  value = batch.extra.get(name) if name in EXTRA and batch.extra else getattr(batch, name, None)
  if value is None:
    raise missing(name)
  return value


def missing(name: str) -> ValueError:
  """Returns the error of a run that lacks a field."""
  return ValueError(f"config.objective needs '{name}', which this run does not have: {SOURCE[name]}.")
