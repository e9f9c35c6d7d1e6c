"""Necessary FLOPs and bytes of a step of training, whatever the program: a utilisation's numerator."""

import math

import jax

from grpojax.models import Model
from grpojax.rollout.sampler import kv_budget, shared_prefix
from grpojax.runtime import sharding
from grpojax.tools.podcheck import programs
from grpojax.tools.podcheck.programs import Plan


def weights(model: Model) -> tuple[int, int]:
  """Returns the parameters that a token meets in the layers, and in the product that makes logits."""
  s, layers = model.spec, sum(x.size for x in jax.tree.leaves(model.shapes["layers"]))
  return layers - s.unmet, s.vocab_size * s.hidden_size


def forward(plan: Plan) -> float:
  """Returns FLOPs of one pass over an update's sequences of whole budget; two per weight and token.

  A prompt counts once for the responses that share it in a row.
  """
  s, c = plan.model.spec, plan.config.rollout
  rows = c.prompts // plan.config.updates_per_rollout * c.group_size
  body, head = weights(plan.model)
  columns, L, sharing = plan.columns // rows, plan.config.data.prompt_budget, programs.sharing(plan)
  seen = lambda n: sum(min(w or n, n) * n - min(w or n, n) ** 2 / 2 for w in s.windows)
  pairs = seen(L + c.max_tokens - 1) - (1 - 1 / sharing) * seen(L)
  attention = 4 * s.num_attention_heads * s.head_dim * pairs
  return rows * (2 * body * columns + 2 * head * c.max_tokens + attention)


def update(plan: Plan) -> float:
  """Returns FLOPs of an update: forward, and twice as many backward; recomputation counts nothing."""
  return 3 * forward(plan)


def decode(parameters: float, kv: float, plan: Plan) -> float:
  """Returns bytes that a device reads for one token of every slot: parameters, caches of slots and prompts.

  `parameters` and `kv` are bytes of the decode program, caches full; a token reads one row of the embedding.
  """
  s = plan.model.spec
  table = 0 if s.tie_word_embeddings else s.vocab_size * s.hidden_size
  total = sum(math.prod(x.shape) for x in jax.tree.leaves(plan.model.shapes))
  return parameters * (1 - table / total) + kv * _worked_on(plan)


def _worked_on(plan: Plan) -> float:
  """Returns the share of all cache columns that slots, and the fewest prompts they work on, read."""
  c, shards = plan.config.rollout, sharding.batch_shards(sharding.sampler_mesh(plan.config.mesh, plan.mesh))
  prompts = shards * shared_prefix.block_width(c.prompts // shards, plan.slots // shards, c.group_size)
  own, of_prompt = plan.slots * kv_budget.ring(c.max_tokens), plan.config.data.prompt_budget
  return (own + prompts * of_prompt) / (own + c.prompts * of_prompt)
