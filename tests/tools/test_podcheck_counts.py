"""The pod check's counts of compiled programs: FLOPs and bytes equal what the program was written to do."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from podcheck_toys import SIZES, flops

from grpojax.tools.podcheck.roofline import collectives, counts, hlo

N = 64


def counted(fn, *args, unknown=None, **how):
  text = jax.jit(fn, **how).lower(*args).compile().as_text()
  return counts.count(hlo.parse(text), SIZES, unknown)


def square(*lead):
  return jnp.ones((*lead, N, N))


def layers(x, ws):
  return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]


def test_a_scan_counts_each_of_its_products():
  found = counted(layers, square(), square(7))
  assert flops(found) == 7 * 2 * N**3
  assert not found.open_loops


def test_nested_loops_multiply_and_a_backward_pass_with_remat_counts_four():
  def nested(x, ws):
    return jax.lax.fori_loop(0, 5, lambda _, x: layers(x, ws), x)

  assert flops(counted(nested, square(), square(3))) == 5 * 3 * 2 * N**3

  def loss(ws, x):
    block = jax.checkpoint(lambda x, w: (jnp.tanh(x @ w), None), prevent_cse=False)
    return jax.lax.scan(block, x, ws)[0].sum()

  assert flops(counted(jax.grad(loss), square(3), square())) == 3 * 4 * 2 * N**3


def test_products_of_all_shapes():
  def products(a, b, c):
    return jnp.einsum("bij,bjk->bik", a, b), jnp.einsum("bij,bkj->ki", a, b), a[0] @ c

  found = counted(products, jnp.ones((3, 8, 16)), jnp.ones((3, 16, 16)), jnp.ones((16, 4)))
  assert flops(found) == 2 * (3 * 8 * 16 * 16 + 3 * 8 * 16 * 16 + 8 * 16 * 4)


def test_a_loop_that_data_ends_is_open_and_takes_what_it_is_told():
  def until(x, w, n):
    step = lambda c: (c[0] + 1, layers(c[1], w))
    with jax.named_scope("outer"):
      return jax.lax.while_loop(lambda c: c[0] < n, step, (0, x))

  args = square(), square(3), jnp.int32(4)
  found = counted(until, *args, unknown=dict(outer=11, other=5))
  assert flops(found) == 11 * 3 * 2 * N**3
  assert found.open_loops == ["jit(until)/outer/while"]
  assert flops(counted(until, *args)) == 3 * 2 * N**3


def test_an_open_loop_is_known_by_its_scope_in_any_other_and_backward():
  @jax.custom_vjp
  def power(x, w, n):
    with jax.named_scope("inner"):
      return jax.lax.fori_loop(0, n, lambda _, x: x @ w, x)

  power.defvjp(lambda x, w, n: (power(x, w, n), (w, n)), lambda kept, ct: (power(ct, *kept), None, None))

  def fn(x, w, n, m):
    with jax.named_scope("outer"):
      descend = lambda _, x: x - jax.grad(lambda x: (power(x, w, m) ** 2).sum())(x)
      return jax.lax.fori_loop(0, n, descend, x)

  found = counted(fn, square(), square(), jnp.int32(2), jnp.int32(3), unknown=dict(outer=5, inner=7))
  assert len(found.open_loops) == 3 and flops(found) == 5 * 2 * 7 * 2 * N**3


def test_of_alternatives_the_costliest_counts():
  def either(x, p):
    return jax.lax.cond(p, lambda x: x @ x @ x, lambda x: x @ x, x)

  assert flops(counted(either, square(), jnp.bool_(True))) == 2 * 2 * N**3


def test_collectives_have_their_kind_axis_and_bytes():
  mesh = jax.make_mesh(tuple(SIZES.values()), tuple(SIZES), axis_types=(AxisType.Auto,) * 2)

  def shared(x):
    def body(x, _):
      y = jax.lax.all_gather(x, "tensor", tiled=True)  # [4 n]
      z = jax.lax.psum(x, "data")
      w = jax.lax.psum_scatter(y, "tensor", tiled=True)
      v = jax.lax.all_to_all(x.reshape(4, -1), "tensor", 0, 0).reshape(-1)
      u = jax.lax.ppermute(x, "tensor", [(i, (i + 1) % 4) for i in range(4)])
      return x + z + w + v + u, y.sum()

    return jax.lax.scan(body, x, None, length=5)

  P = PartitionSpec
  cut = P(("data", "tensor"))
  fn = jax.shard_map(shared, mesh=mesh, in_specs=cut, out_specs=(cut, P()), check_vma=False)
  x = jax.ShapeDtypeStruct((8 * 16,), jnp.float32, sharding=NamedSharding(mesh, cut))
  found = [(r.times, r.collective) for r in counted(fn, x).rows if r.collective]
  seen = {(c.kind, c.axis): (times, c.bytes, c.wire) for times, c in found}
  own = 16 * 4.0  # bytes on a device
  assert seen == {
    ("all-gather", "tensor"): (5, 4 * own, 3 * own),
    ("all-reduce", "data"): (5, own, own),
    ("reduce-scatter", "tensor"): (5, 4 * own, 3 * own),
    ("all-to-all", "tensor"): (5, own, 0.75 * own),
    ("collective-permute", "tensor"): (5, own, own),
  }


def test_traffic_is_operands_and_results_and_of_updates_in_place_the_part():
  def one(x):
    return jnp.tanh(x) * 2

  found = counted(one, jnp.ones((128, 128)))
  assert sum(r.bytes for r in found.rows) == 2 * 128 * 128 * 4

  def fill(x, new):
    put = lambda i, x: jax.lax.dynamic_update_slice_in_dim(x, new * i, i, 0)
    return jax.lax.fori_loop(0, 128, put, x)

  found = counted(fill, jnp.ones((128, 128)), jnp.ones((1, 128)), donate_argnums=0)
  assert sum(r.times * r.bytes for r in found.rows) < 8 * 128 * 128 * 4


GROUPS = {
  "replica_groups={{0,1},{2,3}}": [0, 1],
  "replica_groups=[4,2]<=[8]": [0, 1],
  "replica_groups=[4,2]<=[2,4]T(1,0)": [0, 4],
  "replica_groups=mesh['a'=2,'b'=4] {'b'}": [0, 1, 2, 3],
  "replica_groups=mesh['a'=2,'b'=4] {'a'}": [0, 4],
  "replica_groups=mesh['a'=2,'b'=4] {'b':(1)2}": [0, 2],
  "replica_groups=mesh['a'=2,'b'=4] {'a','b':(2)2}": [0, 1, 4, 5],
}


@pytest.mark.parametrize(("text", "group"), GROUPS.items())
def test_groups_of_devices_in_every_way_they_are_written(text, group):
  assert collectives.first_group(text, 8).tolist() == group


# As a TPU's compiler writes them: products as convolutions, a limit that the loop carries along, and a
# scatter of sums inside a fusion.


def test_a_convolution_that_is_one_counts_what_meets():
  def conv(x, k):
    return jax.lax.conv_general_dilated(x, k, (2,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC"))

  x, k = jnp.ones((2, 9, 3)), jnp.ones((3, 3, 5))
  met = sum(0 <= 2 * o + j - 1 < 9 for o in range(5) for j in range(3))
  assert flops(counted(conv, x, k)) == 2 * 2 * 3 * 5 * met
