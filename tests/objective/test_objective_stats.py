"""Order statistics by counting bits, against a sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objective_toys import random_batch

from grpojax.objective import select, stats

top_entropy = jax.jit(select.top_entropy)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(3))
def test_the_kth_largest_is_that_of_a_sort(dtype, seed):
  """Ties, zeros, the smallest and huge values; what is off is larger than all of them."""
  rng = np.random.default_rng(seed)
  x = np.concatenate([
    rng.exponential(1, 20), np.round(rng.exponential(1, 20), 1), np.zeros(3), [1.2e-38, 1e30], [-1e-9]
  ]).astype(dtype)  # fmt: skip
  rng.shuffle(x)
  off = np.full(9, np.inf, dtype)
  with jax.enable_x64(dtype is np.float64):
    on = np.arange(x.size + off.size) < x.size
    find = jax.jit(jax.vmap(stats.kth_largest, (None, None, 0)))
    got = np.asarray(find(np.concatenate([x, off]), on, np.arange(1, x.size + 1)))
  assert got.dtype == dtype
  np.testing.assert_array_equal(got, np.sort(np.maximum(x, 0))[::-1])


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("ties", [False, True])
def test_the_most_uncertain_tokens_are_those_above_the_quantile(share, ties):
  """The quantile as TRL takes it, linear between two tokens, over the tokens of the whole batch."""
  for seed in range(5):
    batch, _ = random_batch(seed, P=4 + seed)
    entropy = np.float32(np.round(batch.entropy, 1) if ties else batch.entropy)
    on = (batch.mask > 0) & batch.valid[..., None]
    kept = np.asarray(top_entropy(batch._replace(mask=on * 1.0, entropy=entropy), share=share))
    np.testing.assert_array_equal(kept, on & (entropy >= np.quantile(entropy[on], 1 - share)))
    assert kept.sum() >= share * on.sum()


def test_ema_follows_every_leaf_and_stands_still_at_rate_zero():
  old, new = dict(a=jnp.zeros(2), b=jnp.ones(1)), dict(a=jnp.ones(2), b=jnp.zeros(1))
  got = stats.ema(old, new, rate=0.25)
  np.testing.assert_allclose(got["a"], 0.25)
  np.testing.assert_allclose(got["b"], 0.75)
  np.testing.assert_array_equal(stats.ema(old, new, rate=0.0)["b"], old["b"])
