"""Parses the flags and starts the process of every program with a --config; mistakes end in one sentence."""

import sys
import traceback
from pathlib import Path

import jax
from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from grpojax.config import check_keys
from grpojax.runtime import errors, limits, processes, program_cache

CONFIG = config_flags.DEFINE_config_file(
  "config", None, "Recipe, e.g. configs/gspo.py or configs/gspo.py:mini.", lock_config=True
)
PROCESSES = [  # docs/hosts.md; on a TPU slice and under SLURM none of them is needed
  flags.DEFINE_string("coordinator_address", None, "host:port of process 0, where all processes meet."),
  flags.DEFINE_integer("num_processes", None, "Of this run; 1: one, whatever the environment says."),
  flags.DEFINE_integer("process_id", None, "Which of them this is, from 0."),
]
flags.DEFINE_bool("debug", False, "Show the traceback of an error.")  # runtime/errors.py takes it
HEARTBEAT = flags.DEFINE_integer(
  "heartbeat_timeout", processes.HEARTBEAT, "Seconds without a sign of a process until all end.",
  lower_bound=1,
)  # fmt: skip


def parse(argv):
  """Parses flags as absl does.  Exits with one sentence, not a traceback, where there is a mistake."""
  try:
    rest = flags.FLAGS(argv)
    CONFIG.value.to_dict()  # a file that could not be loaded raises only when it is read
    return rest
  except Exception as error:
    sys.exit(f"error: {mistake(error)}")


def config_of(arguments: list[str]) -> ConfigDict:
  """Returns the config of `--config=... --config.key=value ...`.  Raises ValueError for a mistake in them."""
  argv, values = ["grpojax", *arguments], flags.FlagValues()
  holder = config_flags.DEFINE_config_file("config", None, "", values, lock_config=True, sys_argv=argv)
  try:
    values(argv)
    holder.value.to_dict()
    return holder.value
  except Exception as error:
    raise ValueError(mistake(error)) from error


def mistake(error: Exception) -> str:
  """Returns one sentence for what absl or ml_collections could not parse."""
  if isinstance(error, AttributeError | KeyError):  # how ml_collections refuses a key that it has not
    inner = error.args[0] if error.args else error
    inner = inner.args[0] if isinstance(inner, KeyError) and inner.args else inner
    return f"--config has no key {' '.join(str(inner).split())}"
  if isinstance(error, OSError):
    return f"--config cannot be read: {str(error).split()[-1]} is no such file"
  if isinstance(error, flags.Error):  # of a config file that raises, absl quotes the whole traceback
    return str(error).strip().splitlines()[-1]
  last = traceback.extract_tb(error.__traceback__)[-1]  # a recipe that is no program, a key that is no name
  said = f"{type(error).__name__}: {' '.join(str(error).split())}"
  return f"--config cannot be read ({said}, at {last.filename}:{last.lineno})"


def start(argv) -> ConfigDict:
  """Sets JAX and the processes up by the config, and returns it; `argv` are the words that no flag took."""
  if len(argv) > 1:
    raise app.UsageError(f"Unknown arguments {argv[1:]}; overrides are written --config.key=value.")
  # Libraries report every checkpoint and data set; and what a thread of Orbax meets it raises as well, where
  # it becomes one sentence.
  logging.set_verbosity(logging.FATAL)
  config = CONFIG.value
  try:
    limits.check()
    check_keys.check(config)
  except ValueError as error:
    sys.exit(f"error: {error}")
  jax.config.update("jax_numpy_rank_promotion", "raise")
  if config.mesh.cpu_devices > 1:
    jax.config.update("jax_num_cpu_devices", config.mesh.cpu_devices)
  cache = Path(config.cache_dir).expanduser() / "programs"
  program_cache.use(cache)
  try:
    processes.initialize({flag.name: flag.value for flag in PROCESSES}, HEARTBEAT.value)
  except ValueError as error:
    sys.exit(f"error: {error}")
  return config


def run(main) -> None:
  """Runs main(argv) under absl, with --config required."""
  flags.mark_flag_as_required("config")
  errors.take_flag()
  app.run(processes.end_together(errors.guarded(main)), flags_parser=parse)
