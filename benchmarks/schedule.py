"""Final schedules of a TPU's kernels, as its compiler writes them; a bundle of instructions is a cycle."""

import os
import re
from collections.abc import Callable
from pathlib import Path

BUNDLE = re.compile(r"\s*(0x[0-9a-f]+|\d+)\s+(L[BHE]|P[BF]|CT)?\s*: ")


def dump_to(folder: str) -> None:
  """Has the compiler write its schedules into a folder.  This is called before anything else of JAX."""
  wanted = dict(dump_to=folder, dump_llo_text="true", dump_llo_pass_label_regex="final_bundles")
  os.environ["LIBTPU_INIT_ARGS"] = " ".join(f"--xla_jf_{key}={value}" for key, value in wanted.items())


def kernels(compile_: Callable[[], object], folder: Path, pattern: str) -> list[tuple[str, str]]:
  """Compiles, and returns (what the pattern's group found in its name, text) of each new schedule."""
  before = set(folder.iterdir())
  compile_()
  new = sorted(p for p in set(folder.iterdir()) - before if p.name.endswith("-final_bundles.txt"))
  found = [(re.search(pattern, p.name), p) for p in new if "schedule" not in p.name]
  return [(match[1], p.read_text()) for match, p in found if match]


def bundles(text: str) -> list[tuple[int, str | None, str]]:
  """Returns number, mark and line of each bundle."""
  matches = ((BUNDLE.match(line), line) for line in text.splitlines())
  return [(int(m[1], 0), m[2], line) for m, line in matches if m]
