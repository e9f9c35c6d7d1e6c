"""Memory of a device by arithmetic on shapes: for GPUs, whose compiler is not here.

What XLA adds (copies between layouts, pieces of a gathered matrix) is not in it.  Of fifteen programs that
the TPU's compiler has compiled (docs/pods.md, docs/hardware.md) an update takes 0.98 to 1.3 of this, 1.4 with
a mixture of experts, and decoding 1.2 to 1.5: MOST.
"""

import os
from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.rollout.sampler import kv_budget
from grpojax.runtime import sharding
from grpojax.tools.podcheck import check, programs
from grpojax.tools.podcheck.chips import Chip
from grpojax.tools.podcheck.programs import Plan

MOST = {"update": 1.4, "decoding": 1.5}  # at most so many times these sums
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # of a GPU's memory that JAX takes
DEFAULT_FRACTION = 0.75  # https://docs.jax.dev/en/latest/gpu_memory_allocation.html


class Phase(NamedTuple):
  """Bytes on a device while one phase of a step runs, by what takes them."""

  name: str  # a key of MOST
  parts: dict[str, float]

  @property
  def least(self) -> float:
    return sum(self.parts.values())

  @property
  def most(self) -> float:
    return self.least * MOST[self.name]


def phases(plan: Plan) -> list[Phase]:
  """Returns the two phases that take most."""
  return [Phase("update", update(plan)), Phase("decoding", decoding(plan))]


def room(chip: Chip) -> float:
  """Returns the bytes of a GPU that JAX will take: its default share, or the one of the environment."""
  return chip.memory * float(os.environ.get(FRACTION, DEFAULT_FRACTION))


def update(plan: Plan) -> dict[str, float]:
  """Returns bytes on a device at the peak of an update, by what: in the backward pass of the last piece."""
  state, layout = programs.state(plan)
  parameters = sharding.bytes_per_chip(state.params, layout.params)
  return {
    "parameters": parameters + (_whole(plan) if plan.model.lora else 0),
    "optimiser": sharding.bytes_per_chip(state.opt_state, layout.opt_state),
    "gradients": parameters,
    "reference": _whole(plan) if plan.config.reference else 0,
    "activations kept": check.activations(plan),
    "a layer, or logits": max(_layer(plan), _logits(plan)),
  }


def decoding(plan: Plan) -> dict[str, float]:
  """Returns bytes on a device while completions are sampled, by what; the learner's state stays."""
  found = update(plan)
  c, spec, mesh = plan.config.rollout, plan.model.spec, sharding.sampler_mesh(plan.config.mesh, plan.mesh)
  shards, tensor = sharding.batch_shards(mesh), mesh.shape["tensor"]
  columns = c.prompts // shards * plan.config.data.prompt_budget
  columns += plan.slots // shards * kv_budget.ring(c.max_tokens)
  weights = sum(x.size for x in jax.tree.leaves(plan.model.shapes)) / tensor
  item = 1 if c.weights == "int8" else jnp.dtype(spec.dtype).itemsize
  return {key: found[key] for key in ("parameters", "optimiser", "reference")} | {
    "the sampler's weights": weights * item if plan.copies else 0,
    "keys and values": kv_budget.kv_bytes(spec, columns, tensor, c.kv_cache),
    "logits": 3 * 4 * plan.slots / shards * spec.vocab_size / tensor,  # they, their noise, and their sum
  }


def _whole(plan: Plan) -> int:
  """Returns bytes on a device of the model's parameters, trained or not."""
  model = plan.model
  return sharding.bytes_per_chip(
    model.shapes, sharding.param_shardings(plan.mesh, model.axes, model.shapes, model.rules)
  )


def _columns(plan: Plan) -> float:
  """Returns the columns of a piece of an update on one device."""
  return plan.columns / plan.pieces / sharding.batch_shards(plan.mesh) / plan.mesh.shape["context"]


def _layer(plan: Plan) -> float:
  """Returns bytes of a layer's own arrays and gradients in its backward pass; scores, if they are made."""
  s, tensor = plan.model.spec, plan.mesh.shape["tensor"]
  item, columns = jnp.dtype(s.dtype).itemsize, _columns(plan)
  heads = (2 * s.num_attention_heads + 2 * s.num_key_value_heads) * s.head_dim / tensor
  wide = s.intermediate_size if not s.moe else s.moe.num_experts_per_tok * s.moe.intermediate_size
  scores = 0
  if plan.model.attention == "reference":  # scores and weights of every pair, in float32
    row = plan.config.data.prompt_budget + plan.config.rollout.max_tokens - 1
    scores = 2 * 4 * columns * row * s.num_attention_heads / tensor
  return columns * item * (4 * s.hidden_size + 2 * heads + 5 * wide / tensor) + scores


def _logits(plan: Plan) -> float:
  """Returns bytes of a chunk's logits, their gradient in both precisions, and the head's own gradient."""
  s, tensor = plan.model.spec, plan.mesh.shape["tensor"]
  row = plan.config.data.prompt_budget + plan.config.rollout.max_tokens - 1
  chunk = _columns(plan) / row * min(plan.config.logprob_chunk, row)
  item = jnp.dtype(s.dtype).itemsize
  return s.vocab_size / tensor * (chunk * (4 + 4 + item) + 4 * s.hidden_size)
