"""Checks whether a config would fit, and how fast it would be, on a slice that is not here.

    grpojax podcheck --config=configs/dapo.py:paper --topology=v5p:4x4x4
    ... --config.mesh.slices=2 --config.mesh.data=2   # two such slices, joined over `data`
    ... --topology=cpu:8      # so many devices of this machine; without --topology, what there is
    ... --topology=gpu:24     # a GPU of 24 GB, or gpu:4090, gpu:8xH100: its memory by arithmetic
    ... --suggest             # what would have to change, if it does not fit
    ... --search              # meshes and remat policies, the best five
    ... --programs=update,decode      # not all of them
    ... --json=check.json

Compiles the update, the log-prob pass, the prefill and the decode loop with the slice's own compiler (of
TPUs: pip install grpojax[pods]) and runs nothing; for a GPU, nothing is compiled either.
`config.model.path` may be a folder, or a name that `known.py` has.
"""

import json
import sys
import tempfile
from pathlib import Path

from absl import flags

from grpojax.config import commandline
from grpojax.runtime import storage
from grpojax.tools.podcheck import check, gpus, search, suggest, table, topology

TOPOLOGY = flags.DEFINE_string("topology", "", "v5e:8x8, v5p:4x4x4, gpu:24, cpu:8; default: what is here.")
JSON = flags.DEFINE_string("json", "", "A file for the same figures as data.")
PROGRAMS = flags.DEFINE_list("programs", [], "Of update, log-probs, weights, prefill, decode; all without.")
SUGGEST = flags.DEFINE_bool("suggest", False, "If it does not fit: changes of the config, tried in turn.")
SEARCH = flags.DEFINE_bool("search", False, "Meshes and remat policies of the update; the best five.")


def main(argv):
  config = commandline.start(argv)
  if JSON.value:  # a search takes hours
    if Path(JSON.value).is_dir():
      raise ValueError(f"--json={JSON.value} is a folder; name a file.")
    storage.make_folder(Path(JSON.value).absolute().parent, "--json")
  where = topology.find(TOPOLOGY.value, config.mesh.slices)
  arithmetic = where.name.startswith("gpu:") and where.abstract
  if arithmetic and SEARCH.value:
    raise ValueError(f"--search compiles updates, and none is for --topology={where.name}: leave one out.")
  if PROGRAMS.value and (arithmetic or SEARCH.value):
    other = f"--topology={where.name} compiles none" if arithmetic else "--search compiles updates alone"
    raise ValueError(f"--programs={','.join(PROGRAMS.value)} chooses programs, and {other}: leave one out.")
  if SUGGEST.value and SEARCH.value:
    raise ValueError("--suggest changes a config that does not fit, and --search its mesh: leave one out.")
  with tempfile.TemporaryDirectory() as scratch:
    by = _of_gpus if arithmetic else _checked
    data = (_searched if SEARCH.value else by)(config, where, Path(scratch))
  if JSON.value:
    finite = json.loads(json.dumps(data), parse_constant=lambda _: None)  # JSON has no NaN
    Path(JSON.value).write_text(json.dumps(finite, indent=1, allow_nan=False) + "\n")


def _checked(config, where: topology.Slice, scratch: Path) -> dict:
  """Prints the table, and what would have to change."""
  found = check.check(config, where, scratch, tuple(PROGRAMS.value))
  data = table.data(found)
  print(table.text(found))
  if SUGGEST.value:
    data["suggestions"] = []
    for tried in suggest.suggest(config, found, scratch):
      data["suggestions"].append(tried._asdict())
      print(table.tried(tried), flush=True)
  return data


def _of_gpus(config, where: topology.Slice, scratch: Path) -> dict:
  """Prints what a GPU has to hold, the largest that fits it, and what would make the config fit."""
  found = gpus.check(config, where, scratch)
  print(gpus.text(found))
  data = dict(verdict=found.verdict, room=found.room, seconds=found.seconds)
  data["phases"] = {phase.name: phase.parts for phase in found.phases}
  if found.verdict == "fits":
    largest = list(gpus.largest(found, scratch))
    print(gpus.advice(largest))
    return data | dict(largest=[one._asdict() for one in largest])
  for change in gpus.changes(found):
    changed = gpus.check(config, where, scratch, change)
    print(gpus.tried(change, changed), flush=True)
    if changed.verdict == "fits":
      return data | dict(change=change)
  return data


def _searched(config, where: topology.Slice, scratch: Path) -> dict:
  """Prints the best of all meshes and remat policies."""
  candidates = []
  for candidate in search.search(config, where, scratch):
    candidates.append(candidate)
    print(table.candidate(candidate), file=sys.stderr, flush=True)
  best = search.best(candidates)
  print(table.best(best, len(candidates)))
  return dict(best=[c.change | dict(table.data(c.check)) for c in best], looked_at=len(candidates))


def command() -> None:
  """Reads the flags and runs."""
  commandline.run(main)
