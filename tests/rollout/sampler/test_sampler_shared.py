"""What slots read of their prompts, against all prompts read at once; and which are not read at all."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from grpojax import models
from grpojax.recipes import base
from grpojax.rollout.sampler import kv_budget, shared_prefix

K, m, H, L = 2, 3, 4, 5


def case(seed, D, n, G, S, busy):
  """D shards of n prompts, S slots of which some work: request [D, S], q, keys and values, mask [P, L]."""
  rng = np.random.default_rng(seed)
  request = np.stack([rng.permutation(n * G)[:S] for _ in range(D)])
  request[rng.random((D, S)) > busy] = n * G
  draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
  kv = shared_prefix.Kv(draw(K, D * n, H, L), draw(K, D * n, L, H))
  return request.astype(np.int32), draw(D * S, K, m, H), kv, rng.random((D * n, L)) < 0.7


@partial(jax.jit, static_argnums=(4, 5))
def read(request, q, kv, mask, n, G):
  """By blocks, and how many of them a shard reads at most."""
  order = shared_prefix.order(jnp.asarray(request), n, G)

  def of_prompts(q, block):
    cut = jax.tree.map(lambda x: block.of(x, order.width, axis=1), kv)
    return shared_prefix.part(q, cut, block.of(mask, order.width)[:, None], 0.5, 0.0)

  return order.read(jnp.asarray(q), of_prompts), order.count


part = jax.jit(lambda q, kv, mask: shared_prefix.part(q, kv, mask, 0.5, 0.0))


@pytest.mark.parametrize("busy", [0.4, *(pytest.param(b, marks=pytest.mark.slow) for b in (1.0, 0.0))])
@pytest.mark.parametrize(
  "D,n,G,S",
  [
    (1, 8, 4, 8),
    (3, 5, 2, 4),
    pytest.param(2, 7, 3, 6, marks=pytest.mark.slow),
    pytest.param(2, 2, 4, 8, marks=pytest.mark.slow),
    pytest.param(1, 9, 1, 4, marks=pytest.mark.slow),
    pytest.param(1, 6, 2, 1, marks=pytest.mark.slow),
  ],
)
def test_slots_read_their_prompt_and_no_other(D, n, G, S, busy):
  for seed in range(3):
    request, q, kv, mask = case(seed, D, n, G, S, busy)
    got, _ = read(request, q, kv, mask, n, G)
    working = (request < n * G).reshape(-1)
    prompt = np.minimum(request // G, n - 1) + n * np.arange(D)[:, None]  # whichever, where nobody works
    own = shared_prefix.Kv(*(x[:, prompt.reshape(-1)] for x in kv))
    want = part(q, own, mask[prompt.reshape(-1)][:, None])
    for x, y in zip(map(np.asarray, got), map(np.asarray, want), strict=True):
      np.testing.assert_allclose(x[working], y[working], rtol=1e-5, atol=1e-6)
      assert np.isfinite(x).all()


@pytest.mark.parametrize("prompts,blocks", [((2, 3), 1), ((3, 4), 2), ((0, 7), 2), ((5,), 1), ((), 0)])
def test_prompts_that_nobody_works_on_are_not_read(prompts, blocks):
  """Of 8 prompts two are read at a time; what is in no such block is spoilt."""
  n, G, S = 8, 4, 8
  _, q, kv, mask = case(0, 1, n, G, S, 1.0)
  request = np.full((1, S), n * G, np.int32)
  for i, prompt in enumerate(prompts):
    request[0, i * G : (i + 1) * G] = prompt * G + np.arange(G)
  unread = ~np.isin(np.arange(n) // 2, np.array(prompts) // 2)
  spoilt = shared_prefix.Kv(*(np.where(unread[:, None, None], np.nan, x) for x in kv))
  got, count = read(request, q, spoilt, mask, n, G)
  want, _ = read(request, q, kv, mask, n, G)
  assert count == blocks
  jax.tree.map(np.testing.assert_array_equal, got, want)
  assert np.isfinite(got.read).all()


def test_caches_in_float32_hold_the_numbers_of_bfloat16():
  rng = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.bfloat16)
  keys, values, q = draw(6, L, K, H), draw(6, L, K, H), draw(6, K, m, H)
  new, mask = (draw(6, 1, K, H), draw(6, 1, K, H)), rng.random((6, 1, L)) < 0.7
  read = {}
  for kept in "full", "float32":
    kv = shared_prefix.laid_out(keys, values, kept)
    kv = shared_prefix.write(kv, shared_prefix.laid_out(*new, kept), 2)
    assert {x.dtype.name for x in kv} == {"bfloat16" if kept == "full" else "float32"}
    read[kept] = part(q, kv, mask)
  for x, y in zip(read["full"], read["float32"], strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_a_cpu_keeps_keys_and_values_in_float32_and_counts_them_so():
  cpu = Mesh(jax.devices()[:1], "data")
  assert kv_budget.kept_as("full", cpu) == "float32" and kv_budget.kept_as("int8", cpu) == "int8"
  config = base.get_config("mini").model
  config.dtype = "bfloat16"
  of = lambda kept: kv_budget.kv_bytes(models.build(config, 64).spec, 5, kv_cache=kept)
  assert of("float32") == 2 * of("full") == 5 * 2 * 2 * 2 * 16 * 4  # tokens, both, layers, heads, sizes
