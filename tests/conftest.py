"""Rails for every test: no network, no silent broadcasting, eight fake CPU devices."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
  os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ["HF_HUB_OFFLINE"] = "1"

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
