"""Memory of a device by arithmetic on shapes: what chooses settings before anything is compiled.

What XLA adds (copies between layouts, pieces of a gathered matrix) is not in it.  Of fifteen programs that
the TPU's compiler has compiled (docs/pods.md, docs/hardware.md), what is there beside the learner's state
takes 0.95 to 1.57 of this in an update, and up to 1.5 in decoding: MOST.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.learner import rows
from grpojax.learner.packing import PackSpec
from grpojax.models import Model, bands, kernels
from grpojax.rollout import sampler, turns
from grpojax.rollout.sampler import kv_budget, weights
from grpojax.runtime import sharding
from grpojax.train import programs as programs_lib

MOST = {"update": 1.6, "decoding": 1.5}  # at most so many times the sums of what is not STATE
SUMMED = "gradients, before they are summed"
STATE = ("parameters", "optimiser", "reference", SUMMED)  # arrays that nothing copies


class Sizes(NamedTuple):
  """The sizes of a run's programs; tools/podcheck's Plan begins with the same fields."""

  config: ConfigDict
  mesh: Mesh
  model: Model
  packed: PackSpec | None  # None: a row for each sequence
  slots: int  # completions that decode at a time
  pieces: int  # of an update, one after the other
  columns: int  # of all sequences of one update


class Phase(NamedTuple):
  """Bytes on a device while one phase of a step runs, by what takes them."""

  name: str  # a key of MOST
  parts: dict[str, float]

  @property
  def least(self) -> float:
    return sum(self.parts.values())

  @property
  def most(self) -> float:
    state = sum(self.parts.get(name, 0) for name in STATE)
    return state + MOST[self.name] * (self.least - state)


def sizes(config: ConfigDict, model: Model, mesh: Mesh) -> Sizes:
  """Returns the sizes of a run on this mesh, every sequence as long as its budgets."""
  c, samples = config.rollout, sharding.sampler_mesh(config.mesh, mesh)
  slots = slots_of(config, model, samples) or c.prompts * c.group_size
  sequences = c.prompts // config.updates_per_rollout * c.group_size
  packed = rows.pack_spec(config, model, mesh)
  if not packed:
    columns = sequences * (config.data.prompt_budget + c.max_tokens - 1)
    return Sizes(config, mesh, model, None, slots, config.microbatches, columns)
  most = rows.most_rows(config, packed)
  pieces, columns = math.ceil(most / packed.rows), most * packed.shards * packed.columns
  return Sizes(config, mesh, model, packed, slots, pieces, columns)


def slots_of(config: ConfigDict, model: Model, samples: Mesh) -> int:
  """Returns the slots on the sampler's whole mesh; 0 where completions are sampled without."""
  spec = sampler.build.rollout_spec(config)
  if config.env.name:
    return turns.build.slots_of(config, model.spec, samples, spec)
  return sampler.build.slots_that_fit(config, model.spec, samples, spec)


def phases(sizes: Sizes) -> list[Phase]:
  """Returns the two phases that take most: the update, in its last backward pass, and decoding."""
  kept = state(sizes)
  return [update(sizes, kept), decoding(sizes, kept)]


def state(sizes: Sizes) -> dict[str, float]:
  """Returns bytes on a device of what is there throughout: STATE."""
  whole = parameters(sizes)
  shapes, layout = programs_lib.state_layout(sizes.config, sizes.model, sizes.mesh)
  trained = sharding.bytes_per_chip(shapes.params, layout.params)
  return {
    "parameters": trained + (whole if sizes.model.lora else 0),
    "optimiser": sharding.bytes_per_chip(shapes.opt_state, layout.opt_state),
    "reference": whole if sizes.config.reference else 0,
  }


def update(sizes: Sizes, kept: dict[str, float]) -> Phase:
  """Returns the phase of an update, beside the state that is `kept`."""
  trained = kept["parameters"] - (parameters(sizes) if sizes.model.lora else 0)
  parts = {
    "gradients": trained,
    "activations kept": activations(sizes),
    "a layer, or logits": max(_layer(sizes), _logits(sizes)),
  }
  if sizes.model.spec.moe and not sizes.model.lora:  # which XLA makes once, for all layers
    of, kept_in = jnp.dtype(sizes.model.spec.dtype), jnp.dtype(sizes.model.spec.param_dtype)
    parts["matrices in the model's dtype"] = trained * of.itemsize / kept_in.itemsize
  masked = (sizes.packed and sizes.packed.shared) or sizes.config.env.memory  # prompts or contexts are shared
  if masked and sizes.model.attention != "reference":
    columns = columns_of_row(sizes)
    of_row = kernels.mask_bytes(sizes.model.attention, sizes.model.spec, columns)
    parts["masks"] = columns_of_piece(sizes) / columns * of_row
  embed = sharding.mesh_axes(sizes.model.rules["embed"])
  alone = sizes.packed and rows.add_up_alone(sizes.mesh, sizes.model)
  if alone or (sizes.mesh.shape["context"] > 1 and "context" not in embed):
    parts[SUMMED] = trained  # 72B on v5p:4x4x8, 16 x 8: without it 96 GiB, and the compiler asked for 102
  return Phase("update", kept | parts)


