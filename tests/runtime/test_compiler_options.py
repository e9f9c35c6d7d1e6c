"""What the compilers are told, and that a CPU's then compiles what it would abort at."""

import pytest
import subprocesses
from model_folders import mesh

from grpojax.runtime import compiler_options


def test_only_several_devices_of_a_cpu_are_told_something():
  assert compiler_options.options(mesh()) is None
  assert compiler_options.options(mesh(data=2), decoding=True) == {
    "xla_disable_hlo_passes": "all-reduce-promotion"
  }


@pytest.mark.slow
def test_bfloat16_trains_on_two_devices_of_a_cpu(tmp_path):
  """Cold start, log-probs and update each sum bfloat16 over the devices; one abort would be the end."""
  flags = ["steps=1", "cold_start.steps=1", "model.dtype=bfloat16", "mesh.cpu_devices=2", "eval.every=9"]
  flags = [f"--config.{flag}" for flag in (*flags, "verbose=False", f"cache_dir={tmp_path}")]
  done = subprocesses.run_one("grpojax.main", "--config=grpo:tiny", f"--workdir={tmp_path / 'run'}", *flags)
  assert done.code == 0, done.err
  assert "step 1/1" in done.out and "on 2 of 2 cpu" in done.out
