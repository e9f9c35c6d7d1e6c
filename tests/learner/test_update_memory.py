"""What an update holds: nothing twice, moments in the dtype that was asked for, one program for all steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpojax import models
from grpojax.config import check as config_lib
from grpojax.learner.optimizer import make_optimizer
from grpojax.learner.state import make_init
from grpojax.recipes import base

MODEL = models.build(base.get_config("tiny").model, 30)


def optimizer(state_dtype="float32", b2=0.95):
  config = base.get_config("tiny").optimizer
  config.update(state_dtype=state_dtype, b2=b2)
  return make_optimizer(config, optax.constant_schedule(1e-2), MODEL.axes)


def size(tree):
  return sum(x.nbytes for x in jax.tree.leaves(tree))


def test_donated_parameters_and_moments_are_not_held_twice():
  tx = optimizer()

  def step(state, x):
    grads = jax.grad(lambda p: (MODEL.bind(p)(x, jnp.zeros(2, jnp.int32)) ** 3).sum())(state.params)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    return state._replace(
      params=optax.apply_updates(state.params, updates), opt_state=opt_state, updates=state.updates + 1
    )

  state = jax.jit(make_init(MODEL, tx))(jax.random.key(0))
  compiled = jax.jit(step, donate_argnums=0).lower(state, jnp.ones((2, 8), jnp.int32)).compile()
  memory = compiled.memory_analysis()
  assert memory.alias_size_in_bytes >= size(state)
  assert memory.output_size_in_bytes - memory.alias_size_in_bytes < 4096
  after = compiled(state, jnp.ones((2, 8), jnp.int32))
  assert all(x.is_deleted() for x in jax.tree.leaves(state))
  assert int(after.updates) == 1


def test_moments_in_bfloat16_take_half_and_move_the_policy_alike():
  params = {"q": jnp.asarray(np.random.default_rng(0).normal(size=(64, 8)), jnp.float32)}
  states, moved = [], []
  for dtype in ("float32", "bfloat16"):
    tx = optimizer(dtype)
    state, own = tx.init(params), params
    for seed in range(6):
      grads = {"q": jnp.asarray(1 + np.random.default_rng(seed).normal(size=(64, 8)), jnp.float32)}
      updates, state = tx.update(grads, state, own)
      own = optax.apply_updates(own, updates)
    moments = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert len(moments) == 2 and all(x.dtype == dtype for x in moments)
    states.append(size(moments))
    moved.append(np.asarray(own["q"] - params["q"]))
  assert states[0] == 2 * states[1]
  error = np.abs(moved[0] - moved[1])
  assert 0 < error.max() < 0.02 * np.abs(moved[0]).max()


def test_moments_that_would_stand_still_in_bfloat16_are_refused():
  config = base.get_config("tiny")
  config.optimizer.update(state_dtype="bfloat16", b2=0.999)
  with pytest.raises(ValueError, match=r"config\.optimizer\.b2 = 0\.999"):
    config_lib.check(config, 1)
  config.optimizer.b2 = 0.99
  config_lib.check(config, 1)


@pytest.mark.parametrize(("key", "value"), [("remat", "some"), ("optimizer.state_dtype", "float16")])
def test_an_unknown_name_is_refused_with_the_names_there_are(key, value):
  config = base.get_config("tiny")
  config.update_from_flattened_dict({key: value})
  with pytest.raises(ValueError, match=f"config.{key} = '{value}'; it is '"):
    config_lib.check(config, 1)


def test_float32_moments_of_bfloat16_parameters_stay_float32():
  params = {"q": jnp.ones((4, 4), jnp.bfloat16)}
  state = optimizer().init(params)
  dtypes = {x.dtype for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)}
  assert dtypes == {jnp.dtype("float32")}
