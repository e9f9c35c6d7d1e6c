"""Small batches for the tests of the objective, and its functions by reflection."""

import functools
import importlib
import inspect

import jax
import numpy as np

from grpojax import objective as lib
from grpojax.config.recipe import variants
from grpojax.objective.build import LISTS, MENUS, functions, knobs_of
from grpojax.types import ACTION, OBSERVATION, PADDING, Batch, Turns

RECIPES = variants()
MENU = {f"{slot}.{name}": fn for slot in MENUS for name, fn in functions(slot).items()}


def menu(slot: str) -> list:
  """The functions of a slot, for parametrize."""
  return list(functions(slot).values())


@functools.cache
def bound(fn):
  """fn with one half for every knob that has no default, as one program."""
  required = [k for k, p in knobs_of(fn).items() if p.default is inspect.Parameter.empty]
  return jax.jit(functools.partial(fn, **dict.fromkeys(required, 0.5)))


def recipe(name: str, scale: str = "tiny"):
  return importlib.import_module(f"grpojax.recipes.{name}").get_config(scale)


def one_of_each() -> dict[str, lib.Objective]:
  return {name: lib.build(config) for name, config in configs_of_each().items()}


def configs_of_each() -> dict:
  """Every recipe, and GRPO with every function of every list and every rescaling added to it."""
  found = {name: recipe(name).objective for name in RECIPES}
  for slot in (*LISTS, "rescale", "aggregate"):
    for name, fn in functions(slot).items():
      required = [k for k, p in knobs_of(fn).items() if p.default is inspect.Parameter.empty]
      knobs = dict(fn=name, **dict.fromkeys(required, 0.5))
      for switches in _switches(slot):
        o = recipe("base").objective
        o[slot] = {"it": knobs | switches} if slot in LISTS else knobs
        words = [f"{slot}.{name}", *(key for key, value in switches.items() if value is True)]
        found["-".join(words)] = o
  return found


def _switches(slot: str) -> list[dict]:
  if slot == "correct":
    names = ("renormalize", "batch_normalize")
    return [{}, *({name: True} for name in names)]
  beside = dict(penalty=dict(beta=0.1), component=dict(coef=0.1, stream="right"), preference=dict(coef=0.1))
  return [beside.get(slot, {})]


def group(reward, mask=None, **fields) -> Batch:
  """One group: reward [G], mask [G, T] (two tokens each unless given), and what else is named."""
  reward = np.asarray(reward, np.float32)
  mask = np.ones((reward.size, 2), np.float32) if mask is None else np.asarray(mask, np.float32)
  extra = {k: np.asarray(v) for k, v in fields.items() if k not in Batch._fields}
  array = lambda x: x if isinstance(x, Turns) else np.asarray(x)
  known = {k: array(v) for k, v in fields.items() if k in Batch._fields}
  defaults = dict(
    accuracy=(reward > 0.5).astype(np.float32),
    valid=np.ones(reward.shape, bool),
    ended=np.ones(reward.shape, bool),
    extra=extra or None,
  )
  return Batch(mask=mask, reward=reward, **defaults | known)


def batch(reward, mask=None, **fields) -> Batch:
  """As `group`, with reward [P, G] and mask [P, G, T]."""
  reward = np.asarray(reward, np.float32)
  mask = np.ones((*reward.shape, 2)) if mask is None else mask
  return group(reward, mask, **fields)


def random_batch(seed: int, P: int = 8, G: int = 4, T: int = 6, K: int = 3) -> tuple[Batch, dict]:
  """A batch with every field there is, ragged, with an empty and an unscored row; numpy float64.

  Also returns `logp` and `entropy` of π_θ [P, G, T], near π_old.
  """
  rng = np.random.default_rng(seed)
  length = rng.integers(1, T + 1, (P, G))
  valid = np.ones((P, G), bool)
  if G > 1:
    length[0, 0], valid[1, 1] = 0, False
  mask = (np.arange(T) < length[..., None]).astype(float)
  accuracy = rng.integers(0, 2, (P, G)).astype(float)
  accuracy[P // 2] = 1.0  # a solved group
  old = -rng.exponential(1.0, (P, G, T))
  near = lambda scale: old + rng.normal(0, scale, old.shape)
  step_end = np.sort(rng.integers(-1, T, (P, G, K)), axis=-1)
  extra = dict(
    baseline=np.repeat(rng.uniform(0.2, 0.8, (P, 1)), G, 1),
    moment=np.repeat(0.1 + 0.2 * accuracy.mean(1, keepdims=True), G, 1),
    part=np.stack([accuracy, np.tan(accuracy + old[..., 0]), old[..., 1]], -1),
    part_valid=np.arange(3) + (np.arange(P * G).reshape(P, G, 1) % 5) > 0,
    part_weight=np.broadcast_to([1.0, 0.5, 0.25], (P, G, 3)),
    pool_mean=np.repeat(rng.uniform(0.2, 0.8, (P, 1)), G, 1),
    pool_std=np.repeat(rng.uniform(0.2, 0.8, (P, 1)), G, 1),
    step_score=rng.uniform(0, 1, (P, G, K)),
    step_end=step_end,
    grad_norm=rng.uniform(0.5, 2.0, (P, G)),
    kind=np.where(mask > 0, ACTION, np.where(length[..., None] + 1 > np.arange(T), OBSERVATION, PADDING)),
    lag=np.where(mask > 0, 1 + np.arange(T) % 3, 0),
  )
  count = rng.integers(1, 4, (P, G))
  first = np.minimum(np.arange(T) // 2, count[..., None] - 1)  # two tokens a turn, the rest in the last
  turns = Turns(
    index=np.where(mask > 0, first, -1).astype(np.int32),
    count=count.astype(np.int32),
    reward=rng.normal(0, 1, (P, G, 3)),
    anchor=rng.integers(0, 2, (P, G, 3)).astype(np.int32),
    invalid=rng.uniform(size=(P, G, 3)) < 0.3,
  )
  made = Batch(
    mask=mask,
    length=length.astype(np.int32),
    reward=accuracy + rng.normal(0, 0.1, (P, G)),
    accuracy=accuracy,
    valid=valid,
    ended=rng.uniform(size=(P, G)) < 0.8,
    sampler_logp=near(0.1),
    old_logp=old,
    ref_logp=near(0.3),
    teacher_logp=old[::-1],
    divergence=rng.exponential(1.0, (P, G, T)),
    entropy=rng.exponential(1.0, (P, G, T)),
    turns=turns,
    extra=extra,
  )
  return made, dict(logp=near(0.2), entropy=rng.exponential(1.0, (P, G, T)))


def accumulate(objective, prepared: Batch, logp, entropy, pieces: int):
  """(loss, metrics), gradients by logp and entropy [P, G, T]: sums over microbatches.

  They are dealt like cards, as the learner does.
  """
  deal = lambda x: x.reshape(-1, pieces, *x.shape[1:]).swapaxes(0, 1)
  back = lambda x: x.swapaxes(0, 1).reshape(logp.shape)

  def one(prepared, logp, entropy):
    value = lambda x, h: lib.loss(objective, x, prepared, h)
    return jax.value_and_grad(value, (0, 1), has_aux=True)(logp, entropy)

  (loss, metrics), grads = jax.vmap(one)(*jax.tree.map(deal, (prepared, logp, entropy)))
  return loss.sum(), {key: x.sum() for key, x in metrics.items()}, *map(back, grads)
