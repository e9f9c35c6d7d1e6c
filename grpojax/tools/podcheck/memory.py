"""Memory of a device by arithmetic on shapes: for GPUs, whose compiler is not here.

What XLA adds (copies between layouts, pieces of a gathered matrix) is not in it.  Of fifteen programs that
the TPU's compiler has compiled (docs/pods.md, docs/hardware.md) an update takes 0.98 to 1.3 of this, 1.4 with
a mixture of experts, and decoding 1.2 to 1.5: MOST.
"""

import os
from typing import NamedTuple

import jax.numpy as jnp

from grpojax.rollout.sampler import kv_budget, weights
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
  """Returns the two phases that take most: the update, in its last backward pass, and decoding."""
  state, layout = programs.state(plan)
  trained = sharding.bytes_per_chip(state.params, layout.params)
  whole = check.parameters(plan)
  throughout = {
    "parameters": trained + (whole if plan.model.lora else 0),
    "optimiser": sharding.bytes_per_chip(state.opt_state, layout.opt_state),
    "reference": whole if plan.config.reference else 0,
  }
  update = {
    "gradients": trained,
    "activations kept": check.activations(plan),
    "a layer, or logits": max(_layer(plan), _logits(plan)),
  }
  return [Phase("update", throughout | update), Phase("decoding", throughout | _decoding(plan))]


def room(chip: Chip) -> float:
  """Returns the bytes of a GPU that JAX will take: its default share, or the one of the environment."""
  return chip.memory * float(os.environ.get(FRACTION, DEFAULT_FRACTION))


def _decoding(plan: Plan) -> dict[str, float]:
  """Returns bytes on a device of what is there while completions are sampled alone."""
  c, spec, mesh = plan.config.rollout, plan.model.spec, sharding.sampler_mesh(plan.config.mesh, plan.mesh)
  shards, tensor = sharding.batch_shards(mesh), mesh.shape["tensor"]
  tokens = c.prompts * plan.config.data.prompt_budget + plan.slots * kv_budget.ring(c.max_tokens)
  own = weights.build_sync(plan.config, "rollout", plan.model, plan.mesh, c.weights)
  return {
    "the sampler's weights": own.bytes_per_chip,
    "keys and values": kv_budget.kv_bytes(spec, tokens // shards, tensor, c.kv_cache),
    "logits": 3 * 4 * plan.slots / shards * spec.vocab_size / tensor,  # they, their noise, and their sum
  }


def _row(plan: Plan) -> int:
  """Returns the columns of one sequence of whole budgets."""
  return plan.config.data.prompt_budget + plan.config.rollout.max_tokens - 1


def _layer(plan: Plan) -> float:
  """Returns bytes of a layer's own arrays and gradients in its backward pass; scores, if they are made."""
  s, tensor = plan.model.spec, plan.mesh.shape["tensor"]
  item, columns = jnp.dtype(s.dtype).itemsize, check.columns(plan)
  heads = (2 * s.num_attention_heads + 2 * s.num_key_value_heads) * s.head_dim / tensor
  wide = s.intermediate_size if not s.moe else s.moe.num_experts_per_tok * s.moe.intermediate_size
  scores = 0
  if plan.model.attention == "reference":  # scores and weights of every pair, in float32
    scores = 2 * 4 * columns * _row(plan) * s.num_attention_heads / tensor
  return columns * item * (4 * s.hidden_size + 2 * heads + 5 * wide / tensor) + scores


def _logits(plan: Plan) -> float:
  """Returns bytes of a chunk's logits, their gradient in both precisions, and the head's own gradient."""
  s, tensor = plan.model.spec, plan.mesh.shape["tensor"]
  chunk = check.columns(plan) / _row(plan) * min(plan.config.logprob_chunk, _row(plan))
  item = jnp.dtype(s.dtype).itemsize
  return s.vocab_size / tensor * (chunk * (4 + 4 + item) + 4 * s.hidden_size)
