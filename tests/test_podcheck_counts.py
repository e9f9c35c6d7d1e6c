"""The pod check's counts of compiled programs: FLOPs and bytes equal what the program was written to do."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from grpojax.podcheck import chips, collectives, counts, estimate, hlo

N, SIZES = 64, {"data": 2, "tensor": 4}


def counted(fn, *args, unknown=(), **how):
  text = jax.jit(fn, **how).lower(*args).compile().as_text()
  return counts.count(hlo.parse(text), SIZES, unknown)


def flops(found):
  return sum(r.times * r.flops for r in found.rows)


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
    step = lambda c: (c[0] + 1, layers(c[1], w))  # noqa: E731
    return jax.lax.while_loop(lambda c: c[0] < n, step, (0, x))

  args = square(), square(3), jnp.int32(4)
  found = counted(until, *args, unknown=(11,))
  assert flops(found) == 11 * 3 * 2 * N**3
  assert [depth for _, depth in found.open_loops] == [0]
  assert flops(counted(until, *args)) == 3 * 2 * N**3


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
    put = lambda i, x: jax.lax.dynamic_update_slice_in_dim(x, new * i, i, 0)  # noqa: E731
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
TPU = """
HloModule m, num_partitions=8

%fused (a: bf16[8,16,32], b: bf16[8,32,16]) -> bf16[8,16,16] {
  %a = bf16[8,16,32]{2,1,0:T(8,128)S(1)} parameter(0)
  %b = bf16[8,32,16]{2,1,0:T(8,128)} parameter(1)
  ROOT %c = bf16[8,16,16]{2,1,0} convolution(%a, %b), window={size=8 stride=7 lhs_dilate=8}, dim_labels=0bf_0io->0bf
}

%all-reduce-scatter.1 (input: bf16[1024]) -> bf16[256] {
  %input = bf16[1024]{0:T(8,128)} parameter(0)
  %all-reduce.6 = bf16[1024]{0} all-reduce(%input), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %zero = u32[] constant(0)
  ROOT %ds = bf16[256]{0:T(8,128)} dynamic-slice(%all-reduce.6, %zero), dynamic_slice_sizes={256}
}

