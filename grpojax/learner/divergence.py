"""Divergences of the policy from its teacher over the whole vocabulary, chunk by chunk: GKD.

https://arxiv.org/abs/2306.13649.  The teacher reads a microbatch's rows beside the policy, so that neither's
logits nor hidden states are kept.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from grpojax.learner import logprobs
from grpojax.learner.logprob_scan import cut
from grpojax.models import Model
from grpojax.objective import vocabulary

KINDS = ("forward_kl", "reverse_kl", "jsd")
TEACHER = "teacher"  # where the teacher's parameters lie among the policy's


def of(kind: str, beta: float) -> Callable:
  """Returns (student's logits, teacher's logits, temperature) -> divergence, by its name in KINDS."""
  fn = getattr(vocabulary, kind)
  return partial(fn, beta=beta) if kind == "jsd" else fn


def make_logp(model: Model, teacher: Model, divergence: Callable, response_budget: int, **how) -> Callable:
  """Returns `logprobs.make_logp`'s function that returns the divergence [P, G, T], too, with gradient.

  Its parameters have the teacher's under "teacher", which get none.  `how` is a `temperature` and a `chunk`.
  """

  def logp(policy, tokens, prompt_length, routing=None, balance_mask=None, context=None, kept=None):
    student = model.bind({name: x for name, x in policy.items() if name != TEACHER})
    other = teacher.bind(jax.lax.stop_gradient(policy[TEACHER]))
    asked = tokens, prompt_length, response_budget
    read = logprobs.read_rows(student, *asked, routing, balance_mask, context)
    outs = logprobs.of_rows(student, read, tokens.shape, response_budget, kept, **how)
    _, seen, _ = logprobs.read_rows(other, *asked, context=context)
    both = (x[:, -response_budget:] for x in (read[1], seen))
    return *outs, token_divergences((student, other), tuple(both), divergence, **how).reshape(outs[0].shape)

  return logp


def token_divergences(decoders: tuple, hidden: tuple, divergence: Callable, temperature: float, chunk: int):
  """Returns divergences [B, T] of student and teacher by hidden [B, T, D] of each.

  Only `chunk` columns have logits at once.
  """
  B, T, _ = hidden[0].shape
  chunks, size = cut(T, chunk)
  split = lambda x: jnp.pad(x, ((0, 0), (0, chunks * size - T), (0, 0))).reshape(B, chunks, size, -1)

  @jax.checkpoint
  def one(both):
    z_student, z_teacher = (decoder.logits(x) for decoder, x in zip(decoders, both, strict=True))
    return divergence(z_student, z_teacher, temperature)

  found = jax.lax.map(one, tuple(split(x).swapaxes(0, 1) for x in hidden))
  return found.swapaxes(0, 1).reshape(B, chunks * size)[:, :T]


def check_vocabularies(model: Model, teacher: Model) -> None:
  """Raises ValueError where the heads of policy and teacher have different lengths."""
  ours, theirs = model.spec.vocab_size, teacher.spec.vocab_size
  if ours != theirs:
    raise ValueError(
      f"config.teacher.divergence compares whole vocabularies, and the teacher's head has {theirs} tokens "
      f"for the policy's {ours}; take config.objective.rescale.fn = 'opd', which reads sampled tokens."
    )
