"""Rails for every test: no network, no silent broadcasting, the CPU backend."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HF_HUB_OFFLINE"] = "1"

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
