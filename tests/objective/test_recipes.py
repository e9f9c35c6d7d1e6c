"""Every file of configs/: it builds, is checked, says how to run, and finds the arm that pays."""

import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objective_toys import RECIPES, recipe

from grpojax import objective as lib
from grpojax.config import check as config_lib
from grpojax.types import Batch

ARMS, PAYS = 4, 2


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_legal_and_adds_no_key(name):
  for scale in ("mini", "tiny", "small", "local", "paper"):
    c, base = recipe(name, scale), recipe("base", scale)
    if scale == "local":
      c.model.path = "checkpoints/qwen"
    config_lib.check(c, devices=64 if scale == "paper" else 1)
    named = ("objective", "reward")  # hold slots under any name
    assert set(c) == set(base)
    for key in set(c) - set(named):
      if hasattr(c[key], "keys"):
        assert set(c[key]) == set(base[key]), key
    assert c.name == ("grpo" if name == "base" else name)


@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"base"}))
def test_a_recipe_says_what_it_is_and_how_to_run_it(name):
  module = importlib.import_module(f"grpojax.recipes.{name}")
  assert f"python -m grpojax.main --config=configs/{name}.py" in module.__doc__
  assert len(inspect.getsource(module.get_config).splitlines()) <= 17


def test_tied_numbers_follow_each_other():
  c = recipe("math_single_turn")
  c.rollout.max_tokens = 100
  assert c.objective.aggregate.budget == 100
  assert (c.reward.soft_overlong.max_tokens, c.reward.soft_overlong.cache) == (100, 20)


@jax.jit
def gradient(objective, logits, key):
  """d loss / d logits of one rollout; a completion is two tokens, the first of which is the arm."""
  P, G = 8, 4
  tokens = jax.random.categorical(key, logits, shape=(P, G, 2))
  pays = (tokens[..., 0] == PAYS) * 1.0
  row = jnp.broadcast_to(jnp.arange(G), (P, G))
  log_policy = jax.nn.log_softmax(logits)
  logp = log_policy[tokens]
  half = jnp.full((P, G), 0.5)
  batch = Batch(
    mask=jnp.ones((P, G, 2)),
    reward=pays,
    accuracy=pays,
    valid=row >= 0,
    ended=row >= 0,
    sampler_logp=logp,
    old_logp=logp,
    ref_logp=jnp.full(logp.shape, -jnp.log(ARMS * 1.0)),
    entropy=jnp.full(logp.shape, -(jnp.exp(log_policy) * log_policy).sum()),
    extra=dict(
      baseline=half, moment=0.2 * half + 0.1, part=pays[..., None], part_valid=jnp.ones((P, G, 1)),
      part_weight=jnp.ones((P, G, 1)),
    ),
  )
  prepared = lib.prepare(objective, batch, logp)
  value = lambda x: lib.loss(objective, jax.nn.log_softmax(x)[tokens], prepared)[0]
  return jax.grad(value)(logits)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_finds_the_arm_that_pays(name):
  objective, logits = lib.build(recipe(name).objective), jnp.zeros(ARMS)
  for step in range(40):
    slope = gradient(objective, logits, jax.random.key(step))
    logits -= 0.3 * slope / (jnp.linalg.norm(slope) + 1e-9)
    assert np.isfinite(slope).all()
  assert jax.nn.softmax(logits)[PAYS] > 0.9
