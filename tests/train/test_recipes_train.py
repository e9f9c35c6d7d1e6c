"""Every file of configs/ trains three steps of the default task, at its smallest size."""

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
