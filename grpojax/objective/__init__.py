"""The formula.  A variant of GRPO is a record of small choices, each a pure function:

    loss(θ) = Σ w · ( Σ_k β_k D_k  −  c · J(ℓ, A) )      sums over prompts, completions, tokens
            + Σ_k g_k · mean over its own tokens or pairs of l_k

    shape      Batch -> Batch                     first of all: rewards, who is scored, which π_old
    advantage  group (Batch without P) -> [G]     A  sees one group; [G, T] where tokens differ
    rescale    advantages, batch -> the same      A  sees the optimiser batch
    select     batch -> [P, G, T]                    0/1: which tokens count, changes denominators
    correct    batch -> [P, G, T]                 c  sampler mismatch: how much a token is trusted
    aggregate  batch -> [P, G, T]                 w  its mask is what `select` left
    ratio      delta, mask, advantage [T] -> [T]  ℓ  sees one completion
    surrogate  log_ratio, logp, advantage -> []   J  sees one token
    veto       logp, batch -> [P, G, T]           c  dropped, or less trusted, where θ has moved
    batch_veto logp, batch -> [P, G, T]           c  the same over the optimiser batch, before it is cut
    penalty    logp, batch, entropy -> [P, G, T]  D  with gradient, times its beta
    component  logp, batch -> [P, G, T]           l  with gradient, over the tokens of its stream
    preference pair -> []                         l  with gradient, over pairs of a group's completions

The first six know no θ: `prepare` runs them, and `batch_veto`, once per optimiser step on all that step will
see, so `loss` is a plain sum and microbatches and devices only add up.  There, too, components get their
weights, and the loss of pairs becomes a sum over tokens.
"""

from grpojax.objective.build import bind, build, preference_loss
from grpojax.objective.check import (
  check,
  reads_old_policy,
  reads_reference,
  reads_teacher,
  replaces_old_policy,
)  # fmt: skip
from grpojax.objective.describe import describe, group_advantages, turn_advantages
from grpojax.objective.formula import Correction, Objective, loss, prepare, reads_batch_logp
from grpojax.objective.kl import has_kl, scale_kl
from grpojax.objective.notices import notices

__all__ = [
  "Correction", "Objective", "bind", "build", "check", "describe", "group_advantages", "has_kl", "loss",
  "notices", "preference_loss", "prepare", "reads_batch_logp", "reads_old_policy", "reads_reference",
  "reads_teacher", "replaces_old_policy", "scale_kl", "turn_advantages",
]  # fmt: skip
