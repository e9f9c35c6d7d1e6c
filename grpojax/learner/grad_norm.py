"""Norms of single completions' gradients, |∇ log π(o)|, which the baseline of least variance weighs by."""

from collections.abc import Callable

import jax
import optax

from grpojax.learner import logprobs
from grpojax.models import Model


def make_grad_norm(model: Model, response_budget: int, **how) -> Callable:
  """Returns grad_norm(params, frozen, tokens, prompt_length, mask, context=None, kept=None) -> [P, G].

  By what is trained.  One backward pass for each completion, in a row of its own: as dear as an update, and
  slower.  `how` is a `temperature` and a `chunk`.
  """
  logp_fn = logprobs.make_logp(model, response_budget=response_budget, **how)

  def grad_norm(params, frozen, tokens, prompt_length, mask, context=None, kept=None):
    def one(row):
      tokens, prompt_length, mask, context, kept = jax.tree.map(lambda x: x[None, None], row)

      def total(params):
        logp, *_ = logp_fn(frozen | params, tokens, prompt_length, context=context, kept=kept)
        return (mask * logp).sum()

      return optax.global_norm(jax.grad(total)(params))

    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (tokens, prompt_length, mask, context, kept))
    return jax.lax.map(one, rows).reshape(prompt_length.shape)

  return grad_norm
