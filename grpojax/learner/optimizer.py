"""config.optimizer -> a gradient transformation, its schedule, and where its state lies on a mesh.

Every optimiser is: clip the global gradient norm, precondition by `config.optimizer.fn`, decay the matrices,
multiply by the learning rate.  The public functions of RULES are what `fn` names; their keyword-only
arguments are the knobs among the section's keys.
"""

import inspect
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict
from optax.contrib import MuonDimensionNumbers

from grpojax.learner import state as state_lib
from grpojax.learner.state import State
from grpojax.models import Model
from grpojax.runtime import sharding


def warmup_constant(config: ConfigDict) -> optax.Schedule:
  """Returns the learning rate by optimiser step: linear from 0 over `warmup_steps`, then constant."""
  if config.warmup_steps == 0:  # optax would stay at the 0 that warm-up starts from
    return optax.constant_schedule(config.learning_rate)
  return optax.schedules.warmup_constant_schedule(0.0, config.learning_rate, config.warmup_steps)


def make_optimizer(config: ConfigDict, schedule: optax.Schedule, axes: dict) -> optax.GradientTransformation:
  """Returns the optimiser of `config.optimizer` for parameters of these logical axes.

  Norms and biases are not decayed.
  """
  rule = RULES[config.fn]
  tx = optax.chain(
    rule(axes, **{name: config[name] for name in knobs(rule)}),
    optax.add_decayed_weights(config.weight_decay, _matrices),
    optax.scale_by_learning_rate(schedule),
  )
  return optax.chain(optax.clip_by_global_norm(config.clip_norm), kept_in(config.state_dtype, tx))


def adamw(axes: dict, *, b1: float, b2: float) -> optax.GradientTransformation:
  """Returns Adam's preconditioner; the decay is decoupled.  https://arxiv.org/abs/1711.05101"""
  del axes
  return optax.scale_by_adam(b1, b2)


def muon(axes: dict, *, b1: float, b2: float, momentum: float) -> optax.GradientTransformation:
  """Returns Muon for matrices and Adam for the rest.  https://kellerjordan.github.io/posts/muon

  From random weights it needs a third of AdamW's steps on the embedded task, which is what makes a cold
  start on a laptop possible.
  """
  is_axes = lambda leaf: isinstance(leaf, tuple)
  dimensions = jax.tree.map_with_path(_muon_dimensions, axes, is_leaf=is_axes)
  descent = optax.contrib.muon(
    1.0, beta=momentum, adam_b1=b1, adam_b2=b2, muon_weight_dimension_numbers=dimensions
  )
  return optax.chain(descent, optax.scale(-1.0))  # the sign is scale_by_learning_rate's


def adafactor(axes: dict, *, decay_rate: float, min_dim_size_to_factor: int) -> optax.GradientTransformation:
  """Returns Adafactor without momentum: row and column means of squared gradients.

  https://arxiv.org/abs/1804.04235.  Updates are clipped to a root mean square of 1 per parameter, and not
  multiplied by the parameter's own, as in Hugging Face's Trainer.
  """
  del axes
  rms = optax.scale_by_factored_rms(decay_rate=decay_rate, min_dim_size_to_factor=min_dim_size_to_factor)
  return _in_float32(optax.chain(rms, optax.clip_by_block_rms(1.0)))


def sgd(axes: dict, *, momentum: float) -> optax.GradientTransformation:
  """Returns gradient descent with heavy-ball momentum; 0: without, and without a state."""
  del axes
  return optax.trace(momentum) if momentum else optax.identity()


RULES = {"adamw": adamw, "muon": muon, "adafactor": adafactor, "sgd": sgd}


