"""Divergences of the policy from its teachers over the whole vocabulary, chunk by chunk: GKD.

https://arxiv.org/abs/2306.13649.  Teachers read a microbatch's rows beside the policy, so that nobody's
logits nor hidden states are kept.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp

from grpojax.learner import logprobs
from grpojax.learner.logprob_scan import cut
from grpojax.models import Model
from grpojax.objective import vocabulary

KINDS = ("forward_kl", "reverse_kl", "jsd")
TEACHER = "teacher"  # where those of the teachers, a tuple, lie among the policy's parameters


def of(kind: str, beta: float) -> Callable:
  """Returns (student's logits, teacher's logits, temperature) -> divergence, by its name in KINDS."""
  fn = getattr(vocabulary, kind)
  return partial(fn, beta=beta) if kind == "jsd" else fn


def make_logp(
  model: Model, teachers: Sequence[Model], divergence: Callable, response_budget: int, **how
) -> Callable:
  """Returns `logprobs.make_logp`'s function that returns the divergence [P, G, T], too, with gradient.

  Its parameters have those of the teachers under "teacher", which get none.  Each teacher reads all rows, and
  a row's is the one of `number` [P, G]; None: the first.  `how` is a `temperature` and a `chunk`.
  """

  def logp(
    policy, tokens, prompt_length, routing=None, balance_mask=None, context=None, kept=None, number=None
  ):
    student = model.bind({name: x for name, x in policy.items() if name != TEACHER})
    frozen = jax.lax.stop_gradient(policy[TEACHER])
    others = [teacher.bind(params) for teacher, params in zip(teachers, frozen, strict=True)]
    asked = tokens, prompt_length, response_budget
    read = logprobs.read_rows(student, *asked, routing, balance_mask, context)
    outs = logprobs.of_rows(student, read, tokens.shape, response_budget, kept, **how)
    seen = [logprobs.read_rows(other, *asked, context=context)[1] for other in others]
    hidden = tuple(x[:, -response_budget:] for x in (read[1], *seen))
    number = jnp.zeros(tokens.shape[:2], jnp.int32) if number is None else number
    found = token_divergences((student, *others), hidden, number.reshape(-1), divergence, **how)
    return *outs, found.reshape(outs[0].shape)

  return logp


def token_divergences(
  decoders: tuple, hidden: tuple, number, divergence: Callable, temperature: float, chunk: int
):
  """Returns divergences [B, T] of the student, first of both tuples, from the teacher `number` [B] of a row.

  hidden [B, T, D] is each one's.  Only `chunk` columns have logits at once.
  """
  B, T, _ = hidden[0].shape
  chunks, size = cut(T, chunk)
  split = lambda x: jnp.pad(x, ((0, 0), (0, chunks * size - T), (0, 0))).reshape(B, chunks, size, -1)

  @jax.checkpoint
  def one(columns):
    student, *teachers = (decoder.logits(x) for decoder, x in zip(decoders, columns, strict=True))
    return divergence(student, of_own(number, teachers), temperature)

  found = jax.lax.map(one, tuple(split(x).swapaxes(0, 1) for x in hidden))
  return found.swapaxes(0, 1).reshape(B, chunks * size)[:, :T]


def of_own(number, each: Sequence):
  """Returns of every row what its own teacher found: each[number[row]]; number [...], each [..., more]."""
  found, *others = each
  for n, other in enumerate(others, start=1):
    mine = jnp.expand_dims(number == n, tuple(range(number.ndim, other.ndim)))
    found = jnp.where(mine, other, found)
  return found


def check_vocabulary(path: str, model: Model, teacher: Model) -> None:
  """Raises ValueError where the heads of the policy and the teacher in `path` have different lengths."""
  ours, theirs = model.spec.vocab_size, teacher.spec.vocab_size
  if ours != theirs:
    raise ValueError(
      f"config.teacher.divergence compares whole vocabularies, and the head of '{path}' has {theirs} tokens "
      f"for the policy's {ours}; take config.objective.rescale.fn = 'opd', which reads sampled tokens."
    )
