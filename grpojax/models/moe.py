"""A mixture of experts: dropless top-k routing by sorting, and replay of a recorded choice.

Every token reaches all its experts (`models/experts.py`).  On a mesh each device sorts its own tokens by
expert (the partitioner would sort the tokens of all devices on every device); along the mesh's `expert` axis
it gathers its neighbours' tokens, applies the experts that it holds, and the contributions are summed back
into each device's own tokens.

Replay (R2, https://arxiv.org/abs/2507.18071, and R3, https://arxiv.org/abs/2510.11370): a recorded
choice of experts replaces the router's; the gates of those experts are still the router's and carry its
gradient.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from grpojax.models.experts import apply_experts
from grpojax.models.parts import gated_mlp, matrix
from grpojax.models.spec import Spec
from grpojax.runtime import sharding


class Routed(NamedTuple):
  """The choices of experts and the load that a mixture's tokens make."""

  experts: jax.Array  # [B, S, k] int32, in falling order of the router's preference unless replayed
  load: jax.Array | None  # [3, E] float32, sums over counted tokens: choices, probability, tokens


class Mixture(nnx.Module):
  """Router and experts, and Qwen2-MoE's shared expert behind its sigmoid gate."""

  def __init__(self, s: Spec, mesh: Mesh | None, rngs: nnx.Rngs, rules: sharding.Rules = sharding.RULES):
    D, E, F, dtype = s.hidden_size, s.moe.num_experts, s.moe.intermediate_size, s.param_dtype
    out_scale = (2 * s.num_hidden_layers) ** -0.5
    self.spec, self.mesh, self.rules = s, mesh, tuple(rules.items())  # static: hashed
    self.router = matrix(rngs, ("embed", None), (D, E), D**-0.5, dtype)
    self.gate = matrix(rngs, ("expert", "embed", "mlp"), (E, D, F), D**-0.5, dtype)
    self.up = matrix(rngs, ("expert", "embed", "mlp"), (E, D, F), D**-0.5, dtype)
    self.down = matrix(rngs, ("expert", "mlp", "embed"), (E, F, D), out_scale * F**-0.5, dtype)
    if s.moe.shared_size:
      F = s.moe.shared_size
      self.shared_router = matrix(rngs, ("embed", None), (D, 1), D**-0.5, dtype)
      self.shared_gate = matrix(rngs, ("embed", "mlp"), (D, F), D**-0.5, dtype)
      self.shared_up = matrix(rngs, ("embed", "mlp"), (D, F), D**-0.5, dtype)
      self.shared_down = matrix(rngs, ("mlp", "embed"), (F, D), out_scale * F**-0.5, dtype)

  def __call__(self, h, replay=None, counted=None):
    """Returns [B, S, D], Routed; h [B, S, D], replay [B, S, k] int32 or None.

    `counted` [B, S] is how often the load counts a token, bool or float32; None: no load is kept.
    """
    moe = self.spec.moe
    router = self.router[...].astype(h.dtype)
    logits = jnp.einsum("bsd,de->bse", h, router, preferred_element_type=jnp.float32)
    experts, gates, probs = route(logits, moe.num_experts_per_tok, moe.norm_topk_prob, replay)
    y = self._experts(h, experts, gates)
    if moe.shared_size:
      weights = (w[...] for w in (self.shared_gate, self.shared_up, self.shared_down))
      shared = gated_mlp(h, *weights, self.spec.activation)
      y = y + jax.nn.sigmoid(h @ self.shared_router[...].astype(h.dtype)) * shared
    load = None
    if counted is not None:  # a replayed choice says nothing about the router's balance
      load = _load(experts, probs, counted if replay is None else jnp.where(replay[..., 0] < 0, counted, 0))
    return y, Routed(experts, load)

  def _experts(self, h, experts, gates):
    """Returns the gated sum of each token's k experts, [B, S, D]."""
    apply = partial(apply_experts, activation=self.spec.activation)
    weights = [w[...].astype(h.dtype) for w in (self.gate, self.up, self.down)]
    if self.mesh is None:
      return apply(h, experts, gates, *weights)
    weights, cuts = self._laid_out(*weights)
    by_expert, by_width = cuts[0][0], cuts[0][2]
    rows = sharding.cut_of(self.mesh, h.shape[0])
    if h.shape[1] % sharding.column_shards(self.mesh, h.shape[0]):
      rows = PartitionSpec(sharding.batch_axes(self.mesh))
    neighbours, shards = "expert" in self.mesh.shape, self.mesh.shape[by_expert] if by_expert else 1

    def local(h, experts, gates, *weights):
      if neighbours:
        gather = partial(jax.lax.all_gather, axis_name="expert", tiled=True)
        h, experts, gates = gather(h), gather(experts), gather(gates)
      first = jax.lax.axis_index("expert") * weights[0].shape[0] if by_expert else 0
      y = apply(h, experts, gates, *weights, first=first, shards=shards)
      y = jax.lax.psum(y, "tensor") if by_width else y
      if by_expert:
        return jax.lax.psum_scatter(y, "expert", tiled=True)
      if neighbours:  # every device holds all experts: each keeps its own rows
        mine = y.shape[0] // self.mesh.shape["expert"]
        return jax.lax.dynamic_slice_in_dim(y, jax.lax.axis_index("expert") * mine, mine)
      return y

    cut = jax.shard_map(local, mesh=self.mesh, in_specs=(rows,) * 3 + tuple(cuts), out_specs=rows)
    return cut(h, experts, gates, *weights)

  def _laid_out(self, gate, up, down):
    """Returns the matrices as `apply_experts` takes them, and their cuts once gathered along `embed`.

    What is gathered is prepared while it is small.  Gate and up are joined: one product reads the tokens, and
    their gradient is no sum of two.  And down is cut along its rows, not its columns, so that it need not be
    turned around when it is whole.
    """
    partition = partial(sharding.partition, self.mesh, rules=dict(self.rules))
    by_expert, embed, by_width = partition(("expert", "embed", "mlp"), gate.shape)
    if sharding.wide_axes(self.mesh, by_width) or not sharding.wide_axes(self.mesh, embed):
      inner = PartitionSpec(by_expert, None, by_width)
      return (gate, up, down), (inner, inner, PartitionSpec(by_expert, by_width, None))
    for names in ("expert", "mlp", "embed"), ("expert", "embed", None):  # the first is its gradient's
      where = NamedSharding(self.mesh, partition(names, down.shape))
      down = jax.lax.with_sharding_constraint(down, where)
    return (jnp.concatenate([gate, up], axis=-1), down), (PartitionSpec(by_expert, None, None),) * 2


