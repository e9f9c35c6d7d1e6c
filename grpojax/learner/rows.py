"""How the sequences of a batch lie in the rows that a policy reads: `config.rows`, chosen once.

single   a row for each sequence: the padded prompt, then the padded response
packed   sequences share rows, of which only those in use are computed; so do responses their prompt, once
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models
from grpojax.learner import accumulate, logprobs, packing
from grpojax.learner.packing import PackSpec
from grpojax.models import Model, kernels
from grpojax.runtime import sharding
from grpojax.types import Batch

NEARLY = 1.03  # times the fewest FLOPs


class Rows(NamedTuple):
  """A layout of sequences in rows, as the functions that depend on it."""

  logp: Callable  # update.make_old_logp's arguments, of a batch -> logp, entropy [P, G, T] and Routed
  accumulate: Callable  # as accumulate.py has it, of a batch -> gradients, metrics, logp [P, G, T]
  padding: Callable  # batch -> [] share of the computed columns in which no token of a sequence is


def build(config: ConfigDict, model: Model, mesh: Mesh) -> Rows:
  """Returns the layout that `config.rows` names, for batches of this run."""
  return of(config, model, mesh, pack_spec(config, model, mesh), config.rollout.temperature)


def of(config: ConfigDict, model: Model, mesh: Mesh, spec: PackSpec | None, temperature: float) -> Rows:
  """Returns the layout of rows packed by `spec`, or of single ones; `model` may be the policy's teacher."""
  how = dict(temperature=temperature, chunk=config.logprob_chunk)
  if spec:
    return packed_on(mesh, model, spec, longest=longest_columns(config), **how)
  logp = logprobs.make_logp(model, response_budget=config.rollout.max_tokens, **how)
  return single(logp, config.microbatches)


