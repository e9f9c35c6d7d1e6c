"""Norms of single completions' gradients, for the baseline of least variance, and a job that takes it."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax import models, train
from grpojax.learner import grad_norm, logprobs
from grpojax.recipes import base
from grpojax.runtime import metrics

P, G, L, T, V = 2, 2, 4, 6, 19


def test_each_is_that_of_the_completion_alone():
  """Against the Jacobian of all sums of log-probs at once."""
  model = models.build(base.get_config("tiny").model, V)
  params = jax.jit(model.init)(jax.random.key(0))
  rng = np.random.default_rng(0)
  tokens, prompt_length = rng.integers(0, V, (P, G, L + T), np.int32), np.array([[4, 2], [3, 4]], np.int32)
  mask = (np.arange(T) < np.array([[6, 3], [0, 5]])[..., None]).astype(np.float32)
  how = dict(temperature=0.8, chunk=4)
  logp = logprobs.make_logp(model, response_budget=T, **how)
  sums = lambda params: (mask * logp(params, tokens, prompt_length)[0]).sum(-1)
  jacobian = jax.jit(jax.jacrev(sums))(params)
  squares = [jnp.square(x).reshape(P, G, -1).sum(-1) for x in jax.tree.leaves(jacobian)]
  found = jax.jit(grad_norm.make_grad_norm(model, T, **how))(params, {}, tokens, prompt_length, mask)
  np.testing.assert_allclose(found, np.sqrt(sum(squares)), rtol=1e-5)
  assert found[1, 0] == 0 and (np.delete(np.ravel(found), 2) > 0.1).all()


def even(sample):
  """Right or wrong by a coin that every policy can flip."""
  return float(sample.length % 2 == 0)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_a_job_takes_the_baseline_of_least_variance(cache, tmp_path):
  config = importlib.import_module("grpojax.recipes.base").get_config("tiny")
  config.update(cache_dir=str(cache), verbose=False, steps=2)
  config.mesh.data = 1
  config.objective.advantage = dict(fn="optimal_baseline")
  config.reward.accuracy = dict(fn=f"{__name__}:even")
  train.run(train.prepare(config, tmp_path))
  records = [record for record in metrics.read(tmp_path) if record["kind"] == "train"]
  for record in records:
    assert record["grad_norm"] > 0 and np.isfinite(record["loss"])
    assert -1 < record["advantage/min"] < 0 < record["advantage/max"] < 1  # rewards are 0 and 1
