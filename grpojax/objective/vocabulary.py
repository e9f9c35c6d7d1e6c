"""What needs the logits of all tokens: log-probs over the tokens that truncated sampling kept, divergences.

Logits are [..., V], results [...], in their dtype.
"""

import jax
import jax.numpy as jnp

from grpojax.types import Array


def kept_logprobs(logits: Array, tokens: Array, kept: Array, temperature=1.0) -> Array:
  """Returns z_o / T − log Σ_{v in K} e^{z_v / T} [...] of tokens o; `kept` [..., V] bool is K.

  With top-k or top-p the sampler draws from K: temperature first, then truncation.  The learner's ratio is
  right only over the same K, as recorded; of one made anew the drawn token may be out.  An empty K is
  the whole vocabulary.  DeepSeek-V3.2, https://arxiv.org/abs/2512.02556 section 3.1.  The learner has the
  same over chunks, with K as a list: learner/logprob_scan.py.
  """
  inside = kept | ~kept.any(-1, keepdims=True)
  z = jnp.where(inside, logits / temperature, -jnp.inf)
  chosen = jnp.take_along_axis(z, tokens[..., None], axis=-1)[..., 0]
  return chosen - jax.nn.logsumexp(z, axis=-1)


def forward_kl(student: Array, teacher: Array, temperature=1.0, top_k: int = 0) -> Array:
  """Returns KL(T‖S) = Σ T (log T − log S); its gradient by the student's logits is (S − T) / temperature.

  top_k > 0: the sum is over the teacher's likeliest tokens alone, at least 0, as verl's forward_kl_topk.
  """
  log_s, log_t = _log_softmaxes(student, teacher, temperature)
  terms = jnp.exp(log_t) * (log_t - log_s)
  if not top_k:
    return terms.sum(-1)
  _, likeliest = jax.lax.top_k(log_t, top_k)
  return jnp.maximum(jnp.take_along_axis(terms, likeliest, axis=-1).sum(-1), 0.0)


def reverse_kl(student: Array, teacher: Array, temperature=1.0) -> Array:
  """Returns KL(S‖T) = Σ S (log S − log T)."""
  log_s, log_t = _log_softmaxes(student, teacher, temperature)
  return (jnp.exp(log_s) * (log_s - log_t)).sum(-1)


def jsd(student: Array, teacher: Array, temperature=1.0, beta: float = 0.5) -> Array:
  """Returns β KL(T‖M) + (1 − β) KL(S‖M), M = β T + (1 − β) S.  GKD, https://arxiv.org/abs/2306.13649 eq. 1

  β = 0 is defined as `forward_kl` and β = 1 as `reverse_kl`, towards which it goes divided by β and 1 − β.
  """
  if beta in (0, 1):
    return (reverse_kl if beta else forward_kl)(student, teacher, temperature)
  log_s, log_t = _log_softmaxes(student, teacher, temperature)
  log_m = jnp.logaddexp(log_t + jnp.log(beta), log_s + jnp.log1p(-beta))
  of = lambda log_p: (jnp.exp(log_p) * (log_p - log_m)).sum(-1)
  return beta * of(log_t) + (1 - beta) * of(log_s)


def _log_softmaxes(student: Array, teacher: Array, temperature) -> tuple[Array, Array]:
  """Returns log S, and log T without gradient."""
  teacher = jax.lax.stop_gradient(teacher)
  return jax.nn.log_softmax(student / temperature), jax.nn.log_softmax(teacher / temperature)
