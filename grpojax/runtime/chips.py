"""Peak rates and memory of chips, as their makers publish them."""

from typing import NamedTuple

GIB = 2**30


class Chip(NamedTuple):
  flops: float  # a second, bfloat16
  hbm: float  # bytes a second
  memory: float  # bytes that a program may have
  link: float  # bytes a second of one link, one way; 0: unknown
  network: float  # bytes a second and chip between slices; NaN: not published
  clock: float  # cycles a second, as the compiler counts them; 0: it counts none
  attention: float  # share of the peak that its kernels reach: benchmarks/attention.py; 0: not looked at
  mixture: float  # the same of a mixture's products: benchmarks/mixture.py
  sparse_cores: bool = False  # beside the TensorCores, that carry out collectives


# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm, links by https://jax-ml.github.io/scaling-book
TPUS = {
  "v4": Chip(275e12, 1228e9, 32 * GIB, 45e9, float("nan"), 1.05e9, 0.54, 0.60),
  "v5e": Chip(197e12, 819e9, 15.75 * GIB, 45e9, 3.125e9, 1.5e9, 0.72, 0.96),
  "v5p": Chip(459e12, 2765e9, 95.73 * GIB, 90e9, 6.25e9, 1.75e9, 0.68, 0.96, True),
  "v6e": Chip(918e12, 1640e9, 32 * GIB, 90e9, 12.5e9, 1.75e9, 0.28, 0.78, True),
  # Half a chip: JAX has two devices of each.  https://docs.cloud.google.com/tpu/docs/tpu7x
  "tpu7x": Chip(1153.5e12, 3690e9, 96 * GIB, 45e9, 6.25e9, 2.2e9, 0.28, 0.88, True),
}
KINDS = {  # as devices name themselves
  "TPU v4": "v4", "v5 lite": "v5e", "v5e": "v5e", "TPU v5": "v5p", "v6 lite": "v6e", "v6e": "v6e",
  "TPU7x": "tpu7x",
}  # fmt: skip
GPUS = {  # https://www.nvidia.com/en-us/data-center/: dense bfloat16; names within names come last
  "H100": Chip(989e12, 3350e9, 80e9, *[0.0] * 5),
  "H200": Chip(989e12, 4800e9, 141e9, *[0.0] * 5),
  "A100": Chip(312e12, 2039e9, 80e9, *[0.0] * 5),
  "L40S": Chip(362e12, 864e9, 48e9, *[0.0] * 5),
  "L4": Chip(121e12, 300e9, 24e9, *[0.0] * 5),
  "4090": Chip(165e12, 1008e9, 24e9, *[0.0] * 5),
}


def of_device(kind: str) -> Chip | None:
  """Returns the chip by its device kind; None for a kind without published numbers, such as a CPU."""
  known = {name: TPUS[tpu] for name, tpu in KINDS.items()} | GPUS
  found = [chip for name, chip in known.items() if name in kind]
  return found[0] if found else None


def gpu(name: str) -> Chip | None:
  """Returns a GPU by its name, or by its memory in GB ("24": no peaks); None if it is neither."""
  if name in GPUS:
    return GPUS[name]
  a_number = name.replace(".", "", 1).isdigit()
  return Chip(float("nan"), float("nan"), float(name) * 1e9, *[0.0] * 5) if a_number else None
