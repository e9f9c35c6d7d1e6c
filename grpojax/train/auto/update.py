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

  The fewest pieces that fit beside footprint.state, with as much kept as fits.  If none fits, the least there
  is; the run says what is missing.
  """
  for values in _candidates(config, closed, model, mesh):
    sizes = footprint.sizes(changed(closed, values), model._replace(remat=values["remat"]), mesh)
    if footprint.update(sizes, state).most <= machine.memory:
      return config.updates_per_rollout * _lost(sizes, machine), values
  return NONE_FITS, values


def _lost(sizes: Sizes, machine: Machine) -> float:
  """Returns seconds of an update in which a device adds up what others have, or computes twice.

  Without SparseCores the compiler sums gradients that are cut over all devices of a slice, or over two axes,
  by an all-reduce that nothing hides, and one along `fsdp` by a reduce-scatter that it does hide
  (docs/pods.md).
  """
  s, mesh = sizes.model.spec, sizes.mesh.shape
  link, tokens = 2 * machine.chip.link or math.inf, sizes.columns / sizes.mesh.size
  count = sum(x.size for x in jax.tree.leaves(sizes.model.trained.shapes))
  cut = math.prod(mesh[axis] for axis in sharding.mesh_axes(sizes.model.rules["embed"]))
  two = mesh["context"] > 1 and "context" in sharding.mesh_axes(sizes.model.rules["embed"])
  waits = (two or cut > OVERLAPPED) and not machine.chip.sparse_cores
  lost = sizes.pieces * 4 * count / link if waits else 0.0
  passes = 6 * s.num_hidden_layers * s.hidden_size * jnp.dtype(s.dtype).itemsize
  lost += passes * tokens * mesh["tensor"] * 2 * (1 - 1 / mesh["tensor"]) / link
  compute = 8 * count * tokens / machine.chip.flops
  again = (0.05 if sizes.model.remat == "full" else 0) + (0.1 if sizes.config.logprob_chunk < CHUNK else 0)
  return lost + again * compute


def _candidates(config: ConfigDict, closed: ConfigDict, model: Model, mesh: Mesh) -> Iterator[dict]:
  """Yields remat, microbatches and logprob_chunk, the fastest first; those that the config has are kept."""
  asked = open_keys(config)
  of = lambda key, choices: choices if key in asked else [config[key]]
  policies = of("remat", ["attention", "full"])  # "projections" won nothing: docs/pods.md
  numbers = of("microbatches", pieces_of(closed, model, mesh))
  for least, remat, pieces in itertools.product((CHUNK, CHUNK // 4), policies, numbers):
    values = dict(remat=remat, microbatches=pieces)
    for chunk in of("logprob_chunk", _chunks(changed(closed, values), model, mesh, least)):
      yield values | dict(logprob_chunk=chunk)


def pieces_of(config: ConfigDict, model: Model, mesh: Mesh) -> list[int]:
  """Returns numbers of pieces of an update, the fewest first.

  Devices along `context` take whole rows, so that no keys travel: a piece has as many, if an update has.
  """
  packed, share = rows.pack_spec(changed(config, dict(microbatches=1)), model, mesh), mesh.shape["context"]
  if not packed:
    prompts = config.rollout.prompts // config.updates_per_rollout // sharding.batch_shards(mesh)
    return [n for n in range(1, prompts + 1) if prompts % n == 0]
  most = rows.most_rows(config, packed)
  found = sorted({math.ceil(most / of_piece) for of_piece in range(1, most + 1)})
  whole = [n for n in found if math.ceil(most / n) % share == 0]
  first = next((n for n in whole if n >= FEWEST_PIECES), (whole or found)[-1])
  return [n for n in whole if n >= first] + [n for n in found if n >= first and n not in whole]


def _chunks(config: ConfigDict, model: Model, mesh: Mesh, least: int) -> list[int]:
  """Returns tokens of a row whose logits exist at once, the most first; no more than its responses have."""
  sizes = footprint.sizes(config, model, mesh)
  rows_of_device = max(1, footprint.columns_of_piece(sizes) // footprint.columns_of_row(sizes))
  most = max(CHUNK, int(TOKENS // rows_of_device)) if least == CHUNK else least
  responses = footprint.columns_of_row(sizes) - config.data.prompt_budget + 1
  return sorted({min(n, responses) for n in (most, least)}, reverse=True)
