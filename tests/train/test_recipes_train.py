"""Every file of configs/ trains three steps of the default task, at its smallest size; agents play theirs."""

import numpy as np
import pytest
from objective_toys import RECIPES, recipe

from grpojax import train
from grpojax.runtime import metrics


def even(sample):
  """Right or wrong by a coin that every policy can flip, so that the smallest one has mixed groups."""
  return float(sample.length % 2 == 0)


OFTEN = ("moe",)  # GSPO and GRPO: test_train.py; DAPO: test_processes.py


@pytest.mark.usefixtures("quick_jobs")
@pytest.mark.parametrize(
  "name", [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.slow) for name in RECIPES]
)
def test_a_recipe_trains(name, cache, tmp_path):
  config = recipe(name)
  config.update(steps=3, cache_dir=str(cache), verbose=False)
  config.eval.update(every=9, prompts=4)
  config.checkpoint.every = 9
  config.data.train = 64
  config.mesh.data = 1
  with config.unlocked():
    config.reward.accuracy = dict(fn=f"{__name__}:even")
  train.run(train.prepare(config, tmp_path))
  records = [r for r in metrics.read(tmp_path) if r["kind"] == "train"]
  assert [r["step"] for r in records] == [1, 2, 3]
  for r in records:
    assert np.isfinite(r["loss"]) and r["grad_norm"] > 0, r
    gap = r["sampling/sampling_logp_difference/max"]
    assert 1e-4 < gap < 0.1 if config.rollout.weights == "int8" else gap < 1e-4
    assert r["rows/invalid"] == 0 or config.dynamic_sampling.enabled


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
@pytest.mark.parametrize(
  ("name", "scale"),
  [
    ("gigpo", "tiny_lake"), ("agent", "tiny_lake"), ("stack", "tiny_lake"), ("hgpo", "tiny_sokoban"),
    ("essa", "tiny_desk"), ("agent_high_entropy", "tiny_desk"), ("grpo", "tiny_lake"),
  ],
)  # fmt: skip
def test_a_recipe_plays(name, scale, cache, tmp_path):
  """After four steps of imitation: it plays, whether or not it wins."""
  config = recipe(name, scale)
  config.update(cache_dir=str(cache), verbose=False)
  config.mesh.data = 1
  train.run(train.prepare(config, tmp_path))
  records = [r for r in metrics.read(tmp_path) if r["kind"] == "train"]
  assert [r["step"] for r in records] == [1, 2]
  for r in records:
    assert np.isfinite(r["loss"]) and r["environment/failures"] == 0 and r["turns/mean"] > 0
    assert r["sampling/sampling_logp_difference/max"] < 1e-4 and r["rollout/computed_ratio"] <= 1.05
  group = metrics.read(tmp_path, "completions")[-1]
  turns = [turn for one in group["turns"] for turn in one]
  assert turns and all({"seen", "action", "reward", "valid", "advantage"} <= turn.keys() for turn in turns)
  chosen = [x is not None for one in group["sampler_logp"] for x in one]
  assert [kind == "a" for kind in "".join(group["kinds"])] == chosen
