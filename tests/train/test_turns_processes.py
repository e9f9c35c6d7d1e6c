"""Trajectories over several processes, for real, on loopback: each plays its own, as one process would."""

import importlib
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import subprocesses
from ml_collections import ConfigDict
from test_train import comparable

from grpojax import train
from grpojax.rollout.sampler import weights
from grpojax.runtime import metrics

CHANGES = {
  "steps": 2, "verbose": False, "rollout.prompts": 8, "rollout.max_tokens": 48, "rollout.segment": 4,
  "rollout.slots": 16, "eval.every": 2, "eval.samples": 2, "eval.prompts": 5, "env.turns": 4,
  "env.name": "subprocesses:Parity", "env.action_tokens": 5, "env.observation_tokens": 8, "env.success": 2.0,
  "dynamic_sampling.enabled": True, "dynamic_sampling.max_tries": 2,
}  # fmt: skip


def config(cache, **changes):
  c = importlib.import_module("grpojax.recipes.gigpo").get_config("tiny")
  c.cache_dir, c.reward = str(cache), ConfigDict()
  with c.unlocked():
    c.update_from_flattened_dict(CHANGES | changes)
  return c


def command(cache, workdir, devices, **changes):
  """The same, as a command line."""
  said = CHANGES | {"cache_dir": cache, "mesh.cpu_devices": devices} | changes
  flags = [f"--config.{key}={value}" for key, value in said.items()]
  flags += [f"--workdir={workdir}", "--config.reward={}"]
  return ["-m", "grpojax.main", "--config=configs/gigpo.py:tiny", *flags]


def played(workdir):
  """Records of RL without what a clock wrote, and without the work of slots, which are others' on each."""
  own = ("environment/seconds", "environment/idle_seconds")
  work = "decode_steps", "slot", "prefill", "prompt_tokens", "computed_ratio"
  own += tuple(f"rollout/{name}" for name in work)
  records = comparable(metrics.read(workdir))
  return [{name: x for name, x in record.items() if not name.startswith(own)} for record in records]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
@pytest.mark.parametrize(
  "changes",
  [
    {"mesh.data": 4},
    {"mesh.data": 1, "mesh.fsdp": 4, "mesh.sampler.tensor": 2, "staleness": 1},
  ],
  ids=str,
)
def test_two_processes_play_what_one_plays(cache, tmp_path, changes):
  """Also where the learner's matrices are cut over both, and beside updates.

  5 held-out games on 2 processes are 3 on each, one of them twice; and some environments fail.
  """
  train.run(train.prepare(config(cache, **changes), tmp_path / "one"))
  expected = played(tmp_path / "one")
  steps = [record for record in expected if record["kind"] == "train"]
  assert all(r["grad_norm"] > 0 and 0 < r["accuracy"] < 1 and r["turns/mean"] > 2 for r in steps)
  assert all(r["rewards/environment/failed"] > 0 for r in steps)
  subprocesses.ended_well(subprocesses.run([command(cache, tmp_path / "two", 2, **changes)] * 2))
  for ours, theirs in zip(played(tmp_path / "two"), expected, strict=True):
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"kind"}:
      assert ours[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-5), (name, ours["step"])


def test_parameters_that_no_process_has_whole_are_refused_in_a_sentence(cache, monkeypatch):
  """Two processes of two devices each, whose matrices are cut over all four."""
  process = lambda number: SimpleNamespace(process_index=number)
  devices = np.array([process(0), process(0), process(1), process(1)])
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  mesh = SimpleNamespace(devices=devices[None], shape=dict(data=1))
  with pytest.raises(ValueError, match=r"'subprocesses:Parity' plays on each .* 2 processes; set .*tensor"):
    weights.on_own_process(config(cache), weights.Weights(None, mesh, {}, None))
