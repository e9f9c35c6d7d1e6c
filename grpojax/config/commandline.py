"""Parses the flags and starts the process of every program with a --config; mistakes end in one sentence."""

import re
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags.config_flags import ConfigFileFlagParser

from grpojax.config import check_keys, help, overrides, recipe
from grpojax.runtime import console, errors, limits, processes, program_cache, storage

_CONFIG = re.compile("--?config(=|$)")
_OVERRIDE = re.compile(r"--?(?:no)?config\.([^=]+)")
_ANY_KEY = dict(lock_config=False, accept_new_attributes=True)  # check_keys refuses those that there are not
config_flags.DEFINE_config_file(
  "config", None, "Recipe: gspo, gspo:tiny, my/recipe.py; the first word may be it.", **_ANY_KEY
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


def parse(argv, folder: Path = recipe.FOLDER):
  """Parses flags as absl does.  Exits with one sentence, not a traceback, where there is a mistake.

  `folder` has the recipes that a name stands for.
  """
  try:
    return _parse(argv, flags.FLAGS, folder)
  except Exception as error:
    sys.exit(f"error: {mistake(error)}")


def config_of(
  arguments: list[str], folder: Path = recipe.FOLDER, check: Callable = check_keys.check
) -> ConfigDict:
  """Returns the config of `--config=... --config.key=value ...`.  Raises ValueError for a mistake in them."""
  config, _ = settled(arguments, folder)
  check(config)
  return config


def settled(arguments: list[str], folder: Path = recipe.FOLDER) -> tuple[ConfigDict, list[str]]:
  """Returns (their config, unchecked; what to say of knobs that it replaced).  Raises ValueError."""
  argv, values = ["grpojax", *arguments], flags.FlagValues()
  config_flags.DEFINE_config_file("config", None, "", values, sys_argv=argv, **_ANY_KEY)
  try:
    _parse(argv, values, folder)
  except Exception as error:
    raise ValueError(mistake(error)) from error
  return _settle(values)


class _Parser(ConfigFileFlagParser):
  """Loads a recipe by name or file, with room for the keys that the command line sets."""

  def __init__(self, argv: list[str], folder: Path):
    super().__init__("config", lock_config=False)
    self.folder = folder
    self.keys = [match[1] for word in argv if (match := _OVERRIDE.match(word))]

  def parse(self, value: str) -> ConfigDict:
    try:
      config = super().parse(recipe.find(value, folder=self.folder))
      config.to_dict()  # a file that could not be loaded raises only when it is read
      overrides.make_room(config, self.keys)
    except ValueError as error:
      raise flags.Error(error) from error  # as it is: absl would quote the flag before it
    return config


def _parse(argv: list[str], values: flags.FlagValues, folder: Path) -> list[str]:
  """Parses into `values`, and returns the words that no flag took."""
  if argv[1:] and not argv[1].startswith("-"):  # grpojax train gspo
    if any(_CONFIG.match(word) for word in argv[2:]):
      raise flags.Error(f"{argv[1]} is a recipe and --config names one too; leave one of them out.")
    argv = [argv[0], f"--config={argv[1]}", *argv[2:]]
  values["config"].parser = _Parser(argv, folder)
  rest = values(argv)
  if values["config"].value is None:
    command = argv[0] if argv[0].startswith("grpojax ") else "grpojax train"
    names = recipe.names(folder)
    one = "gspo" if "gspo" in names else names[0]
    raise flags.Error(f"no recipe is named; write one as in `{command} {one}`, and --help lists them.")
  return rest


def _settle(values: flags.FlagValues) -> tuple[ConfigDict, list[str]]:
  """Returns (the config, locked, without knobs of functions that flags replaced; what to say of those)."""
  flag = values["config"]
  before = flag.parser.parse(config_flags.get_config_filename(flag))
  said = overrides.drop_knobs(flag.value, before, config_flags.get_override_values(flag))
  flag.value.lock()
  return flag.value, said


def mistake(error: Exception) -> str:
  """Returns one sentence for what absl or ml_collections could not parse."""
  if isinstance(error, OSError):
    return f"--config cannot be read: {' '.join(str(error).split())}"
  if isinstance(error, flags.UnrecognizedFlagError):
    return _unknown(error.flagname)
  if isinstance(error, flags.Error):  # of a config file that raises, absl quotes the whole traceback
    return str(error).strip().splitlines()[-1]
  last = traceback.extract_tb(error.__traceback__)[-1]  # a recipe that is no program
  said = f"{type(error).__name__}: {' '.join(str(error).split())}"
  return f"--config cannot be read ({said}, at {last.filename}:{last.lineno})"


def _unknown(name: str) -> str:
  """Returns what to say of a flag that is none: the nearest of ours, else all; absl would name its own."""
  ours = lambda module: module == sys.argv[0] or module.startswith("grpojax")  # absl and Grain have some, too
  own = [
    flag.name
    for module, listed in flags.FLAGS.flags_by_module_dict().items() if ours(module) for flag in listed
  ]  # fmt: skip
  near = recipe.nearest(name, own)
  known = f"did you mean --{near[0]}?" if near else f"the flags are {', '.join(f'--{one}' for one in own)}."
  return f"there is no flag --{name}; {known}"


def set_up_jax(config: ConfigDict) -> None:
  """Sets the devices of a CPU, which has to be before JAX is used, and the cache of programs.

  Raises ValueError for limits of the process, switches of JAX and a cache that cannot be made.
  """
  limits.check()
  # Libraries report every checkpoint and data set; and what a thread of Orbax meets it raises as well, where
  # it becomes one sentence.
  logging.set_verbosity(logging.FATAL)
  devices = config.mesh.cpu_devices
  if devices > 1 and jax.config.jax_num_cpu_devices != devices:
    jax.config.update("jax_num_cpu_devices", devices)
  programs = storage.cache(config.cache_dir, "programs")
  storage.make_folder(programs, "config.cache_dir")
  program_cache.use(programs)


def set_up_process(config: ConfigDict, check: Callable = check_keys.check) -> None:
  """Sets JAX up for a config.  Raises ValueError for keys, and as `set_up_jax`."""
  check(config)
  jax.config.update("jax_numpy_rank_promotion", "raise")
  set_up_jax(config)


def start(argv, check: Callable = check_keys.check) -> ConfigDict:
  """Sets JAX and the processes up by the config, and returns it; `argv` are the words that no flag took.

  `check(config)` raises ValueError for a config that is none.
  """
  if len(argv) > 1:
    raise ValueError(f"nothing is known of {' '.join(argv[1:])}; keys are written --config.key=value.")
  config, notes = _settle(flags.FLAGS)
  set_up_process(config, check)
  processes.initialize({flag.name: flag.value for flag in PROCESSES}, HEARTBEAT.value)
  for note in notes:
    console.say(f"note: {note}.")
  return config


def workdir(value: str | None, default: str) -> str:
  """Returns --workdir, or `default` where it was left out.  Raises ValueError for an empty one."""
  if value == "":
    raise ValueError(f"--workdir= is empty; name a folder, or leave the flag out for {default}.")
  return value or default


def run(main, folder: Path = recipe.FOLDER) -> None:
  """Runs main(argv) under absl; a recipe is required, of `folder` where it is named."""
  if {"-h", "--help"} & set(sys.argv[1:]):
    module = sys.modules[main.__module__]
    print(help.text(sys.argv[0], module.__doc__, module.__name__, folder))
    return
  run = processes.end_together(errors.guarded(main))
  errors.command(partial(app.run, run, flags_parser=partial(parse, folder=folder)))
