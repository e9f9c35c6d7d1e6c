"""By a TPU's compiler: masks of shared prompts are made once a piece of an update, not in every layer."""

import json

import podcheck_toys
import pytest

LAYERS = 3
SIZES = dict(num_hidden_layers=LAYERS, hidden_size=256, intermediate_size=1024, head_dim=128)
DRIVER = """
import json, sys
from pathlib import Path
from grpojax.config import commandline
from grpojax.tools.podcheck import programs, topology
from grpojax.tools.podcheck.roofline import counts, hlo

where = topology.find("v5e:2x2")
config = commandline.config_of(["--config=configs/dapo.py:tiny", *sys.argv[2:]])
update = programs.update(programs.plan(config, where.machine, Path(sys.argv[1])))
module = hlo.parse(update.lowered.compile().as_text())
rows = counts.count(module, update.mesh, update.unknown).rows
print(json.dumps([(r.source, r.times, r.kernel) for r in rows]))
"""

pytestmark = [pytest.mark.slow, podcheck_toys.needs_libtpu]


def test_a_mask_is_made_and_widened_once_a_piece(tmp_path):
  flags = dict(
    {f"model.{key}": value for key, value in SIZES.items()},
    **{"data.prompt_budget": 256, "rollout.max_tokens": 17, "rollout.prompts": 8, "mesh.fsdp": 4},
  )
  flags = [f"--config.{key}={value}" for key, value in flags.items()]
  done = podcheck_toys.python("-c", DRIVER, str(tmp_path), *flags)
  assert not done.returncode, done.stderr
  rows = json.loads(done.stdout)
  (in_layers,) = {times for source, times, kernel in rows if "splash" in kernel}
  widened = [times for source, times, _ in rows if "splash" in source and "convert_element_type" in source]
  assert in_layers == LAYERS * max(widened), (in_layers, widened)
