"""Log-probs of responses in single or packed rows; log π_old and log π_ref of a step's batches."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from grpojax import models, objective
from grpojax.learner.batching import extra_fields
from grpojax.learner.logprob_scan import token_logprobs
from grpojax.types import Batch


def packed_logprobs(decoder, rows, longest=None, **kwargs):
  """Returns logp, entropy [B, C] of the response tokens of `packing.PackedRows`, and Routed, as below.

  Chunks of columns in which no row has a response token left are not computed.  `longest`: `Decoder.forward`.
  """
  routing = None if rows.routing is None else models.by_layers(rows.routing)
  inputs = rows.tokens, rows.segment, routing, rows.balance_mask, rows.response, longest
  hidden, routed = decoder.forward(*inputs)
  hidden = jax.vmap(lambda h, column: h[column])(hidden, rows.column)
  how = dict(cap=decoder.spec.logit_softcap, wanted=rows.wanted, kept=rows.kept, mesh=decoder.mesh)
  outs = token_logprobs(hidden, decoder.unembedding(), rows.target, **how, **kwargs)
  if routed is not None:
    routed = routed._replace(experts=models.by_rows(routed.experts, decoder.spec))
  return *outs, routed


def response_logprobs(
  decoder, tokens, prompt_length, response_budget: int, routing=None, balance_mask=None, context=None,
  kept=None, **kwargs,
):  # fmt: skip
  """Returns logp, entropy [P, G, T] of the last T of tokens [P, G, L + T], and Routed.

  `prompt_length` is [P, G].  Behind a response's end both are finite garbage, which the batch's
  mask removes.  `decoder` is a bound `models.Decoder`.  Of a mixture, `routing` [P, G, L + T - 1,
  layers, k] replays a choice of experts (-1: none) and `balance_mask` [P, G, L + T - 1] are the tokens whose
  load is summed up; Routed has the experts of this pass, shaped as `routing`.  None if dense.  Of `context`
  [P, G, T] equal numbers stand together, and such tokens see the prompt and each other, and
  `kept` [P, G, T, K] is what log-probs are over: `types.Rollout`.
  """
  read = read_rows(decoder, tokens, prompt_length, response_budget, routing, balance_mask, context)
  return of_rows(decoder, read, tokens.shape, response_budget, kept, **kwargs)


def read_rows(
  decoder, tokens, prompt_length, response_budget: int, routing=None, balance_mask=None, context=None
):
  """Returns (rows [P * G, L + T] of tokens, hidden [P * G, L + T - 1, D] behind each, Routed by layers)."""
  P, G, S = tokens.shape
  L = S - response_budget
  rows = tokens.reshape(P * G, S)
  if routing is not None:
    routing = models.by_layers(routing.reshape(P * G, *routing.shape[2:]))
  if balance_mask is not None:
    balance_mask = balance_mask.reshape(P * G, S - 1)
  if context is not None:
    context = jnp.pad(1 + context.reshape(P * G, -1)[:, :-1], ((0, 0), (L, 0)))
  segment = models.left_padded(S - 1, L - prompt_length.reshape(P * G))
  hidden, routed = decoder.forward(rows[:, :-1], segment, routing, balance_mask, context)
  return rows, hidden, routed


def of_rows(decoder, read: tuple, shape: tuple, response_budget: int, kept=None, **kwargs):
  """Returns logp, entropy [P, G, T] and Routed of what `read_rows` returned for tokens of this shape."""
  (rows, hidden, routed), (P, G, S) = read, shape
  L = S - response_budget
  kept = None if kept is None else kept.reshape(P * G, response_budget, -1)
  how = dict(cap=decoder.spec.logit_softcap, kept=kept, mesh=decoder.mesh)
  outs = token_logprobs(hidden[:, L - 1 :], decoder.unembedding(), rows[:, L:], **how, **kwargs)
  if routed is not None:
    experts = models.by_rows(routed.experts, decoder.spec)
    routed = routed._replace(experts=experts.reshape(P, G, *experts.shape[1:]))
  return *(o.reshape(P, G, response_budget) for o in outs), routed


def make_logp(model: models.Model, *, response_budget: int, temperature: float, chunk: int) -> Callable:
  """Returns logp(params, tokens, prompt_length, routing, balance_mask, context, kept), as above."""

  def logp(params, tokens, prompt_length, routing=None, balance_mask=None, context=None, kept=None):
    return response_logprobs(
      model.bind(params), tokens, prompt_length, response_budget, routing, balance_mask, context, kept,
      temperature=temperature, chunk=chunk,
    )  # fmt: skip

  return logp


def make_packed_logp(model: models.Model, **how) -> Callable:
  """Returns logp(params, packing.PackedRows): `packed_logprobs` for a `temperature` and a `chunk`."""
  return lambda params, rows: packed_logprobs(model.bind(params), rows, **how)


def needs_old_logprobs(config: ConfigDict) -> bool:
  """Returns True if a step's first batch needs log-probs before its update, whose own pass computes them.

  Under staleness that pass is of another policy than π_old, which matters unless π_old is replaced.
  """
  kept = config.difficulty.kind == "beta" or config.routing_replay == "R2" or config.load_balance
  if kept or (config.staleness and not objective.replaces_old_policy(config)):
    return True
  return objective.reads_old_policy(config, extra_fields(config))


def add_logprobs(logp, params, reference, batches: list[Batch], first_pass: bool) -> list[Batch]:
  """Returns a step's batches with log-probs of policy and reference.

  The first batch's policy gets no pass of its own unless `first_pass`: its update starts from pi_old,
  so the ratio is 1 and the gradient is the same, or the objective replaces pi_old.
  """
  if first_pass:
    return [add_policy_logprobs(logp, params, reference, batch) for batch in batches]
  first, *later = batches
  unknown = jnp.full_like(first.mask, jnp.nan)  # nothing may read it; all batches are alike to the compiler
  first = first._replace(old_logp=unknown, on_policy=jnp.ones_like(first.valid))
  known = jnp.zeros_like(first.valid)
  later = [add_policy_logprobs(logp, params, reference, batch) for batch in later]
  later = [batch._replace(on_policy=known, entropy=None) for batch in later]
  return [_with_reference(logp, reference, first), *later]


def add_policy_logprobs(logp, params, reference, batch: Batch) -> Batch:
  """Returns the batch with log pi_old and what its pass computed, and log pi_ref if there is a reference."""
  old, entropy, routing, cost = logp(
    params, batch.tokens, batch.prompt_length, batch.routing, batch.balance_mask, batch.packing_index,
    batch.context, batch.kept,
  )  # fmt: skip
  batch = batch._replace(old_logp=old, entropy=entropy, routing=routing, expert_cost=cost)
  return _with_reference(logp, reference, batch)


def _with_reference(logp, reference, batch: Batch) -> Batch:
  """Returns the batch with log pi_ref, over the tokens that the policy's are over.

  The reference routes for itself, whatever is replayed.
  """
  if not reference:
    return batch
  seen = batch.tokens, batch.prompt_length, None, None, batch.packing_index, batch.context, batch.kept
  ref, *_ = logp(reference, *seen)
  return batch._replace(ref_logp=ref)
