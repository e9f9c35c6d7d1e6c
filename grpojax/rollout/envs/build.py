"""From a name to an environment: the package's own, or a class or function of a module of one's own.

frozen_lake                    make(**knobs) of grpojax/rollout/envs/frozen_lake.py
textarena:Hanoi-v0-train       make("Hanoi-v0-train", **knobs) of grpojax/rollout/envs/textarena.py
my_module:MyEnvironment        MyEnvironment(**knobs)
"""

import functools
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from grpojax.rollout.envs.interface import Environment

_FOLDER = Path(__file__).parent
_MAKE = re.compile(r"^(def make\(|make = )", re.MULTILINE)


def names() -> list[str]:
  """Returns the names of the package's own environments: of its files that have a `make`."""
  return sorted(path.stem for path in _FOLDER.glob("*.py") if _MAKE.search(path.read_text()))


def module_of(name: str) -> str:
  """Returns the module that an environment of this name is in."""
  first = name.partition(":")[0]
  return f"{__package__}.{first}" if first in names() else first


def source_files(name: str) -> list[Path]:
  """Returns the files that an environment of this name is made of, as far as they are Python's."""
  own = importlib.util.find_spec(module_of(name))
  files = {Path(own.origin)} if own and own.origin else set()
  return sorted(files | set(_FOLDER.glob("*.py")))


def find(name: str) -> Callable[..., Environment]:
  """Returns what makes an environment of its knobs.  Raises ValueError for a name that says none."""
  first, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
  if first in names():
    make = importlib.import_module(module_of(name)).make
    return functools.partial(make, rest) if rest else make
  if not (first and rest):
    raise ValueError(
      f"the environment '{name}' is none of {', '.join(names())}; write one of one's own as 'module:Class'."
    )
  try:
    module = importlib.import_module(first)
  except ModuleNotFoundError as error:
    if error.name is None or not f"{first}.".startswith(f"{error.name}."):
      raise  # the module is there, and something that it imports is not
    raise ValueError(f"the environment '{name}': there is no module {first}.") from None
  if not callable(getattr(module, rest, None)):
    raise ValueError(f"the environment '{name}': {first} has no class or function {rest}.")
  return getattr(module, rest)


def check(name: str, knobs: Mapping, timeout: float) -> None:
  """Raises ValueError for a name that says no environment, for knobs that it does not take, or no time.

  What makes an environment may have an attribute `check(**knobs)`, which is called once, here.
  """
  make = find(name)
  takes = inspect.signature(make).parameters.values()
  menu = [p.name for p in takes if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
  if not any(p.kind is p.VAR_KEYWORD for p in takes):
    for knob in knobs:
      if knob not in menu:
        raise ValueError(f"the environment '{name}' has no {knob}; it takes {', '.join(menu) or 'nothing'}.")
  try:
    inspect.signature(make).bind(**knobs)
  except TypeError as error:
    raise ValueError(f"the environment '{name}' cannot be made ({error}).") from None
  make(**knobs)  # whose own ValueErrors say what is wrong with a knob
  _ask(make, "check", knobs)
  if not timeout > 0:
    raise ValueError(f"the time limit of an environment, {timeout!r}, must be a number of seconds above 0.")


def schemas(name: str, knobs: Mapping) -> tuple[dict, ...]:
  """Returns the tools that an environment's prompts have to describe, as chat templates take them.

  What makes an environment may have an attribute `schemas(**knobs)`; others have none.
  """
  return tuple(_ask(find(name), "schemas", knobs) or ()) if name else ()


def _ask(make: Callable, attribute: str, knobs: Mapping) -> Any:
  """Calls what makes an environment by one of its attributes, if it has that."""
  whole = make if isinstance(make, functools.partial) else functools.partial(make)
  if hasattr(whole.func, attribute):
    return getattr(whole.func, attribute)(*whole.args, **knobs)
  return None
