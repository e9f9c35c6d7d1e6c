"""Rails for every test: no network, no silent broadcasting, eight fake CPU devices; all compiled in a hurry.

Most programs run once or twice here, so compiling them well costs more than it saves: nothing is
optimised, and XLA's older CPU emitters take half as long as today's.  What subprocesses.environment()
starts inherits both; test_train.py starts the README's command with the emitters that users have.
"""

import atexit
import os
import shutil
import tempfile

from subprocesses import QUICK

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = " ".join(
  [os.environ.get("XLA_FLAGS", ""), QUICK, "--xla_force_host_platform_device_count=8"]
)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
# Many tests compile the same program: a cache of programs for all workers, for as long as the tests run.
if "GRPOJAX_TESTS_PROGRAMS" not in os.environ:
  os.environ["GRPOJAX_TESTS_PROGRAMS"] = tempfile.mkdtemp(prefix="grpojax-tests-")
  atexit.register(shutil.rmtree, os.environ["GRPOJAX_TESTS_PROGRAMS"], ignore_errors=True)

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", os.environ["GRPOJAX_TESTS_PROGRAMS"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
