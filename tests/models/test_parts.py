"""Products: rounded once, of sums in float32; on a CPU as products that leave as float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax.models import parts


def operands(dtype, shape=(3, 5, 4, 2), out=7):
  rng = np.random.default_rng(0)
  x, weight = rng.normal(size=shape), rng.normal(size=(*shape[2:], out))
  return jnp.asarray(x, dtype), jnp.asarray(weight, dtype)


@pytest.mark.parametrize("axes", [1, 2])
def test_a_bfloat16_product_and_its_gradients_are_float32_ones_rounded(axes):
  shape = (3, 5, 4, 2)[: 2 + axes]
  x, weight = operands(jnp.bfloat16, shape)
  ct = jnp.asarray(np.random.default_rng(1).normal(size=(3, 5, 7)), jnp.bfloat16)

  def products(x, weight):
    y, back = jax.vjp(lambda x, w: parts.project(x, w, axes), x, weight)
    return y, *back(ct.astype(y.dtype))

  wide = jax.jit(products)(x.astype(jnp.float32), weight.astype(jnp.float32))
  for got, want in zip(jax.jit(products)(x, weight), wide, strict=True):
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got, want.astype(jnp.bfloat16))


def test_on_a_cpu_bfloat16_products_leave_as_float32_which_its_matrix_units_need():
  x, weight = operands(jnp.bfloat16, (3, 5, 4))
  both = lambda x, w: jax.grad(lambda x, w: parts.project(x, w).astype(jnp.float32).sum(), (0, 1))(x, w)
  text = jax.jit(both).lower(x, weight).as_text()
  products = [line for line in text.splitlines() if "dot_general" in line]
  assert products and all(line.rstrip().endswith("xf32>") or "xf32> loc" in line for line in products)
  traced = str(jax.make_jaxpr(parts.project)(x, weight))
  assert "bf16" in traced and "platform_index" in traced  # accelerators have a branch of their own
