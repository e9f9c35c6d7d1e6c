"""Devices, packing, microbatches and row order at once, in float32: the loss and gradient of one device.

What the learner compiles is the second test, for the recipes, with a table of log-probs in place of a
model.
"""

from functools import cache

import jax
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict
from objective_toys import RECIPES, accumulate, one_of_each, random_batch

from grpojax import objective as lib
from grpojax.learner import accumulate as accumulate_lib
from grpojax.learner import packing
from grpojax.learner import rows as rows_lib
from grpojax.learner.state import create
from grpojax.learner.update import make_update
from grpojax.runtime import sharding

OBJECTIVES = one_of_each()
# What peers take from one microbatch.
COUPLED = ["penalty.entropy_bonus", "select.top_entropy", "batch_veto.m2po"]
OFTEN = ["gspo", "reinforce_pp", "m2po", COUPLED[0]]  # one of each kind; the rest: slow
P, G, T = 64, 4, 6  # each of eight microbatches on eight devices has one prompt


def often(*values):
  """A parameter set of `values`, the first of which names an objective."""
  return pytest.param(*values, marks=[] if values[0] in OFTEN else pytest.mark.slow)


@cache
def made():
  """(batch, logp, entropy) in float32; `tokens` number the entries of a table of log-probs."""
  batch, theta = random_batch(0, P, G, T)
  numbered = np.arange(P * G * T, dtype=np.int32).reshape(P, G, T)
  tokens = np.pad(numbered, ((0, 0), (0, 0), (1, 0)))  # behind a prompt of one token
  batch = batch._replace(tokens=tokens, prompt_length=np.ones((P, G), np.int32))
  single = lambda x: np.float32(x) if x.dtype == np.float64 else x
  return jax.tree.map(single, (batch, theta["logp"], theta["entropy"]))


def shuffled():
  """The same rows in another order, and that order as a function."""
  rng = np.random.default_rng(1)
  prompts, rows = rng.permutation(P), rng.permutation(G)
  order = lambda tree: jax.tree.map(lambda x: np.asarray(x)[prompts][:, rows], tree)
  return order(made()), order


def mesh_of(devices: int):
  return sharding.make_mesh(ConfigDict(dict.fromkeys((*sharding.AXES, "slices"), 1) | dict(data=devices)))


@jax.jit  # one operation after the other, hundreds with collectives would be under way at once, and may block
def in_one_program(objective, batch, logp, entropy):
  return accumulate(objective, lib.prepare(objective, batch, logp), logp, entropy, 1)


@cache
def whole(name: str):
  """(loss, metrics), gradients by log π and entropy: one device, one piece, the rows as they are."""
  return in_one_program(OBJECTIVES[name], *made())


def assert_same(got, expected):
  """2e-6 relative to the largest gradient; losses are long sums of differences, and may cancel."""
  for x, y in zip(got[2:], expected[2:], strict=True):
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, y, rtol=0, atol=2e-6 * np.abs(y).max())
  assert np.abs(expected[2]).max() > 1e-6  # a gradient of 0 would agree with anything
  close = lambda x, y: np.testing.assert_allclose(x, y, rtol=3e-6, atol=3e-6)
  jax.tree.map(close, got[:2], expected[:2])


@pytest.mark.parametrize("name", map(often, OBJECTIVES))
def test_devices_and_the_order_of_rows_change_nothing(name):
  arrays, order = shuffled()
  batch, logp, entropy = sharding.to_device(mesh_of(8), arrays)
  assert logp.addressable_shards[0].data.shape[0] == P // 8
  loss, metrics, *expected = whole(name)
  got = in_one_program(OBJECTIVES[name], batch, logp, entropy)
  assert_same(got, (loss, metrics, *order(expected)))


@pytest.mark.parametrize(
  ("name", "devices", "rows", "microbatches"),
  [often(name, 8, 5, 1) for name in [*RECIPES, *COUPLED]]
  + [("dapo", 8, 0, 4)]
  + [pytest.param(name, 8, 0, 4, marks=pytest.mark.slow) for name in COUPLED]
  + [pytest.param(name, 2, 0, 4, marks=pytest.mark.slow) for name in ["dapo", *COUPLED]],
)
def test_the_learners_program_over_devices_and_pieces_is_that_of_one(name, devices, rows, microbatches):
  """Its packing or microbatches, shardings and jit; what it differentiates is a table, not a model."""
  entry = lambda table, tokens: (table["logp"].ravel()[tokens], table["entropy"].ravel()[tokens], None)
  look_up = lambda table, tokens, *_: entry(table, tokens[..., 1:])
  (batch, *_), _ = shuffled()
  layouts, mesh = [rows_lib.single(look_up, microbatches)], mesh_of(devices)
  if rows:
    look_up = lambda table, piece: entry(table, piece.target)
    spec = packing.PackSpec(T, devices, rows, T, shared=False)
    together, own = rows_lib.packed(look_up, spec), rows_lib.packed(look_up, spec._replace(shards=1))
    alone = accumulate_lib.on_each_device(own.accumulate, mesh)
    layouts = [together._replace(accumulate=alone), *[together] * (name in OFTEN)]
    place = packing.pack_sequences(batch.prompt_length, batch.length, spec)
    batch = batch._replace(packing_index=place)
  keep = optax.trace(decay=0.0)  # an optimiser whose state is the gradient
  everywhere = sharding.replicated(mesh)
  where = everywhere, everywhere, sharding.batch_sharding(mesh)
  _, logp, entropy = made()
  state = create(dict(logp=logp, entropy=entropy), keep)
  expected = whole(name)
  for layout in layouts:
    update = make_update(layout, keep, optax.constant_schedule(0.0))
    update = jax.jit(update, in_shardings=where, out_shardings=everywhere)
    after, seen = update(state, OBJECTIVES[name], sharding.to_device(mesh, batch))
    grads = after.opt_state.trace
    got = (seen["loss"], {key: seen[key] for key in expected[1]}, grads["logp"], grads["entropy"])
    assert_same(got, expected)
