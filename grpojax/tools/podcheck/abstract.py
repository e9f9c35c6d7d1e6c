"""Shapes and types of the arguments of a run's programs.  Nothing is allocated or sampled."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct
from ml_collections import ConfigDict

from grpojax import models
from grpojax.learner import batching, logprobs
from grpojax.types import Batch


class Tokenizer(NamedTuple):
  """Stands for a tokenizer where no text is read.  One token pads and ends."""

  vocab_size: int = 2
  pad_token_id: int = 0
  eos_token_id: int = 1

  def __len__(self):
    return self.vocab_size

  def __call__(self, words: str, **_):
    return {"input_ids": [self.pad_token_id] if words else []}


def prompts(config: ConfigDict):
  """Returns (tokens, length, id, key), the arguments of a rollout."""
  P, L = config.rollout.prompts, config.data.prompt_budget
  key = jax.eval_shape(lambda: jax.random.key(0))
  return _i32(P, L), _i32(P), _i32(P), key


def number():
  """Returns the type of a number of decode steps."""
  return _i32()


def batch(config: ConfigDict, model: models.Model) -> Batch:
  """Returns one of a step's optimizer batches, as the learner's batching makes it."""
  c = config.rollout
  P, G, T = c.prompts // config.updates_per_rollout, c.group_size, c.max_tokens
  L, first_pass = config.data.prompt_budget, logprobs.needs_old_logprobs(config)
  moe, replay, balance = model.spec.moe, config.routing_replay, config.load_balance
  routing = jax.eval_shape(lambda: models.unrouted(model.spec, P, G, L + T - 1)) if replay else None
  return Batch(
    mask=_f32(P, G, T),
    reward=_f32(P, G),
    accuracy=_f32(P, G),
    valid=_bool(P, G),
    ended=_bool(P, G),
    sampler_logp=_f32(P, G, T),
    old_logp=_f32(P, G, T),
    on_policy=None if first_pass else _bool(P, G),
    ref_logp=_f32(P, G, T) if config.reference else None,
    teacher_logp=_f32(P, G, T) if config.teacher.path else None,
    entropy=_f32(P, G, T) if first_pass else None,
    tokens=_i32(P, G, L + T),
    prompt_length=_i32(P, G),
    length=_i32(P, G),
    packing_index=_i32(P, G, 4) if config.rows == "packed" else None,
    kept=_i32(P, G, T, min(c.top_k, model.spec.vocab_size)) if c.top_k else None,
    routing=routing,
    balance_mask=_bool(P, G, L + T - 1) if balance else None,
    expert_cost=_f32(P, G, moe.num_experts) if balance else None,
    extra=_extra(config, P, G),
  )


def _extra(config: ConfigDict, P: int, G: int) -> dict:
  extra = {}
  if config.baseline.kind:
    extra["baseline"] = _f32(P, G)
  if config.moment.kind:
    extra["moment"] = _f32(P, G)
  if config.objective.advantage.get("fn") == "gdpo":
    K = len(config.reward)
    extra |= dict(part=_f32(P, G, K), part_valid=_bool(P, G, K), part_weight=_f32(P, G, K))
  if config.adaptive_group.stop:
    extra |= dict(pool_mean=_f32(P, G), pool_std=_f32(P, G))
  if config.process.scorer:
    K = config.process.max_steps
    extra |= dict(step_score=_f32(P, G, K), step_end=_i32(P, G, K))
  if "grad_norm" in batching.extra_fields(config):
    extra["grad_norm"] = _f32(P, G)
  if "lag" in batching.extra_fields(config):
    extra["lag"] = _i32(P, G, config.rollout.max_tokens)
  return extra


def _f32(*shape):
  return ShapeDtypeStruct(shape, jnp.float32)


def _i32(*shape):
  return ShapeDtypeStruct(shape, jnp.int32)


def _bool(*shape):
  return ShapeDtypeStruct(shape, jnp.bool_)
