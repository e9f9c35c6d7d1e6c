"""The pieces of an update, what a layer keeps of them, and how many logits exist at once."""

import itertools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.config.overrides import changed
from grpojax.learner import rows
from grpojax.models import Model
from grpojax.runtime import sharding
from grpojax.train import footprint
from grpojax.train.auto.keys import NONE_FITS, open_keys
from grpojax.train.auto.machine import Machine
from grpojax.train.footprint import Sizes

OVERLAPPED = 8  # devices of a slice, along all of which the compiler still hides sums
FEWEST_PIECES = 8  # packed rows fill whole pieces, and half a piece is empty at the end
TOKENS = 2048  # of a device, whose logits exist at once: the head's gradient is written once a chunk
CHUNK = 512  # the least part of them of one row


def choose(
  config: ConfigDict, closed: ConfigDict, machine: Machine, model: Model, mesh: Mesh, state: dict
) -> tuple[float, dict]:
  """Returns (seconds of a step lost, remat, microbatches and logprob_chunk).

  The fewest pieces, from FEWEST_PIECES on, that fit beside footprint.state, with as much kept as fits; fewer
  if devices wait for links, which gather all parameters once a piece.  If none fits, the least there is; the
  run says what is missing.
  """
  plan = lambda values: footprint.sizes(changed(closed, values), model._replace(remat=values["remat"]), mesh)
  fits = lambda sizes: footprint.update(sizes, state).most <= machine.memory
  for values in _candidates(config, closed, model, mesh, FEWEST_PIECES):
    if fits(first := plan(values)):
      break
  else:
    return NONE_FITS, values
  found = {_lost(first, machine): values}
  tried = _candidates(config, closed, model, mesh, 1) if _waits(first, machine) else ()
  for fewer in tried:
    likewise = fewer["microbatches"] < first.pieces and fewer["remat"] == values["remat"]
    if likewise and fits(sizes := plan(fewer)):
      half_empty = (1 / sizes.pieces - 1 / first.pieces) / 2 * _compute(first, machine)
      found.setdefault(_lost(sizes, machine) + half_empty, fewer)
  return config.updates_per_rollout * min(found), found[min(found)]


def _lost(sizes: Sizes, machine: Machine) -> float:
  """Returns seconds of an update in which a device waits for others or computes twice."""
  s, mesh = sizes.model.spec, sizes.mesh.shape
  link, tokens = 2 * machine.chip.link or math.inf, sizes.columns / sizes.mesh.size
  hidden = s.num_hidden_layers * s.hidden_size * jnp.dtype(s.dtype).itemsize * tokens * mesh["tensor"]
  lost = 6 * hidden * 2 * (1 - 1 / mesh["tensor"]) / link
  again = (0.05 if sizes.model.remat == "full" else 0) + (0.1 if sizes.config.logprob_chunk < CHUNK else 0)
  return _waits(sizes, machine) + lost + again * _compute(sizes, machine)


def _waits(sizes: Sizes, machine: Machine) -> float:
  """Returns seconds of an update in which a device waits for parameters or for sums of gradients.

  SparseCores gather (twice) and sum while there is work.  Without them the compiler sums gradients that are
  cut over all devices of a slice, or over two axes, by an all-reduce that nothing hides, and one along `fsdp`
  by a reduce-scatter that it does hide (docs/pods.md).
  """
  mesh, embed = sizes.mesh.shape, sharding.mesh_axes(sizes.model.rules["embed"])
  cut, link = math.prod(mesh[axis] for axis in embed), 2 * machine.chip.link or math.inf
  whole = sizes.pieces * 2 * _trained(sizes.model) / mesh["expert"] / link
  if not machine.chip.sparse_cores:
    return 2 * whole if (mesh["context"] > 1 and "context" in embed) or cut > OVERLAPPED else 0.0
  alike = 1 if "context" in embed else mesh["context"]  # devices with the same parameters
  sums = 1 - 1 / cut + 2 / cut * (1 - 1 / alike)
  if sizes.model.spec.moe and alike > 1:  # experts' gradients are summed whole
    sums = 2 * (1 - 1 / cut / alike)
  return max(0.0, (2 * (1 - 1 / cut) + sums) * whole / mesh["tensor"] - _compute(sizes, machine))


def _compute(sizes: Sizes, machine: Machine) -> float:
  """Returns seconds of an update's products at the peak, forward, again, and backward."""
  met = _trained(sizes.model) - (0 if sizes.model.lora else sizes.model.spec.unmet)
  return 8 * met * sizes.columns / sizes.mesh.size / machine.chip.flops


def _trained(model: Model) -> int:
  return sum(x.size for x in jax.tree.leaves(model.trained.shapes))


def _candidates(
  config: ConfigDict, closed: ConfigDict, model: Model, mesh: Mesh, pieces_from: int
) -> Iterator[dict]:
  """Yields remat, microbatches and logprob_chunk, the fastest first; those that the config has are kept."""
  asked = open_keys(config)
  of = lambda key, choices: choices if key in asked else [config[key]]
  policies = of("remat", ["attention", "full"])  # "projections" won nothing: docs/pods.md
  numbers = of("microbatches", pieces_of(closed, model, mesh, pieces_from))
  for least, remat, pieces in itertools.product((CHUNK, CHUNK // 4), policies, numbers):
    values = dict(remat=remat, microbatches=pieces)
    for chunk in of("logprob_chunk", _chunks(changed(closed, values), model, mesh, least)):
      yield values | dict(logprob_chunk=chunk)


def pieces_of(config: ConfigDict, model: Model, mesh: Mesh, least: int = FEWEST_PIECES) -> list[int]:
  """Returns numbers of pieces of an update, the fewest first, from `least` on.

  Devices along `context` take whole rows, so that no keys travel: a piece has as many, if an update has.
  """
  packed, share = rows.pack_spec(changed(config, dict(microbatches=1)), model, mesh), mesh.shape["context"]
  if not packed:
    prompts = config.rollout.prompts // config.updates_per_rollout // sharding.batch_shards(mesh)
    return [n for n in range(1, prompts + 1) if prompts % n == 0]
  most = rows.most_rows(config, packed)
  found = sorted({math.ceil(most / of_piece) for of_piece in range(1, most + 1)})
  whole = [n for n in found if math.ceil(most / n) % share == 0]
  first = next((n for n in whole if n >= least), (whole or found)[-1])
  return [n for n in whole if n >= first] + [n for n in found if n >= first and n not in whole]


def _chunks(config: ConfigDict, model: Model, mesh: Mesh, least: int) -> list[int]:
  """Returns tokens of a row whose logits exist at once, the most first; no more than its responses have."""
  sizes = footprint.sizes(config, model, mesh)
  rows_of_device = max(1, footprint.columns_of_piece(sizes) // footprint.columns_of_row(sizes))
  most = max(CHUNK, int(TOKENS // rows_of_device)) if least == CHUNK else least
  responses = footprint.columns_of_row(sizes) - config.data.prompt_budget + 1
  return sorted({min(n, responses) for n in (most, least)}, reverse=True)
