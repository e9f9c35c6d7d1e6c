"""Rails for every test: no network, no silent broadcasting, eight fake CPU devices; all compiled in a hurry.

Most programs run once or twice here, so compiling them well costs more than it saves: nothing is
optimised, XLA's older CPU emitters take half as long as today's, and a program is not cut for parallel
compilation, as the other core has another worker's.  What subprocesses.environment()
starts inherits both; test_train.py starts the README's command with the emitters that users have.
"""

import gc
import os
from pathlib import Path

import frames
import shared_programs
import subprocesses
from subprocesses import PROGRAMS, QUICK

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = " ".join(
  [os.environ.get("XLA_FLAGS", ""), QUICK, "--xla_force_host_platform_device_count=8"]
)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # lowering need not say where each operation was written
os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"  # they put the folder's path in every key
os.environ["HF_HUB_OFFLINE"] = "1"
# Of the workers and what they start: freed memory stays with a process, which asks for it again soon.
os.environ["MALLOC_TRIM_THRESHOLD_"] = str(1 << 30)  # bytes
os.environ["MALLOC_TOP_PAD_"] = str(1 << 24)

import contexts  # imports jax
import jax
import pytest

from grpojax.runtime import program_cache

jax.config.update("jax_numpy_rank_promotion", "raise")
program_cache.use(PROGRAMS)
contexts.share()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


MAPPINGS = 65_530  # of a process; vm.max_map_count as it comes
JOBS_FIRST = (
  "tests/experiments/test_real_model.py", "tests/runtime/test_processes.py", "tests/train/", "tests/faults/",
  "tests/experiments/test_experiments.py", "tests/tools/test_pipeline_runs.py", "tests/tools/test_podcheck",
)  # fmt: skip


def pytest_collection_modifyitems(items):
  """Puts whole jobs first: one worker has them, and shares their programs; none ends with a long one."""
  place = {name: number for number, name in enumerate(JOBS_FIRST)}
  of = lambda item: next((n for name, n in place.items() if item.nodeid.startswith(name)), len(place))
  items.sort(key=of)


def pytest_collection_finish():
  """Keeps the garbage collector off what imports and collection made: that takes a tenth of a run."""
  gc.freeze()
  gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
  """Runs each test as pytest does, where frames have room."""
  runner = item.config.pluginmanager.get_plugin("runner")
  return frames.with_room(runner.pytest_runtest_protocol, item, nextitem)


def pytest_runtest_teardown(item, nextitem):
  """Forgets a file's programs when they have taken half of the mappings that Linux gives a process.

  Each compiled program has mappings of its own, and past 65,530 of them the next one ends the process.
  """
  if nextitem and nextitem.path != item.path and _mappings() > MAPPINGS // 2:
    shared_programs.BUILT.clear()
    jax.clear_caches()
    gc.collect()


def _mappings() -> int:
  maps = Path("/proc/self/maps")
  return len(maps.read_bytes().splitlines()) if maps.exists() else 0


def pytest_terminal_summary(terminalreporter):
  """Says in one line what was skipped for want of bubblewrap."""
  skipped = terminalreporter.stats.get("skipped", [])
  wanting = [one.nodeid.partition("::")[0] for one in skipped if "needs bubblewrap" in str(one.longrepr)]
  if wanting:
    terminalreporter.write_line(
      f"{len(wanting)} tests were skipped for want of bubblewrap (apt-get install bubblewrap):"
      f" {', '.join(sorted(set(wanting)))}"
    )


@pytest.fixture(scope="session")
def cache() -> Path:
  """A config.cache_dir that the jobs of a worker share, and keep: datasets, cold starts and programs."""
  return subprocesses.cache_in(PROGRAMS.parent / os.environ.get("PYTEST_XDIST_WORKER", "main"))


@pytest.fixture(autouse=True)
def _kept_programs():
  """Takes back where a command that another test called in this process keeps its programs."""
  jax.config.update("jax_compilation_cache_dir", str(PROGRAMS))


@pytest.fixture
def quick_programs(monkeypatch):
  """Jobs here share the programs that are the same, and keep the memory that they free."""
  from grpojax.runtime import compile  # here: the process that deals the tests needs none of it

  shared_programs.share(monkeypatch)
  monkeypatch.setattr(compile, "malloc_trim", lambda: None)


@pytest.fixture
def quick_jobs(monkeypatch, quick_programs):
  """They draw no report, either."""
  from grpojax.runtime import report

  monkeypatch.setattr(report, "write", lambda files: None)


@pytest.fixture
def quick_studies(monkeypatch, quick_jobs):
  """Runs of studies go on in this process, too."""
  from grpojax.tools.study import execute, worker
  from grpojax.train import shared

  def everything(runs, at_once):
    for run in execute.in_turn(runs):
      worker.run([*run.flags, "--config.verbose=False"], str(run.workdir), shared.anew)
    return []

  monkeypatch.setattr(execute, "everything", everything)
