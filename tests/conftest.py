"""Rails for every test: no network, no silent broadcasting, eight fake CPU devices; all compiled in a hurry.

Most programs run once or twice here, so compiling them well costs more than it saves: nothing is
optimised, and XLA's older CPU emitters take half as long as today's.  What subprocesses.environment()
starts inherits both; test_train.py starts the README's command with the emitters that users have.
"""

import importlib.metadata
import os
from pathlib import Path

from subprocesses import QUICK

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = " ".join(
  [os.environ.get("XLA_FLAGS", ""), QUICK, "--xla_force_host_platform_device_count=8"]
)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
# Many tests compile the same program.  They are kept between runs, by jax's version and the program itself.
PROGRAMS = Path("~/.cache/grpojax-tests").expanduser() / importlib.metadata.version("jax")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(PROGRAMS))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
  """A config.cache_dir that jobs share: datasets and cold starts of this session, programs of all of them."""
  folder = tmp_path_factory.mktemp("cache")
  PROGRAMS.mkdir(parents=True, exist_ok=True)
  (folder / "programs").symlink_to(PROGRAMS)
  return folder


@pytest.fixture(autouse=True)
def _kept_programs():
  """A command that a test calls in this process keeps its programs where its config says."""
  jax.config.update("jax_compilation_cache_dir", str(PROGRAMS))
