"""Final schedules of a TPU's kernels, as its compiler writes them; a bundle of instructions is a cycle."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax

from benchmarks.setting import keep, setting, where

SLICES = {"v4:2x2x1": 2, "v5e:2x2": 1, "v5p:2x2x1": 2, "v6e:2x2": 1, "tpu7x:2x2x1": 1}  # cores of a device
BUNDLE = re.compile(r"\s*(0x[0-9a-f]+|\d+)\s+(L[BHE]|P[BF]|CT)?\s*: ")


def report(name: str, shares: Callable[[str, Path], dict[str, float]], columns: dict[str, str]) -> None:
  """Writes results/{name}.json and prints Markdown: shares(slice, folder of schedules) of every slice.

  `columns` are the heads of what `shares` returns.  This is called before anything else of JAX.
  """
  with tempfile.TemporaryDirectory() as dumps:
    wanted = dict(dump_to=dumps, dump_llo_text="true", dump_llo_pass_label_regex="final_bundles")
    os.environ["LIBTPU_INIT_ARGS"] = " ".join(f"--xla_jf_{key}={value}" for key, value in wanted.items())
    found = {slice_: shares(slice_, Path(dumps)) for slice_ in SLICES}
  now = setting(f"benchmarks.{name}")
  keep(name, now | dict(found=found))
  print(f"| | {' | '.join(columns.values())} |\n|{'---|' * (1 + len(columns))}")
  for slice_, of in found.items():
    print(f"| {slice_.partition(':')[0]} | {' | '.join(f'{of[key]:.2f}' for key in columns)} |")
  print(f"\n{where(now)}")


def kernels(lowered: jax.stages.Lowered, folder: Path, pattern: str) -> tuple[str, dict[str, str]]:
  """Compiles a program; returns its text, and its schedules by what `pattern` finds in their names."""
  before = set(folder.iterdir())
  program = lowered.compile().as_text()
  new = [p for p in set(folder.iterdir()) - before if p.name.endswith("-final_bundles.txt")]
  found = [(re.search(pattern, p.name), p) for p in new if "schedule" not in p.name]
  return program, {match[1]: p.read_text() for match, p in found if match}


def bundles(text: str) -> list[tuple[int, str | None, str]]:
  """Returns number, mark and line of each bundle."""
  matches = ((BUNDLE.match(line), line) for line in text.splitlines())
  return [(int(m[1], 0), m[2], line) for m, line in matches if m]
