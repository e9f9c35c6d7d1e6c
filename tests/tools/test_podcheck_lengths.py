"""What an update keeps and sends, by a TPU's compiler, at three lengths; large ones: docs/pods.md."""

import json
import math
from collections import Counter

import podcheck_toys
import pytest

COLUMNS = 512, 1024, 2048
VOCABULARY = 260
DRIVER = """
import json, sys
from pathlib import Path
from grpojax.config import commandline
from grpojax.tools.podcheck import programs, topology
from grpojax.tools.podcheck.roofline import counts, hlo

where = topology.find("v5e:2x2")
for columns in map(int, sys.argv[2:]):
  flags = ["rollout.prompts=8", f"rollout.max_tokens={columns - 31}", "mesh.fsdp=4", "logprob_chunk=256",
           "model.head_dim=128"]
  config = commandline.config_of(["--config=configs/dapo.py:tiny", *(f"--config.{flag}" for flag in flags)])
  update = programs.update(programs.plan(config, where.machine, Path(sys.argv[1])))
  module = hlo.parse(update.lowered.compile().as_text())
  arrays = [a.shape for c in module.computations.values() for i in c.instructions.values() for a in i.arrays]
  rows = counts.count(module, update.mesh, update.unknown).rows
  sent = [(r.collective.kind, r.times, r.times * r.collective.wire) for r in rows if r.collective]
  print(json.dumps([arrays, sent]))
"""

pytestmark = [pytest.mark.slow, podcheck_toys.needs_libtpu]


@pytest.fixture(scope="module")
def updates(tmp_path_factory):
  """(shapes of all arrays, collectives) of the update with rows of so many COLUMNS."""
  done = podcheck_toys.python("-c", DRIVER, str(tmp_path_factory.mktemp("update")), *map(str, COLUMNS))
  assert not done.returncode, done.stderr
  return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_largest_array_is_a_line_in_length(updates):
  """Scores, or gradients of queries for each block of keys, would grow with its square."""
  largest = [max(math.prod(shape) for shape in arrays) for arrays, _ in updates]
  assert largest == [largest[0] * columns // COLUMNS[0] for columns in COLUMNS]


def test_no_array_of_the_vocabulary_is_longer_for_longer_rows(updates):
  of_vocabulary = [[math.prod(shape) for shape in arrays if VOCABULARY in shape] for arrays, _ in updates]
  assert len({max(sizes) for sizes in of_vocabulary}) == 1 and max(of_vocabulary[0]) < COLUMNS[0] * VOCABULARY


def test_only_the_exchange_of_embedded_tokens_grows_with_their_number(updates):
  """There and back; and the gather of their ids, four bytes each."""
  collectives = [Counter(map(tuple, sent)) for _, sent in updates]
  fixed = collectives[0] & collectives[1] & collectives[2]
  assert {"all-gather", "all-reduce", "reduce-scatter"} <= {kind for kind, *_ in fixed}
  growing = [sorted((found - fixed).elements()) for found in collectives]
  kinds = ["all-gather", "all-to-all", "all-to-all"]
  for found, columns in zip(growing, COLUMNS, strict=True):
    assert [kind for kind, *_ in found] == kinds
    assert [sent / columns for *_, sent in found] == [sent / COLUMNS[0] for *_, sent in growing[0]]
  _, pieces, ids = growing[0][0]
  assert ids == pieces * COLUMNS[0] * 4 * (4 - 1)  # one row on each of four devices, to the three others