def knobs(rule: Callable) -> tuple[str, ...]:
  """Returns the keys of config.optimizer that only some rules read, of this one."""
  parameters = inspect.signature(rule).parameters.values()
  return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def check(config: ConfigDict, default: ConfigDict) -> None:
  """Raises ValueError for a knob that the rule `fn` has not, or for moments that would stand still.

  A knob is set if it differs from the `default` section's.
  """
  own = knobs(RULES[config.fn])
  for name in sorted({name for rule in RULES.values() for name in knobs(rule)} - {*own}):
    if config[name] != default[name]:
      raise ValueError(
        f"config.optimizer.{name} = {config[name]}: {config.fn} has no {name}; it takes {', '.join(own)}."
      )
  if config.state_dtype != "bfloat16":
    return
  if config.fn == "adafactor":
    raise ValueError(
      "config.optimizer.fn = 'adafactor' moves its means by less and less, soon by less than a step of "
      "bfloat16, so they would stand still; set config.optimizer.state_dtype = 'float32'."
    )
  if "b2" in own and config.b2 > 0.99:
    raise ValueError(
      f"config.optimizer.b2 = {config.b2} moves the second moment by less than a step of bfloat16, so "
      "it would stand still; lower it to 0.99, or set config.optimizer.state_dtype = 'float32'."
    )


def _matrices(params: dict) -> dict:
  """Returns True for every parameter that is decayed: all but norms and biases."""
  return jax.tree.map_with_path(lambda path, _: not path[-1].key.endswith(("norm", "bias")), params)


def _muon_dimensions(path, axes: tuple) -> MuonDimensionNumbers | None:
  """Returns which of a parameter's axes are a matrix's inputs and outputs; None: Adam's."""
  matrix = [i for i, axis in enumerate(axes) if axis not in ("layers", "expert")]  # these are stacked
  if path[0].key == "adapters":  # A [in..., rank], B [rank, out...]
    ins = matrix[:-1] if path[-1].key == "a" else matrix[:1]
  elif len(axes) < 3 or "embed" not in axes:
    return None  # embeddings, norms, biases
  else:
    ins = [i for i in matrix if (axes[i] == "embed") != (axes[-1] == "embed")]
  return MuonDimensionNumbers(tuple(ins), tuple(i for i in matrix if i not in ins))


def _cast(tree, dtype: str):
  """Returns the tree with its parameter-like leaves in `dtype`: they stand under a parameter's name."""

  def one(path, x):
    of_parameter = isinstance(path[-1], jax.tree_util.DictKey) and jnp.issubdtype(x.dtype, jnp.floating)
    return x.astype(dtype) if of_parameter else x

  return jax.tree.map_with_path(one, tree)


def kept_in(dtype: str, tx: optax.GradientTransformation) -> optax.GradientTransformation:
  """Returns the same transformation, computed in float32, whose state lies in `dtype` between its steps."""

  def update(grads, state, params):
    updates, state = tx.update(grads, _cast(state, "float32"), params)
    return updates, _cast(state, dtype)

  return optax.GradientTransformation(lambda params: _cast(tx.init(params), dtype), update)


def _in_float32(tx: optax.GradientTransformation) -> optax.GradientTransformation:
  """Returns the same transformation of gradients and parameters in float32, whatever dtype they have."""
  wide = partial(_cast, dtype="float32")
  update = lambda grads, state, params: tx.update(wide(grads), state, wide(params))
  return optax.GradientTransformation(lambda params: tx.init(wide(params)), update)


def state_shardings(model: Model, tx: optax.GradientTransformation, mesh: Mesh) -> State:
  """Returns the sharding of every leaf of a State: a moment lies beside the parameter of its path.

  What has another shape than its parameter, as factored moments have, is replicated.
  """
  trained = model.trained
  params = sharding.param_shardings(mesh, trained.axes, trained.shapes, model.rules)
  everywhere = sharding.replicated(mesh)
  pairs = jax.tree.map(lambda where, x: (where, x.shape), params, trained.shapes)
  is_pair = lambda leaf: isinstance(leaf, tuple)
  named = {_names(path): pair for path, pair in jax.tree.leaves_with_path(pairs, is_leaf=is_pair)}

  def beside(path, leaf):
    names = _names(path)
    tails = (names[i:] for i in range(len(names)))
    where, shape = next((named[tail] for tail in tails if tail in named), (everywhere, leaf.shape))
    return where if shape == leaf.shape else everywhere

  opt_state = jax.tree.map_with_path(beside, jax.eval_shape(tx.init, trained.shapes))
  stats = jax.tree.map(lambda _: everywhere, jax.eval_shape(state_lib.start))
  return State(params, opt_state, everywhere, stats)


def _names(path) -> tuple[str, ...]:
  """Returns the dict keys on a tree path: (..., "layers", "q")."""
  return tuple(key.key for key in path if isinstance(key, jax.tree_util.DictKey))
