"""The least that a step of training takes, whatever the program: the numerator of a utilisation."""

import math

import jax

from grpojax.models import Model
from grpojax.rollout.sampler import kv_budget, shared_prefix
from grpojax.runtime import sharding
from grpojax.tools.podcheck.programs import Plan


def weights(model: Model) -> tuple[float, float]:
  """Parameters that a token meets in the layers, and in the product that makes logits."""
  s, layers = model.spec, 0.0
  for path, x in jax.tree.leaves_with_path(model.shapes["layers"]):
    mixed = s.moe and path[-1].key in ("gate", "up", "down") and any(k.key == "moe" for k in path)
    layers += x.size * (s.moe.num_experts_per_tok / s.moe.num_experts if mixed else 1)
  return layers, s.vocab_size * s.hidden_size


def forward(plan: Plan) -> float:
  """FLOPs of one pass over an update's sequences, each of its whole budget; two a weight and token."""
  s, c = plan.model.spec, plan.config.rollout
  rows = c.prompts // plan.config.updates_per_rollout * c.group_size
  body, head = weights(plan.model)
  columns = plan.columns // rows
  pairs = sum(min(w or columns, columns) * columns - min(w or columns, columns) ** 2 / 2 for w in s.windows)
  attention = 4 * s.num_attention_heads * s.head_dim * pairs
  return rows * (2 * body * columns + 2 * head * c.max_tokens + attention)


def update(plan: Plan) -> float:
  """Forward, and twice that backward; what is computed again counts nothing."""
  return 3 * forward(plan)


def decode(parameters: float, kv: float, plan: Plan) -> float:
  """Bytes that a device reads for one token of every slot: parameters, caches of slots, and of their prompts.

  `parameters` and `kv` are those of the decode program, caches full; of the embedding a token reads a row.
  """
  s = plan.model.spec
  table = 0 if s.tie_word_embeddings else s.vocab_size * s.hidden_size
  total = sum(math.prod(x.shape) for x in jax.tree.leaves(plan.model.shapes))
  return parameters * (1 - table / total) + kv * _worked_on(plan)


def _worked_on(plan: Plan) -> float:
  """Of all columns of caches, those of slots and of as many prompts as they work on at least."""
  c, shards = plan.config.rollout, sharding.batch_shards(sharding.sampler_mesh(plan.config.mesh, plan.mesh))
  prompts = shards * shared_prefix.block_width(c.prompts // shards, plan.slots // shards, c.group_size)
  own, of_prompt = plan.slots * kv_budget.ring(c.max_tokens), plan.config.data.prompt_budget
  return (own + prompts * of_prompt) / (own + c.prompts * of_prompt)
