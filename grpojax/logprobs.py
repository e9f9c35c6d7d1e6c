"""Hidden states -> log-probs of the chosen tokens and entropies, chunk by chunk.

Logits of only `chunk` columns exist at once: `[B, T, V]` is built neither forward nor backward,
because each step of the scan is rematerialised.
"""

import jax
import jax.numpy as jnp

from grpojax import models


def token_logprobs(hidden, unembedding, targets, *, temperature: float, chunk: int, cap: float = 0.0):
  """hidden [B, T, D], unembedding [V, D], targets [B, T] int32 -> logp, entropy, both [B, T] float32.

  Both are those of softmax(logits / temperature), in nats; the temperature is the sampler's, so that
  ratios compare like with like.  `cap` is the model's soft-cap of logits, 0: none.
  """
  B, T, D = hidden.shape
  chunks = -(-T // chunk)
  size = -(-T // chunks)  # equal chunks, so that almost nothing is padded
  pad = chunks * size - T
  hidden = jnp.pad(hidden, ((0, 0), (0, pad), (0, 0))).reshape(B, chunks, size, D)
  targets = jnp.pad(targets, ((0, 0), (0, pad))).reshape(B, chunks, size)

  @jax.checkpoint
  def one_chunk(_, xs):
    h_BCD, target_BC = xs
    logits = models.logits(h_BCD, unembedding, cap) / temperature
    logps = jax.nn.log_softmax(logits, axis=-1)
    chosen = jnp.take_along_axis(logps, target_BC[..., None], axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(logps) * logps, axis=-1)  # logits instead of logps would cancel
    return None, (chosen, entropy)

  _, outs = jax.lax.scan(one_chunk, None, (hidden.swapaxes(0, 1), targets.swapaxes(0, 1)))
  return tuple(o.swapaxes(0, 1).reshape(B, chunks * size)[:, :T] for o in outs)


def packed_logprobs(decoder, piece, *, temperature: float, chunk: int):
  """`packing.Piece` of B rows -> logp, entropy [B, C] of its response tokens, and Routed, as below.

  Chunks of columns in which no row has a response token left are not computed.
  """
  routing = None if piece.routing is None else models.by_layers(piece.routing)
  hidden, routed = decoder.forward(piece.tokens, piece.segment, routing, piece.counted)
  hidden = jax.vmap(lambda h, column: h[column])(hidden, piece.column)
  B, C = piece.target.shape
  chunks = -(-C // chunk)
  size = -(-C // chunks)
  cut = lambda x: x.reshape(B, chunks, size, *x.shape[2:]).swapaxes(0, 1)  # noqa: E731
  fill = lambda x: jnp.pad(x, [(0, 0), (0, chunks * size - C), *[(0, 0)] * (x.ndim - 2)])  # noqa: E731
  how = dict(temperature=temperature, chunk=size, cap=decoder.spec.logit_softcap)
  unembedding, nothing = decoder.unembedding(), jnp.zeros((B, size), jnp.float32)

  @jax.checkpoint
  def one_chunk(_, xs):
    start, h, target = xs
    compute = lambda h: token_logprobs(h, unembedding, target, **how)  # noqa: E731
    return None, jax.lax.cond(start < piece.wanted, compute, lambda h: (nothing, nothing), h)

  xs = size * jnp.arange(chunks), cut(fill(hidden)), cut(fill(piece.target))
  outs = jax.lax.scan(one_chunk, None, xs)[1]
  if routed is not None:
    routed = routed._replace(experts=models.by_rows(routed.experts, decoder.spec))
  return *(x.swapaxes(0, 1).reshape(B, chunks * size)[:, :C] for x in outs), routed


def response_logprobs(
  decoder, tokens, prompt_length, response_budget: int, routing=None, counted=None, **kwargs
):
  """tokens [P, G, L + T], prompt_length [P, G] -> logp, entropy of the last T tokens, and Routed.

  logp and entropy are [P, G, T]; behind a response's end they are finite garbage, which the batch's
  mask removes.  `decoder` is a bound `models.Decoder`.  Of a mixture, `routing` [P, G, L + T - 1,
  layers, k] replays a choice of experts (-1: none) and `counted` [P, G, L + T - 1] are the tokens whose
  load is summed up; Routed has the experts of this pass, shaped as `routing`.  None if dense.
  """
  P, G, S = tokens.shape
  L = S - response_budget
  rows = tokens.reshape(P * G, S)
  if routing is not None:
    routing = models.by_layers(routing.reshape(P * G, *routing.shape[2:]))
  if counted is not None:
    counted = counted.reshape(P * G, S - 1)
  segment = models.left_padded(S - 1, L - prompt_length.reshape(P * G))
  hidden, routed = decoder.forward(rows[:, :-1], segment, routing, counted)
  cap = decoder.spec.logit_softcap
  outs = token_logprobs(hidden[:, L - 1 :], decoder.unembedding(), rows[:, L:], cap=cap, **kwargs)
  if routed is not None:
    experts = models.by_rows(routed.experts, decoder.spec)
    routed = routed._replace(experts=experts.reshape(P, G, *experts.shape[1:]))
  return *(o.reshape(P, G, response_budget) for o in outs), routed