def pack_spec(config: ConfigDict, model: Model, mesh: Mesh) -> PackSpec | None:
  """Returns the static sizes of packed rows, None of single ones; a microbatch has its share of most_rows."""
  if config.rows != "packed":
    return None
  L, T, shards = config.data.prompt_budget, config.rollout.max_tokens, sharding.batch_shards(mesh)
  responses = _responses_in_a_row(config, model)
  spec = PackSpec(T, shards, 1, L + max(1, responses) * (T - 1), bool(responses))
  return spec._replace(rows=-(-most_rows(config, spec) // config.microbatches))


def longest_columns(config: ConfigDict) -> tuple[int, int]:
  """Returns the most columns of a prompt and of a response to it, whose last token nobody reads."""
  return config.data.prompt_budget, max(1, config.rollout.max_tokens - 1)


def most_rows(config: ConfigDict, spec: PackSpec) -> int:
  """Returns the number of rows on a shard that one update needs if all sequences are as long as can be."""
  G, responses = config.rollout.group_size, whole_responses(config, spec)
  return config.rollout.prompts // config.updates_per_rollout // spec.shards * -(-G // responses)


def whole_responses(config: ConfigDict, spec: PackSpec) -> int:
  """Returns the number of responses of the whole budget that lie in a row behind a whole prompt."""
  return max(1, (spec.columns - config.data.prompt_budget) // max(1, spec.response_budget - 1))


def _responses_in_a_row(config: ConfigDict, model: Model) -> int:
  """Returns the number of the longest responses behind one prompt that a row has room for, at most G.

  The more, the less often a prompt is computed, and the more pairs attention may score.  The number with the
  fewest FLOPs of a group, of sequences of half of their budgets and of all, where nothing fits behind them in
  a row; 0: no prompt is shared, as kernels of attention may have it, whose rows need no mask then.  The
  reference takes the narrowest rows with `NEARLY` as few, which stay in a processor's caches.
  """
  L, T, G, s = config.data.prompt_budget, config.rollout.max_tokens, config.rollout.group_size, model.spec
  heads = (2 * s.num_attention_heads + 2 * s.num_key_value_heads) * s.head_dim
  width = s.moe.num_experts_per_tok * s.moe.intermediate_size + s.moe.shared_size if s.moe else 0
  of_column = 2 * s.hidden_size * (heads + 3 * (width or s.intermediate_size))
  of_pair, longest = 4 * s.num_attention_heads * s.head_dim, longest_columns(config)

  def flops(room: int) -> float:
    columns, needed = L + max(1, room) * (T - 1), 0.0
    of_mask = kernels.MASK_FLOPS[model.attention] * columns if room else 0
    for prompt, response, whole in ((L / 2, T / 2, False), (L, T, True)):
      sharing = min(G, max(1, (columns - prompt) // max(1, response - 1))) if room else 1
      prompts = math.ceil(G / sharing)
      computed = prompts * columns if whole else prompts * prompt + G * response
      how = model.attention, columns, prompt, response, bool(room), longest
      of_prompt, of_response = kernels.keys_scored(*how)
      needed += computed * (of_column + of_mask)
      needed += of_pair * (prompts * prompt * of_prompt + G * response * of_response)
    return needed

  rooms = [room for room in range(1, G + 1) if L + room * (T - 1) <= kernels.MASKED]
  if model.attention != "reference":
    return min([0, *rooms], key=flops)
  rooms = rooms or [1]
  least = min(map(flops, rooms))
  return next(room for room in rooms if flops(room) <= least * NEARLY)


def single(logp_fn: Callable, microbatches: int = 1, beside: tuple[str, ...] = ()) -> Rows:
  """Returns the layout of a row for each sequence; `logp_fn` is as `logprobs.make_logp` makes it.

  `beside` are the names in Batch.extra of what it reads last, in the update.
  """

  def padding(batch: Batch):
    read = (batch.prompt_length + jnp.maximum(batch.length, 1) - 1).sum()  # the last token is not
    return 1 - read / (batch.mask.shape[0] * batch.mask.shape[1] * (batch.tokens.shape[-1] - 1))

  accumulated = accumulate.over_microbatches(logp_fn, microbatches, beside)
  return Rows(_ignore_index(logp_fn), accumulated, padding)


def packed(logp_fn: Callable, spec: PackSpec) -> Rows:
  """Returns the layout of packed rows; `logp_fn` is as `logprobs.make_packed_logp` makes it."""

  def padding(batch: Batch):
    microbatches = packing.num_microbatches(spec, batch.packing_index)
    read = packing.tokens_read(batch.prompt_length, batch.packing_index)
    return 1 - read / (microbatches * (spec.shards * spec.rows * spec.columns))

  logp = lambda params, *inputs: packing.batch_logp(spec, logp_fn, params, *inputs)
  return Rows(logp, accumulate.over_packed_rows(logp_fn, spec), padding)


def packed_on(mesh: Mesh, model: Model, spec: PackSpec, **how) -> Rows:
  """Returns the layout of packed rows on a mesh; `how` is as `logprobs.make_packed_logp` takes it.

  Devices that each have the whole policy add up their gradients alone: data parallelism, as on a processor.
  """
  layout = packed(logprobs.make_packed_logp(model, **how), spec)
  if not add_up_alone(mesh, model):
    return layout
  own = packed(logprobs.make_packed_logp(_without_mesh(model), **how), spec._replace(shards=1))
  return layout._replace(accumulate=accumulate.on_each_device(own.accumulate, mesh))


def add_up_alone(mesh: Mesh, model: Model) -> bool:
  """Returns True where devices cut nothing but packed rows; each then has the whole policy and its gradient.

  Kernels of attention are written for a mesh, and stay with the partitioner.
  """
  cut = any("data" in sharding.mesh_axes(rule) for rule in model.rules.values())
  return mesh.size == mesh.shape["data"] > 1 and not cut and model.attention == "reference"


def _without_mesh(model: Model) -> Model:
  """Returns the model for programs of one device, which has the whole of it."""
  alone = models.from_spec(model.spec, rules=model.rules)
  return alone._replace(lora=model.lora, attention=model.attention, remat=model.remat)


def _ignore_index(logp_fn: Callable) -> Callable:
  """Returns the function with one more argument, the packing index, which is None where nothing is packed."""
  return lambda params, tokens, prompt_length, routing, balance_mask, _, context=None, kept=None: logp_fn(
    params, tokens, prompt_length, routing, balance_mask, context, kept
  )

