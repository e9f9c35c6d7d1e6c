"""Causes of a gap: how the sampler of a policy comes to differ from its learner.  Policy number -> Scene.

Nothing of a cause is made up but its occasion: int8 is the sampler's own, bf16 what a head of activations in
bf16 multiplies, top-p its filter, a stale policy some real updates old, a re-tokenised prefix another row of
tokens of the same text, padding what attention sees if its mask forgets it.  Only the experts are flipped by
noise on the sampler's routers, in place of the rounding that flips them in larger models.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.estimator_lab import policy
from experiments.mismatch_lab import decoders
from experiments.mismatch_lab.decoders import READ, WORLD, Learner, Reading, Sampler
from experiments.mismatch_lab.size import Size
from grpojax.models import int8
from grpojax.rollout.sampler.token_sampling import SamplingParams

EXPERTS = 4
TOP_P = SamplingParams(top_k=decoders.V, top_p=0.8)
UPDATES, STEP, GROUP = 4, 0.1, 8  # of a stale policy: how many, their length, completions behind each
NOISE = 0.05  # deviation of what is added to the sampler's router weights, of about 0.25
MERGED = Reading((1, 3, 3, 2))  # READ, where 3 is the text of 1 and 2


class Scene(NamedTuple):
  """A policy with its sampler, and the gradient that is looked for."""

  sampler: np.ndarray  # [S, V], log μ
  learners: dict[str, Learner]  # "own", and what replays something: "routing", "kept"
  goal: np.ndarray  # [D], ∇J, exact
  flips: float  # share of the sampler's choices of experts that the learner would not make; 0 if dense


def same(number: int, size: Size) -> Scene:
  """Nothing differs but the code: a pass over whole sequences, and decoding with a cache."""
  return _dense(number, size, lambda params: decoders.sampler(0, params))


def bf16_head(number: int, size: Size) -> Scene:
  return _dense(number, size, lambda params: decoders.sampler(0, params, head="bfloat16"))


def int8_weights(number: int, size: Size) -> Scene:
  spec = decoders.model(0).spec
  return _dense(number, size, lambda params: decoders.sampler(0, int8.quantize_weights(params, spec)))


def int8_cache(number: int, size: Size) -> Scene:
  return _dense(number, size, lambda params: decoders.sampler(0, params, kv_cache="int8"))


def padding(number: int, size: Size) -> Scene:
  return _dense(number, size, lambda params: decoders.sampler(0, params, READ._replace(padding=True)))


def retokenised(number: int, size: Size) -> Scene:
  """The sampler read the tokens of an earlier turn; the learner reads those of its text encoded again."""
  params = decoders.trained(0, number, size)
  return _scene(decoders.sampler(0, params), decoders.learner(0, params, MERGED))


def stale(number: int, size: Size) -> Scene:
  old = decoders.trained(0, number, size)
  return _scene(decoders.sampler(0, old), decoders.learner(0, _updated(0, old, number)))


def top_p(number: int, size: Size) -> Scene:
  """The gradient that is looked for is that of the whole policy."""
  params = decoders.trained(0, number, size)
  mu = decoders.sampler(0, params, sampling=TOP_P)
  return _scene(mu, decoders.learner(0, params), kept=decoders.learner(0, params, kept=mu.kept))


def top_p_truncated(number: int, size: Size) -> Scene:
  """The same; the gradient that is looked for is that of the truncated policy, which samples."""
  scene = top_p(number, size)
  return scene._replace(goal=gradient(scene.learners["kept"]))


def flipped_experts(number: int, size: Size) -> Scene:
  """The gates are the learner's own, also of a replayed choice."""
  params = decoders.trained(EXPERTS, number, size)
  mu = decoders.sampler(EXPERTS, _shaken(params, number))
  return _mixture(params, mu)


def stale_mixture(number: int, size: Size) -> Scene:
  """The routing that is replayed is that of the policy which sampled: R2 and R3 are then one."""
  old = decoders.trained(EXPERTS, number, size)
  return _mixture(_updated(EXPERTS, old, number), decoders.sampler(EXPERTS, old))


CAUSES: dict[str, Callable[[int, Size], Scene]] = {
  "none": same,
  "bf16 head": bf16_head,
  "int8 weights": int8_weights,
  "int8 cache": int8_cache,
  "attended padding": padding,
  "re-tokenised prefix": retokenised,
  "stale policy": stale,
  "flipped experts": flipped_experts,
  "stale mixture": stale_mixture,
  "top-p": top_p,
  "top-p, truncated policy": top_p_truncated,
}


@functools.lru_cache(maxsize=32)
def scene(cause: str, number: int, size: Size) -> Scene:
  """Returns what a cause of CAUSES makes of policy `number`."""
  return CAUSES[cause](number, size)


def gradient(learner: Learner) -> np.ndarray:
  """Returns ∇J [D] = Σ π R ∇ log π over all answers, of the policy that a learner's table is."""
  worth = policy.probability(WORLD, learner.table) * WORLD.reward
  cell = (WORLD.state * decoders.V + WORLD.token).ravel()
  counts = np.bincount(cell, (worth[:, None] * WORLD.mask).ravel(), decoders.S * decoders.V)
  return counts @ learner.slope.reshape(len(counts), -1)


def _dense(number: int, size: Size, sampler: Callable[[dict], Sampler]) -> Scene:
  params = decoders.trained(0, number, size)
  return _scene(sampler(params), decoders.learner(0, params))


def _mixture(params, mu: Sampler) -> Scene:
  own, replayed = (decoders.learner(EXPERTS, params, routing=r) for r in (None, mu.routing))
  theirs = decoders.sampler(EXPERTS, params).routing
  fed = np.concatenate([np.ones((decoders.N, decoders.L), bool), WORLD.mask[:, :-1] > 0], 1)
  fed &= mu.routing[..., 0, 0] >= 0
  flips = (np.sort(theirs, -1) != np.sort(mu.routing, -1)).any(-1)[fed].mean()
  return _scene(mu, own, routing=replayed)._replace(flips=float(flips))


def _scene(mu: Sampler, own: Learner, **replaying: Learner) -> Scene:
  return Scene(mu.table, dict(own=own) | replaying, gradient(own), 0.0)


def _shaken(params: dict, seed: int) -> dict:
  """Returns the parameters with noise on the routers."""
  rng = np.random.default_rng(seed)

  def one(path, x):
    return x + NOISE * rng.normal(size=x.shape).astype(x.dtype) if path[-1].key == "router" else x

  return jax.tree.map_with_path(one, params)


def _updated(experts: int, params: dict, seed: int) -> dict:
  """Returns the parameters some updates later."""
  for key in jax.random.split(jax.random.key(seed), UPDATES):
    params = _update(experts, params, key)
  return params


@functools.partial(jax.jit, static_argnums=0)
def _update(experts: int, params: dict, key) -> dict:
  """Returns the parameters a step of length STEP up an estimate from GROUP answers."""

  def gain(params):
    logp = jnp.where(WORLD.mask > 0, decoders.answers(experts, params), 0.0).sum(-1)
    rows = jax.random.categorical(key, jax.lax.stop_gradient(logp), shape=(GROUP,))
    reward = jnp.asarray(WORLD.reward, jnp.float32)[rows]
    return ((reward - reward.mean()) * logp[rows]).mean()

  slope = jax.grad(gain)(params)
  step = STEP / jnp.maximum(optax.global_norm(slope), 1e-9)
  return jax.tree.map(lambda p, g: p + step * g, params, slope)
