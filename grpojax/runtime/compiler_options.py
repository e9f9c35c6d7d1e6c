"""Options of XLA's compilers, and a TPU's sizes in pieces.  docs/pods.md says what each is worth.

A vmem limit is one instruction's share of the memory beside the cores: a high limit lets products have
large windows, a low one leaves room for what is read ahead.
"""

from jax.sharding import Mesh

from grpojax.runtime import chips

PIECE = 36 * 2**20  # bytes: several of a decode loop's arrays lie beside a TPU's cores at a time
UPDATE_VMEM = {"v5": 64, "v6": 112, "7x": 48}  # MiB, where passes over whole sequences are bound by products
DECODE_VMEM = 16  # MiB
INFLATION = 8.0  # times what it is made of, that a value may be large which all passes of a loop share
# Widens sums of bfloat16 over a CPU's devices, and aborts the process at the copies in them (jaxlib 0.10.2).
PROMOTION = "all-reduce-promotion"


def options(mesh: Mesh, decoding: bool = False) -> dict[str, str] | None:
  """Returns options for `jax.jit`; None where the defaults are right."""
  if mesh.devices.flat[0].platform == "cpu" and mesh.size > 1:
    return {"xla_disable_hlo_passes": PROMOTION}
  if not _is_tpu(mesh):
    return None
  # Gathered matrices are gathered whole: multiplied part by part, the sum would be written once a part.
  parts = "xla_tpu_enable_windowed_einsum_for_"
  found = {f"{parts}all_gather": "false", f"{parts}reduce_scatter": "false"}
  generation = _generation(mesh)
  if not generation:
    return found
  if not decoding:  # masks of attention's kernels are widened to 4 bytes once, not in every layer
    found["xla_tpu_licm_size_inflation_ratio"] = str(INFLATION)
  vmem = DECODE_VMEM if decoding else UPDATE_VMEM[generation]
  found["xla_tpu_scoped_vmem_limit_kib"] = str(vmem * 1024)
  if decoding:  # prefetches are chosen by the time that an instruction takes, not by its bytes
    found["xla_msa_use_bundle_aware_cost_model"] = "true"
  elif (chip := chips.of_device(mesh.devices.flat[0].device_kind)) and chip.sparse_cores:
    found |= _on_sparse_cores()
  return found


def piece_bytes(mesh: Mesh) -> int:
  """Returns about how large arrays of a decode loop are on a device; 0: any size is read alike."""
  return PIECE if _generation(mesh) else 0


def _on_sparse_cores() -> dict[str, str]:
  """Returns options that run collectives on SparseCores, while the TensorCore multiplies.

  A mesh axis may lie along two or three of the torus: without their options its gathers stay on the
  TensorCore, or become sums of twice the bytes, as sums of gradients do along three.
  """
  offload = "xla_tpu_enable_sparse_core_collective_offload_"
  found = {f"{offload}{n}d_all_gather": "true" for n in (2, 3)} | {f"{offload}nd_reduce_scatter": "true"}
  found["xla_tpu_prefer_async_allgather_to_allreduce"] = "true"
  for kind in ("all_gather", "reduce_scatter", "all_reduce"):
    found[f"{offload}{kind}"] = "true"
    found[f"xla_tpu_enable_async_collective_fusion_fuse_{kind}"] = "false"
  return found


def _is_tpu(mesh: Mesh) -> bool:
  return mesh.devices.flat[0].device_kind.startswith("TPU")


def _generation(mesh: Mesh) -> str:
  """Returns the key of UPDATE_VMEM; "" for generations with less memory beside the cores, or not measured."""
  kind = mesh.devices.flat[0].device_kind if _is_tpu(mesh) else ""
  return next((known for known in UPDATE_VMEM if known in kind), "")
