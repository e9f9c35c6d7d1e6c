"""Rails for every test: no network, no silent broadcasting, eight fake CPU devices."""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
  os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ["HF_HUB_OFFLINE"] = "1"

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

# Many tests compile the same program: a compilation cache that lives as long as the tests do.
CACHE = tempfile.mkdtemp(prefix="grpojax-tests-")
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


@pytest.fixture(scope="module")
def in_a_hurry():
  """For files whose programs run a few times each: compiling them well would cost more than it saves."""
  jax.config.update("jax_disable_most_optimizations", True)
  yield
  jax.config.update("jax_disable_most_optimizations", False)