def parameters(sizes: Sizes) -> int:
  """Returns bytes on a device of the model's parameters in the learner's layout, trained or not."""
  model = sizes.model
  where = sharding.param_shardings(sizes.mesh, model.axes, model.shapes, model.rules)
  return sharding.bytes_per_chip(model.shapes, where)


def activations(sizes: Sizes) -> float:
  """Returns bytes on a device that the layers keep for a piece's backward pass, by the policy of remat."""
  s, tensor = sizes.model.spec, sizes.mesh.shape["tensor"]
  read = s.num_attention_heads * s.head_dim / tensor
  qkv = read + 2 * s.num_key_value_heads * s.head_dim / tensor
  wide = 0 if s.moe else s.intermediate_size / tensor
  kept = dict(full=0, attention=read, qkv=read + qkv, projections=read + qkv + s.hidden_size + 2 * wide)
  width = s.hidden_size + kept.get(sizes.model.remat, float("nan"))
  return s.num_hidden_layers * columns_of_piece(sizes) * width * jnp.dtype(s.dtype).itemsize


def columns_of_piece(sizes: Sizes) -> float:
  """Returns the columns of a piece of an update on one device."""
  shards = sharding.batch_shards(sizes.mesh) * sizes.mesh.shape["context"]
  return sizes.columns / sizes.pieces / shards


def decoding(sizes: Sizes, kept: dict[str, float]) -> Phase:
  """Returns the phase of sampling, beside the state that is `kept` where the learner's devices sample."""
  c, spec = sizes.config.rollout, sizes.model.spec
  mesh = sharding.sampler_mesh(sizes.config.mesh, sizes.mesh)
  shards, tensor = sharding.batch_shards(mesh), mesh.shape["tensor"]
  own = weights.copy_of(sizes.config, sizes.model, sizes.mesh, c.weights)
  parts = {
    "the sampler's weights": own.bytes_per_chip if own else 0,
    "keys and values": kv_budget.kv_bytes(spec, _cached(sizes) // shards, tensor, c.kv_cache),
    "logits": 3 * 4 * sizes.slots / shards * spec.vocab_size / tensor,  # they, their noise, and their sum
  }
  apart = bool(sizes.config.mesh.rollout_devices)
  return Phase("decoding", {key: 0 if apart else size for key, size in kept.items()} | parts)


def _cached(sizes: Sizes) -> int:
  """Returns the tokens whose keys and values are held: of all prompts and slots, or whole trajectories."""
  config, c, L = sizes.config, sizes.config.rollout, sizes.config.data.prompt_budget
  if config.env.name:
    return sizes.slots * (L + turns.build.context_tokens(config, sampler.build.rollout_spec(config)))
  return c.prompts * L + sizes.slots * kv_budget.ring(c.max_tokens)


def columns_of_row(sizes: Sizes) -> int:
  """Returns the columns of a row, packed or of one sequence of whole budgets."""
  if sizes.packed:
    return sizes.packed.columns
  return sizes.config.data.prompt_budget + sizes.config.rollout.max_tokens - 1


def _layer(sizes: Sizes) -> float:
  """Returns bytes of a layer's own arrays and gradients in its backward pass; scores, if they are made.

  Of a mixture also what goes into its products and comes out, a row for each choice, and the gathered
  matrices: a layer's, the next one's, and their gradient.
  """
  s, tensor = sizes.model.spec, sizes.mesh.shape["tensor"]
  item, columns = jnp.dtype(s.dtype).itemsize, columns_of_piece(sizes)
  heads = (2 * s.num_attention_heads + 2 * s.num_key_value_heads) * s.head_dim / tensor
  wide = s.intermediate_size if not s.moe else s.moe.num_experts_per_tok * s.moe.intermediate_size
  scores = 0
  if sizes.model.attention == "reference":  # scores and weights of every pair that is scored, in float32
    keys = columns_of_row(sizes)
    if sizes.packed and (cut := bands.cut(keys, *rows.longest_columns(sizes.config))):
      keys = cut.keys
    scores = 2 * 4 * columns * keys * s.num_attention_heads / tensor
  widths, matrices = 4 * s.hidden_size + 2 * heads + 5 * wide / tensor, 0.0
  if s.moe:
    widths += 4 * s.moe.num_experts_per_tok * s.hidden_size
    matrices = 3 * item * s.moe.num_experts * s.expert_size / tensor / sizes.mesh.shape["expert"]
  return columns * item * widths + matrices + scores


def _logits(sizes: Sizes) -> float:
  """Returns float32 bytes of the head's gradient and a chunk's logits, whose place their gradient takes."""
  s, tensor, row = sizes.model.spec, sizes.mesh.shape["tensor"], columns_of_row(sizes)
  chunk = columns_of_piece(sizes) / row * min(sizes.config.logprob_chunk, row)
  return s.vocab_size / tensor * 4 * (chunk + s.hidden_size)