%body (p: (s32[], bf16[8,16,32], bf16[8,32,16], s32[], bf16[1024])) -> (s32[], bf16[8,16,32], bf16[8,32,16], s32[], bf16[1024]) {
  %p = (s32[], bf16[8,16,32]{2,1,0:T(8,128)S(1)}, bf16[8,32,16]{2,1,0}, s32[], bf16[1024]{0}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %x = bf16[8,16,32]{2,1,0:T(8,128)S(1)} get-tuple-element(%p), index=1
  %w = bf16[8,32,16]{2,1,0} get-tuple-element(%p), index=2
  %n = s32[]{:T(128)} get-tuple-element(%p), index=3
  %g = bf16[1024]{0} get-tuple-element(%p), index=4
  %two = s32[] constant(2)
  %next = s32[]{:T(128)} add(%i, %two)
  %y = bf16[8,16,16]{2,1,0:T(8,128)S(1)} fusion(%x, %w), kind=kOutput, calls=%fused, metadata={op_name="jit(f)/dot"}, backend_config={"estimated_cycles":"700"}
  %s = bf16[256]{0:T(8,128)} fusion(%g), kind=kCustom, calls=%all-reduce-scatter.1
  ROOT %t = (s32[], bf16[8,16,32], bf16[8,32,16], s32[], bf16[1024]) tuple(%next, %x, %w, %n, %g)
}

%condition (p: (s32[], bf16[8,16,32], bf16[8,32,16], s32[], bf16[1024])) -> pred[] {
  %p = (s32[], bf16[8,16,32]{2,1,0}, bf16[8,32,16]{2,1,0}, s32[], bf16[1024]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] get-tuple-element(%p), index=3
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: bf16[8,16,32], w: bf16[8,32,16], g: bf16[1024]) -> s32[] {
  %x = bf16[8,16,32]{2,1,0} parameter(0)
  %w = bf16[8,32,16]{2,1,0} parameter(1)
  %g = bf16[1024]{0} parameter(2)
  %one = s32[] constant(1)
  %ten = s32[] constant(10)
  %start = (s32[], bf16[8,16,32], bf16[8,32,16], s32[], bf16[1024]) tuple(%one, %x, %w, %ten, %g)
  %loop = (s32[], bf16[8,16,32], bf16[8,32,16], s32[], /*index=3*/s32[], bf16[1024]) while(%start), condition=%condition, body=%body
  ROOT %out = s32[] get-tuple-element(%loop), index=0
}
"""  # noqa: E501


def test_the_text_of_a_tpu_is_read():
  found = counts.count(hlo.parse(TPU), SIZES)
  product, scatter = found.rows[-2:] if found.rows[-1].collective else found.rows[-2:][::-1]
  assert product.times == 5  # 1, 3, 5, 7, 9
  assert product.flops == 8 * 2 * 16 * 16 * 32  # one pair for each of the batch
  assert product.bytes == 8 * 32 * 16 * 2  # the other operand and the result lie beside the cores
  assert product.cycles == 700
  assert scatter.collective == collectives.Collective("reduce-scatter", "tensor", 4, 2048.0, False)
  assert scatter.collective.wire == 0.75 * 2048
  assert not found.open_loops


def test_a_convolution_that_is_one_counts_what_meets():
  def conv(x, k):
    return jax.lax.conv_general_dilated(x, k, (2,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC"))

  x, k = jnp.ones((2, 9, 3)), jnp.ones((3, 3, 5))
  met = sum(0 <= 2 * o + j - 1 < 9 for o in range(5) for j in range(3))
  assert flops(counted(conv, x, k)) == 2 * 2 * 3 * 5 * met


KERNEL = """
ENTRY %main (q: bf16[2,8,512,128], k: bf16[2,2,512,128]) -> bf16[2,8,512,128] {{
  %ids = s32[4]{{0}} parameter(2)
  %q = bf16[2,8,512,128]{{3,2,1,0}} parameter(0)
  %k = bf16[2,2,512,128]{{3,2,1,0}} parameter(1)
  ROOT %out = {out} custom-call(%ids, %q, %k, %k), custom_call_target="tpu_custom_call", frontend_attributes={{kernel_metadata={{
"xprof_metadata":"{{\\"block_q\\": 512}}"
}}}}, metadata={{op_name="jit(f)/{name}/pallas_call"}}
}}
"""  # noqa: E501


ONE = "bf16[2,8,512,128]{3,2,1,0}"


@pytest.mark.parametrize(
  ("name", "results", "products"),
  [("splash_mha_fwd", 1, 2), ("splash_mha_dkv", 3, 5), ("splash_mha_dkv", 2, 4), ("splash_mha_dq", 1, 3),
   ("something_else", 1, 0)],
)  # fmt: skip
def test_attention_kernels_count_the_pairs_that_a_causal_mask_leaves(name, results, products):
  scratch = "f32[8,512,128]{2,1,0}"
  out = f"({', '.join([scratch] + [ONE] * results)})"
  found = counts.count(hlo.parse(KERNEL.format(out=out, name=name)), SIZES)
  assert flops(found) == products * 2 * (2 * 8 * 512 * 512 * 128) / 2
  assert found.rows[0].kernel == name


RAGGED = """
ENTRY %main (x: bf16[4096,256], w: bf16[16,256,64]) -> {out} {{
  %ids = s32[17]{{0}} parameter(2)
  %x = bf16[4096,256]{{1,0}} parameter(0)
  %w = {right} parameter(1)
  ROOT %out = {out} custom-call(%ids, %x, %w), custom_call_target="tpu_custom_call", metadata={{op_name="jit(f)/ragged_dot_general/ragged-dot-none"}}
}}
"""  # noqa: E501
OF_GROUPS, OF_ROWS = "bf16[16,256,64]{2,1,0}", "bf16[4096,64]{1,0}"


@pytest.mark.parametrize("right, out", [(OF_GROUPS, OF_ROWS), (OF_ROWS, OF_GROUPS)])
def test_a_mixtures_products_count_every_row_once(right, out):
  """Forward, and as the gradient of the matrices."""
  assert flops(counts.count(hlo.parse(RAGGED.format(right=right, out=out)), SIZES)) == 2 * 4096 * 256 * 64


def test_a_kernel_takes_as_long_as_its_bytes_at_least():
  """Beside work that waits for it: few rows that read many matrices."""
  chip, row = chips.CHIPS["v5e"], counts.Row("k", "k", 2.0, 1e9, 1e9, 0.0, "ragged-dot-none", None)
  work = row._replace(kernel="", flops=1e12, bytes=0.0)
  got = estimate.estimate(counts.Counts([row, work], []), chip)
  assert got.seconds == got.fastest == pytest.approx(2 * (1e9 / chip.hbm + 1e12 / chip.flops))
  wide = estimate.estimate(counts.Counts([row._replace(flops=1e15)], []), chip)
  assert wide.seconds == pytest.approx(2 * 1e15 / chip.flops / 0.6) and wide.fastest < wide.seconds


ASYNC = """
%start (x: bf16[1,56,1024]) -> (bf16[1,56,1024], bf16[1,3584,1024]) {
  %x = bf16[1,56,1024]{2,1,0} parameter(0)
  %g = bf16[1,3584,1024]{2,1,0} all-gather(%x), channel_id=124, replica_groups=mesh['a'=8] {'a'}, dimensions={1}
  ROOT %c = (bf16[1,56,1024]{2,1,0}, bf16[1,3584,1024]{2,1,0}) custom-call(%g), custom_call_target="Start"
}

%done (x: bf16[1,56,1024], y: bf16[1,3584,1024]) -> bf16[1,3584,1024] {
  %x = bf16[1,56,1024]{2,1,0} parameter(0)
  %y = bf16[1,3584,1024]{2,1,0} parameter(1)
  %g = bf16[1,3584,1024]{2,1,0} all-gather(%x), channel_id=124, replica_groups=mesh['a'=8] {'a'}, dimensions={1}
  ROOT %c = bf16[1,3584,1024]{2,1,0} custom-call(%x, %y, %g), custom_call_target="Done"
}

ENTRY %main (x: bf16[1,56,1024]) -> bf16[1,3584,1024] {
  %x = bf16[1,56,1024]{2,1,0} parameter(0)
  %async-collective-start.2 = (bf16[1,56,1024]{2,1,0}, bf16[1,3584,1024]{2,1,0}) fusion(%x), kind=kCustom, calls=%start
  %y = bf16[1,3584,1024]{2,1,0} get-tuple-element(%async-collective-start.2), index=1
  ROOT %async-collective-done.2 = bf16[1,3584,1024]{2,1,0} fusion(%x, %y), kind=kCustom, calls=%done
}
"""  # noqa: E501


def test_a_collective_that_begins_and_ends_apart_is_one():
  found = [r.collective for r in counts.count(hlo.parse(ASYNC), SIZES).rows if r.collective]
  assert [(c.kind, c.axis, c.hidden, c.bytes) for c in found] == [
    ("all-gather", "data+tensor", True, 8 * 56 * 1024 * 2)
  ]


OFFLOADED = """
%on_sparse_core (x: bf16[1,56,1024]) -> bf16[1,3584,1024] {
  %x = bf16[1,56,1024]{2,1,0} parameter(0)
  ROOT %g = bf16[1,3584,1024]{2,1,0} all-gather(%x), channel_id=7, replica_groups=mesh['a'=8] {'a'}, dimensions={1}
}, execution_thread="sparsecore"

%async_computation.3 (x: bf16[1,56,1024]) -> bf16[1,3584,1024] {
  %x = bf16[1,56,1024]{2,1,0} parameter(0)
  ROOT %c = bf16[1,3584,1024]{2,1,0} custom-call(%x), custom_call_target="Offload", called_computations={%on_sparse_core}
}, execution_thread="sparsecore"

ENTRY %main (x: bf16[1,56,1024]) -> bf16[1,3584,1024] {
  %x = bf16[1,56,1024]{2,1,0} parameter(0)
  %s = ((bf16[1,56,1024]{2,1,0}), bf16[1,3584,1024]{2,1,0}) async-start(%x), async_execution_thread="sparsecore", calls=%async_computation.3
  ROOT %d = bf16[1,3584,1024]{2,1,0} async-done(%s)
}
"""  # noqa: E501


def test_a_collective_that_another_core_carries_out_is_beside_the_work():
  found = [r.collective for r in counts.count(hlo.parse(OFFLOADED), SIZES).rows if r.collective]
  assert [(c.kind, c.axis, c.hidden, c.bytes) for c in found] == [
    ("all-gather", "data+tensor", True, 8 * 56 * 1024 * 2)
  ]


NESTED = """
%shape (x: f32[64,128]) -> f32[128,64] {
  %x = f32[64,128]{1,0} parameter(0)
  ROOT %b = f32[128,64]{0,1} bitcast(%x)
}

%product (x: f32[64,128], y: f32[8,128], z: f32[9,128]) -> f32[8,64] {
  %x = f32[64,128]{1,0} parameter(0)
  %y = f32[8,128]{1,0:S(1)} parameter(1)
  %z = f32[9,128]{1,0} parameter(2)
  %s = f32[8,128]{1,0} slice(%z), slice={[0:8], [0:128]}
  %a = f32[8,128]{1,0} add(%y, %s)
  %w = f32[128,64]{0,1} fusion(%x), kind=kLoop, calls=%shape
  ROOT %d = f32[8,64]{1,0} dot(%a, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (x: f32[64,128], y: f32[8,128], z: f32[9,128]) -> f32[8,64] {
  %x = f32[64,128]{1,0} parameter(0)
  %y = f32[8,128]{1,0:S(1)} parameter(1)
  %z = f32[9,128]{1,0} parameter(2)
  %part = f32[4,128]{1,0:S(1)} slice(%x), slice={[0:4], [0:128]}
  ROOT %f = f32[8,64]{1,0:S(1)} fusion(%x, %y, %z), kind=kOutput, calls=%product
}
"""


def test_what_a_fusion_reads_in_another_shape_is_all_of_it_and_of_a_slice_the_part():
  of = {r.name: r for r in counts.count(hlo.parse(NESTED), SIZES).rows}
  assert of["f"].flops == 2 * 8 * 64 * 128
  assert of["f"].bytes == 64 * 128 * 4 + 8 * 128 * 4  # y and the result lie beside the cores
  assert of["part"].bytes == 4 * 128 * 4


DOT = """
ENTRY %main (a: f32[3,8,16], b: f32[3,16,4]) -> f32[8,4] {
  %a = f32[3,8,16]{2,1,0} parameter(0)
  %b = f32[3,16,4]{2,1,0} parameter(1)
  ROOT %d = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,1}
}
"""


def test_a_product_summed_over_two_axes():
  assert flops(counts.count(hlo.parse(DOT), SIZES)) == 2 * 8 * 4 * 3 * 16


BETWEEN = """
HloModule m, num_partitions=8

ENTRY %main (x: f32[1024,256]) -> token[] {
  %x = f32[1024,256]{1,0:T(8,128)} parameter(0)
  %begin = token[] after-all()
  %send = (f32[1024,256]{1,0:T(8,128)}, u32[]{:S(2)}, token[]) send(%x, %begin), channel_id=4, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime"}
  ROOT %done = token[] send-done(%send), channel_id=4, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime"}
}
"""  # noqa: E501


def test_what_hosts_add_up_between_slices_goes_over_the_network():
  found = counts.count(hlo.parse(BETWEEN), {"slice": 2, "data": 1, "fsdp": 4})
  (row,) = (r for r in found.rows if r.collective)
  assert row.collective == collectives.Collective("send", "slice", 2, 2**20, True, "4")
  chip = chips.CHIPS["v5e"]
  assert estimate.estimate(found, chip).ici == pytest.approx(2**20 / 3.125e9)


BESIDE = """
%async_computation.1 (x: bf16[4096,4096]) -> bf16[1024,4096] {
  %x = bf16[4096,4096]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %s = bf16[1024,4096]{1,0:T(8,128)(2,1)S(1)} slice(%x), slice={[0:1024], [0:4096]}
}

ENTRY %main (x: bf16[4096,4096], y: bf16[4096,4096]) -> bf16[4096,4096] {
  %x = bf16[4096,4096]{1,0:T(8,128)(2,1)} parameter(0)
  %y = bf16[4096,4096]{1,0:T(8,128)(2,1)} parameter(1)
  %begin = ((bf16[4096,4096]{1,0:T(8,128)(2,1)}), bf16[1024,4096]{1,0:T(8,128)(2,1)S(1)}, s32[]{:S(2)}) async-start(%x), calls=%async_computation.1
  %copy = (bf16[4096,4096]{1,0:T(8,128)(2,1)S(1)}, bf16[4096,4096]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) copy-start(%y)
  %work = bf16[4096,4096]{1,0:T(8,128)(2,1)S(1)} multiply(%x, %x), backend_config={"estimated_cycles":"150000"}
  %done = bf16[1024,4096]{1,0:T(8,128)(2,1)S(1)} async-done(%begin), calls=%async_computation.1
  ROOT %copied = bf16[4096,4096]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy)
}
"""  # noqa: E501


def test_copies_beside_work_take_bandwidth_and_no_time_of_their_own():
  found, chip = counts.count(hlo.parse(BESIDE), SIZES), chips.CHIPS["v5e"]
  assert {r.name: r.beside for r in found.rows} == {"s": True, "copy": True, "work": False}
  got = estimate.estimate(found, chip)
  assert got.bytes == 2 * 2**20 * (4 + 16 + 2 * 16)
  assert got.seconds == pytest.approx(got.bytes / chip.hbm)  # more than the work's
  alone = estimate.estimate(found._replace(rows=[r for r in found.rows if not r.beside]), chip)
  assert alone.seconds == pytest.approx(150_000 / chip.clock) and alone.seconds < got.seconds
