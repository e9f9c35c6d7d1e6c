"""Gradient accumulation: sums over the microbatches of one optimiser batch.

The objective's weights are made before the batch is cut, so gradients, loss and metrics only add up.
`gradient(*policy, score, objective, batch)` is that of `score(params) -> logp, entropy, Routed`; a policy
is a pair of parameters, those that are frozen (or None) and those that are trained.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from grpojax.learner import packing
from grpojax.learner.packing import PackSpec
from grpojax.runtime import sharding
from grpojax.types import Batch

_SHARES = ("mask", "weight", "token_mean_weight", "component_weight", "preference")  # of one sum


def over_microbatches(logp_fn: Callable, microbatches: int, beside: tuple[str, ...] = ()) -> Callable:
  """Returns accumulate(gradient, policy, objective, batch) -> gradients, metrics, logp [P, G, T].

  Microbatches have prompts of their own, so that several tell the gradient's noise.  `beside` are the names
  in Batch.extra of what `logp_fn` reads last.
  """

  def accumulate(gradient, policy, objective, batch: Batch):
    @partial(jax.jit, inline=True)  # traced once: for its sums' shapes, and for the loop
    def one(part):
      more = [part.extra[name] for name in beside]
      score = lambda params: logp_fn(params, *inputs(part), part.context, part.kept, *more)
      (loss, (metrics, logp)), grads = gradient(*policy, score, objective, part)
      return (grads, metrics | {"loss": loss}, optax.global_norm(grads) ** 2), logp

    if microbatches == 1:
      (grads, metrics, _), logp = one(batch)
      return grads, metrics, logp
    parts = jax.tree.map(lambda x: _deal(x, microbatches), batch)
    first = jax.tree.map(lambda x: x[0], parts)

    def add(total, part):
      new, logp = one(part)
      return jax.tree.map(jnp.add, total, new), logp

    (grads, metrics, squares), logp = jax.lax.scan(add, packing.zeros_of(one, first)[0], parts)
    noise = _noise(squares, optax.global_norm(grads) ** 2, microbatches)
    return grads, metrics | {"grad_noise": noise}, logp.swapaxes(0, 1).reshape(batch.mask.shape)

  return accumulate


def _deal(x, microbatches: int):
  """Returns [P, ...] as [microbatches, P / microbatches, ...], dealt like cards and not cut in blocks.

  Each device keeps an equal share of every microbatch, so that nothing moves between devices.
  """
  return x.reshape(-1, microbatches, *x.shape[1:]).swapaxes(0, 1)


def _noise(squares, square_of_sum, n: int):
  """Returns the share [] of |g|² that is noise, tr Cov(g) / |g|², from the |g_i|² of n parts of g = Σ g_i.

  Unbiased in its numerator.  The gradient noise scale of https://arxiv.org/abs/1812.06162 is, for this batch
  and as far as |g|² is its mean, B times share / (1 - share).
  """
  variance = n / (n - 1) * (squares - square_of_sum / n)
  return variance / jnp.maximum(square_of_sum, 1e-30)


def over_packed_rows(logp_fn: Callable, spec: PackSpec) -> Callable:
  """Returns the same over microbatches of packed rows, as many as are in use.

  A sequence that is not in a microbatch has no weight in its loss.  Nothing is differentiated through the
  loop, so that it may run as often as the batch asks for.
  """

  def accumulate(gradient, policy, objective, batch: Batch):
    seen = *inputs(batch), batch.packing_index, batch.context, batch.kept
    logp_of = packing.microbatch_logp(spec, logp_fn, *seen)

    def one(number):
      present = packing.in_microbatch(spec, batch.packing_index, number)[..., None]
      keep = lambda x: jnp.where(present, x, 0.0)
      kept = {name: jax.tree.map(keep, getattr(batch, name)) for name in _SHARES}
      part = batch._replace(**kept)
      score = lambda params: logp_of(params, number)
      (loss, (metrics, logp)), grads = gradient(*policy, score, objective, part)
      return grads, metrics | {"loss": loss}, keep(logp)

    add = lambda number, total, new: jax.tree.map(jnp.add, total, new)
    return packing.over_those_in_use(spec, batch.packing_index, one, add)

  return accumulate


def on_each_device(accumulate: Callable, mesh: Mesh) -> Callable:
  """Returns the same of devices that each have the whole policy and their own prompts.

  `accumulate` is of one device, which adds up its own microbatches; what all have found is summed once, where
  the partitioner would sum it in every layer of every microbatch.
  """
  by_prompt = PartitionSpec(sharding.batch_axes(mesh))

  def on_mesh(gradient, policy, objective, batch: Batch):
    def own(policy, objective, batch):
      grads, metrics, logp = accumulate(gradient, policy, objective, batch)
      numbers, to_metrics = ravel_pytree(metrics)  # each array is a sum of its own, and waits for all devices
      grads, numbers = jax.lax.psum((grads, numbers), mesh.axis_names)
      return grads, to_metrics(numbers), logp

    whole = PartitionSpec()
    cut = dict(in_specs=(whole, whole, by_prompt), out_specs=(whole, whole, by_prompt), check_vma=False)
    return jax.shard_map(own, mesh=mesh, **cut)(policy, objective, batch)

  return on_mesh


def inputs(batch: Batch) -> tuple:
  """Returns what of a batch a policy reads, in whatever rows and contexts."""
  return batch.tokens, batch.prompt_length, batch.routing, batch.balance_mask
