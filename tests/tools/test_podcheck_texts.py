"""The pod check's counts of programs as a TPU's compiler writes them: kernels, and what runs beside work."""

import pytest
from podcheck_toys import SIZES, flops

from grpojax.runtime import chips
from grpojax.tools.podcheck.roofline import collectives, counts, estimate, hlo

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
  ROOT %out = {out} custom-call(%ids, %x, %w), custom_call_target="tpu_custom_call", {tile}metadata={{op_name="jit(f)/ragged_dot_general/ragged-dot-none"}}
}}
"""  # noqa: E501
TILE = 'frontend_attributes={mosaic_fusion_entry_point="true",ragged_dot_tiling="128,256,64"}, '
OF_GROUPS, OF_ROWS = "bf16[16,256,64]{2,1,0}", "bf16[4096,64]{1,0}"


@pytest.mark.parametrize("tile, rows", [("", 4096), (TILE, 4096 + 15 * 128)])
@pytest.mark.parametrize("right, out", [(OF_GROUPS, OF_ROWS), (OF_ROWS, OF_GROUPS)])
def test_a_mixtures_products_count_every_row_once_and_a_tile_more_for_each_further_group(
  right, out, tile, rows
):
  """Forward, and as the gradient of the matrices."""
  text = RAGGED.format(right=right, out=out, tile=tile)
  assert flops(counts.count(hlo.parse(text), SIZES)) == 2 * rows * 256 * 64


def test_a_kernel_takes_as_long_as_its_bytes_at_least():
  """Beside work that waits for it: few rows that read many matrices."""
  chip, row = chips.TPUS["v5e"], counts.Row("k", "k", 2.0, 1e9, 1e9, 0.0, "ragged-dot-none", None)
  work = row._replace(kernel="", flops=1e12, bytes=0.0)
  got = estimate.estimate(counts.Counts([row, work], []), chip)
  assert got.seconds == got.fastest == pytest.approx(2 * (1e9 / chip.hbm + 1e12 / chip.flops))
  for kernel, share in ("ragged-dot-none", chip.mixture), ("splash_mha_fwd", chip.attention):
    wide = estimate.estimate(counts.Counts([row._replace(flops=1e15, kernel=kernel)], []), chip)
    assert wide.seconds == pytest.approx(2 * 1e15 / chip.flops / share) and wide.fastest < wide.seconds


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


GATHERED = """
%rows (x: bf16[64,256], at: s32[512]) -> bf16[512,256] {
  %x = bf16[64,256]{1,0} parameter(0)
  %at = s32[512]{0} parameter(1)
  ROOT %g = bf16[512,256]{1,0} gather(%x, %at), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,256}
}

%async_computation (x: bf16[64,256], at: s32[512]) -> bf16[512,256] {
  %x = bf16[64,256]{1,0} parameter(0)
  %at = s32[512]{0} parameter(1)
  ROOT %gather_offload_custom_fusion = bf16[512,256]{1,0} fusion(%x, %at), kind=kCustom, calls=%rows, backend_config={"estimated_cycles":"9223372036854775808"}
}

ENTRY %main (x: bf16[64,256], at: s32[512]) -> bf16[512,256] {
  %x = bf16[64,256]{1,0} parameter(0)
  %at = s32[512]{0} parameter(1)
  %s = ((bf16[64,256]{1,0}, s32[512]{0}), bf16[512,256]{1,0}) async-start(%x, %at), async_execution_thread="sparsecore", calls=%async_computation
  ROOT %d = bf16[512,256]{1,0} async-done(%s)
}
"""  # noqa: E501


def test_rows_that_another_core_gathers_are_waited_for_at_the_bandwidth():
  found, chip = counts.count(hlo.parse(GATHERED), SIZES), chips.TPUS["v5p"]
  (row,) = found.rows
  assert not row.beside and row.cycles == 0 and row.bytes >= 512 * 256 * 2
  assert estimate.estimate(found, chip).seconds == pytest.approx(row.bytes / chip.hbm)


CALL = """
ENTRY %main (x: f32[8,128]) -> f32[8,128] {{
  %x = f32[8,128]{{1,0}} parameter(0)
  ROOT %room = f32[8,128]{{1,0}} custom-call(%x), custom_call_target="{target}"
}}
"""


@pytest.mark.parametrize(("target", "arrays"), [("AllocateBuffer", 0), ("ConcatBitcast", 0), ("Reads", 2)])
def test_a_call_that_only_makes_room_moves_nothing(target, arrays):
  rows = counts.count(hlo.parse(CALL.format(target=target)), SIZES).rows
  assert sum(r.bytes for r in rows) == arrays * 8 * 128 * 4


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
  chip = chips.TPUS["v5e"]
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
  found, chip = counts.count(hlo.parse(BESIDE), SIZES), chips.TPUS["v5e"]
  assert {r.name: r.beside for r in found.rows} == {"s": True, "copy": True, "work": False}
  got = estimate.estimate(found, chip)
  assert got.bytes == 2 * 2**20 * (4 + 16 + 2 * 16)
  assert got.seconds == pytest.approx(got.bytes / chip.hbm)  # more than the work's
  alone = estimate.estimate(found._replace(rows=[r for r in found.rows if not r.beside]), chip)
  assert alone.seconds == pytest.approx(150_000 / chip.clock) and alone.seconds < got.seconds
