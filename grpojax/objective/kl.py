"""KL coefficients of an objective, for a controller that moves them."""

from collections.abc import Callable

from jax.tree_util import Partial

from grpojax.objective.formula import Objective, name


def is_kl(fn: Callable) -> bool:
  """Returns True for kl_... penalties and rewards, and for REINFORCE++'s returns, which hold KL."""
  return name(fn).startswith("kl_") or name(fn) == "return_to_go"


def has_kl(objective: Objective) -> bool:
  """Returns True if the objective has a KL coefficient."""
  in_loss = any(is_kl(fn) for _, fn in objective.penalty)
  return in_loss or any(map(_in_reward, (objective.advantage, *objective.shape)))


def scale_kl(objective: Objective, scale) -> Objective:
  """Returns the objective with every KL coefficient, in the loss or in the reward, times `scale`."""
  penalty = tuple((scale * beta if is_kl(fn) else beta, fn) for beta, fn in objective.penalty)
  in_reward = lambda fn: _scaled(fn, scale) if _in_reward(fn) else fn
  return objective._replace(
    penalty=penalty,
    advantage=in_reward(objective.advantage),
    shape=tuple(map(in_reward, objective.shape)),
  )


def _in_reward(fn: Partial) -> bool:
  return is_kl(fn) and fn.keywords.get("beta") is not None


def _scaled(fn: Partial, scale) -> Partial:
  return Partial(fn.func, *fn.args, **fn.keywords | dict(beta=scale * fn.keywords["beta"]))
