"""How the sequences of a batch lie in the rows that a policy reads: `config.rows`, chosen once.

single   a row for each sequence: the padded prompt, then the padded response
grouped  a row for a prompt and its G responses; the prompt is computed once
packed   sequences of different length share rows, of which only those in use are computed
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.learner import accumulate, logprobs, packing
from grpojax.learner.packing import PackSpec
from grpojax.models import Model
from grpojax.runtime import sharding
from grpojax.types import Batch


class Rows(NamedTuple):
  """A layout of sequences in rows, as the functions that depend on it."""

  logp: Callable  # (params, tokens, prompt_length, routing, balance_mask, packing_index): of a whole batch
  accumulate: Callable  # (gradient, objective, batch) -> gradients, metrics, logp [P, G, T]; accumulate.py
  padding: Callable  # batch -> [] share of the computed columns in which no token of a sequence is


def build(config: ConfigDict, model: Model, mesh: Mesh) -> Rows:
  """Returns the layout that `config.rows` names, for batches of this run."""
  c = dict(temperature=config.rollout.temperature, chunk=config.logprob_chunk)
  T, n = config.rollout.max_tokens, config.microbatches
  if config.rows == "packed":
    return packed(logprobs.make_packed_logp(model, **c), pack_spec(config, mesh))
  if config.rows == "grouped":
    return grouped(logprobs.make_grouped_logp(model, response_budget=T, **c), n)
  return single(logprobs.make_logp(model, response_budget=T, **c), n)


def pack_spec(config: ConfigDict, mesh: Mesh) -> PackSpec:
  """Returns the static sizes of packed rows: a microbatch has its share of the worst case's rows."""
  shards = sharding.batch_shards(mesh)
  rows = config.rollout.prompts // config.updates_per_rollout * config.rollout.group_size // shards
  return PackSpec(config.rollout.max_tokens, shards, -(-rows // config.microbatches))


def single(logp_fn: Callable, microbatches: int = 1) -> Rows:
  """Returns the layout of a row for each sequence; `logp_fn` is as `logprobs.make_logp` makes it."""

  def padding(batch: Batch):
    return _padding(batch, batch.mask.shape[0] * batch.mask.shape[1] * (batch.tokens.shape[-1] - 1))

  return Rows(_ignore_index(logp_fn), accumulate.over_microbatches(logp_fn, microbatches), padding)


def grouped(logp_fn: Callable, microbatches: int = 1) -> Rows:
  """Returns the layout of a row for each group; `logp_fn` is as `logprobs.make_grouped_logp` makes it."""

  def padding(batch: Batch):
    (P, G, S), T = batch.tokens.shape, batch.mask.shape[-1]
    own = batch.prompt_length[:, 0].sum() - P  # a prompt's last token begins each response
    tokens = own + _length(batch).sum()
    return 1 - tokens / (P * (S - T - 1 + G * T))

  return Rows(_ignore_index(logp_fn), accumulate.over_microbatches(logp_fn, microbatches), padding)


def packed(logp_fn: Callable, spec: PackSpec) -> Rows:
  """Returns the layout of packed rows; `logp_fn` is as `logprobs.make_packed_logp` makes it."""

  def padding(batch: Batch):
    C = batch.tokens.shape[-1] - 1
    microbatches = packing.num_microbatches(spec, batch.packing_index, C)
    return _padding(batch, microbatches * (spec.shards * spec.rows * C))

  logp = lambda params, *inputs: packing.batch_logp(spec, logp_fn, params, *inputs)
  return Rows(logp, accumulate.over_packed_rows(logp_fn, spec), padding)


def _ignore_index(logp_fn: Callable) -> Callable:
  """Returns the function with one more argument, the packing index, which is None where nothing is packed."""
  return lambda params, tokens, prompt_length, routing, balance_mask, _: logp_fn(
    params, tokens, prompt_length, routing, balance_mask
  )


def _padding(batch: Batch, columns):
  """Returns the share [] of so many columns that no token of a sequence is in; its last is not read."""
  return 1 - (batch.prompt_length + _length(batch) - 1).sum() / columns


def _length(batch: Batch):
  """Returns the columns [P, G] float32 of log-probs: the response's tokens, and one where there is none."""
  return jnp.maximum(batch.length, 1).astype(jnp.float32)