def route(logits, k: int, normalise: bool, replay=None):
  """Returns experts [..., k] int32, gates [..., k] and probs [..., E] of logits [..., E] float32.

  A `replay` [..., k] that is not negative is the choice; its gates are the router's own, so the gradient
  flows to the logits of the replayed experts.
  """
  probs = jax.nn.softmax(logits, axis=-1)
  experts = jax.lax.top_k(probs, k)[1]
  if replay is not None:
    experts = jnp.where(replay >= 0, replay, experts)
  gates = jnp.take_along_axis(probs, experts, axis=-1)
  if normalise:
    gates = gates / gates.sum(axis=-1, keepdims=True)
  return experts, gates, probs


def by_rows(routing, s: Spec):
  """Moves [layers, B, S, k], as the decoder scans routing, to narrow [B, S, layers, k], as batches do."""
  return jnp.moveaxis(routing, 0, 2).astype(_narrow(s))


def unrouted(s: Spec, *lead: int):
  """Returns [*lead, layers, k] of -1, as batches keep routing: no choice is recorded."""
  return jnp.full((*lead, s.num_hidden_layers, s.moe.num_experts_per_tok), -1, _narrow(s))


def _narrow(s: Spec):
  return jnp.int8 if s.moe.num_experts <= 128 else jnp.int16


def by_layers(routing):
  """Inverts `by_rows`."""
  return jnp.moveaxis(routing, 2, 0).astype(jnp.int32)


def _load(experts, probs, counted):
  E = probs.shape[-1]
  weight = counted.astype(jnp.float32)
  choices = jnp.einsum("bske,bs->e", jax.nn.one_hot(experts, E), weight)
  tokens = jnp.full(E, weight.sum())
  return jnp.stack([choices, jnp.einsum("bse,bs->e", probs, weight), tokens])


def expert_cost(load):
  """Returns [E] float32, what a token's probability of an expert costs, of load [layers, 3, E]; no gradient.

  The cost is E (choices of e per token) / tokens, over all layers: the factor of `load_balance_loss` that
  is not linear, so it is summed over the whole optimizer batch.
  """
  choices, _, tokens = jax.lax.stop_gradient(load.sum(axis=0))
  tokens = jnp.maximum(tokens, 1)
  return load.shape[-1] * choices / tokens / tokens


def load_balance_loss(load, cost):
  """Returns Σ_e cost_e (probability of e, summed over tokens and layers) of load [layers, 3, E], cost [E].

  With the cost of the same tokens this is E Σ_e (choices of e per token) (mean probability of e): k when
  the load is even, up to E when one expert takes all.  Switch Transformer,
  https://arxiv.org/abs/2101.03961 equations 4 to 6, pooled over layers as transformers does.
  """
  return jnp.sum(cost * load[:, 1].sum(axis=0))
