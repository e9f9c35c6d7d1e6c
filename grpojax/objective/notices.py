"""Notices on settings that mean something else under the same name elsewhere, printed at the start.

What is wrong is refused in check.py.  What is here is right, and a reader who comes from another
code base should know it before comparing curves.
"""

from ml_collections import ConfigDict


def notices(config: ConfigDict) -> list[str]:
  """Returns the sentences that apply to the run that `config` describes, in the order of the table."""
  return [sentence for applies, sentence in _TABLE if applies(config)]


def _is(slot: str, *names: str):
  """Returns a test of a config: is the slot's function one of `names`?"""
  return lambda c: c.objective[slot].fn in names


def _has(slot: str, *names: str):
  """Returns a test of a config: has the list of slots one of `names`?"""
  return lambda c: any(entry.fn in names for entry in c.objective[slot].values())


def _all(*predicates):
  return lambda c: all(applies(c) for applies in predicates)


def _not(predicate):
  return lambda c: not predicate(c)


def _stale(c: ConfigDict) -> bool:
  return c.updates_per_rollout > 1 or c.staleness > 0


def _punishes_length(c: ConfigDict) -> bool:
  return any(entry.fn.endswith("soft_overlong") for entry in c.reward.values())


_TABLE = (
  (
    _is("surrogate", "cispo"),
    "config.objective.surrogate.w_max bounds the ratio itself, as TRL's epsilon_high does; verl and "
    "slime write that bound minus 1.",
  ),
  (
    _all(_not(_is("ratio", "token")), _is("aggregate", "token_mean")),
    "config.objective.aggregate.fn = 'token_mean' weighs the completions of a sequence ratio by their "
    "length; GSPO as published and OpenRLHF average over completions ('sequence_mean'), and TRL warns.",
  ),
  (
    _is("aggregate", "constant"),
    "config.objective.aggregate.fn = 'constant' divides by rows times budget, as TRL and oat do; tunix "
    "divides by the padded width, and older verl by no rows, so that learning rates do not carry over.",
  ),
  (
    _all(_is("advantage", "leave_one_out"), _is("surrogate", "reinforce")),
    "config.objective.surrogate.fn = 'reinforce' is the paper's RLOO, without a ratio; TRL's clips the "
    "product of the ratios, and verl's is PPO with these advantages.",
  ),
  (
    _all(_is("surrogate", "reinforce"), _stale, _not(_has("veto", "taper_failures"))),
    "config.objective.surrogate.fn = 'reinforce' corrects for no staleness, and there is some with "
    "config.updates_per_rollout above 1 or config.staleness = 1.",
  ),
  (
    _all(_is("surrogate", "dppo_tv", "dppo_kl"), _not(_has("shape", "bypass"))),
    "config.objective.surrogate measures from log pi_old, as verl does without its bypass mode; DPPO's "
    "authors and SkyRL measure from the sampler's policy, which config.objective.shape: bypass takes for it.",
  ),
  (
    _is("surrogate", "dppo_kl"),
    "config.objective.surrogate: dppo_kl has bounds in nats, 0.05 by its authors; verl reads them from "
    "clip_ratio, whose default of 0.2 is of a ratio.",
  ),
  (
    _has("batch_veto", "m2po"),
    "config.objective.batch_veto: m2po drops single tokens of the optimiser batch, as the paper's algorithm "
    "1 and Trinity-RFT do; the released code turns tau into one clip range, and AReaL counts all tokens of a "
    "microbatch.",
  ),
  (
    _all(_is("advantage", "gdpo"), _is("rescale", "batch_zscore")),
    "config.objective.rescale.fn = 'batch_zscore' normalises GDPO's sum over completions, as TRL and NeMo RL "
    "do; verl and the authors' fork of it count tokens ('whiten').",
  ),
  (
    _is("rescale", "whiten"),
    "config.objective.rescale.fn = 'whiten' counts every token once, as verl, slime and OpenRLHF do, so "
    "long completions count more; ms-swift counts completions.",
  ),
  (
    _has("correct", "truncated_is"),
    "config.objective.correct: truncated_is bounds the weight from above only, as its authors and verl "
    "do; OpenRLHF also bounds it from below, and slime can.",
  ),
  (
    _all(_has("shape", "bypass"), lambda c: len(c.objective.correct) > 0),
    "config.objective.shape: bypass takes the sampler's log-probs for log pi_old, so every ratio that "
    "config.objective.correct looks at is 1.",
  ),
  (
    _all(_has("select", "finished"), _punishes_length),
    "config.objective.select: finished takes out the completions that config.reward punishes most by "
    "soft_overlong; verl's best DAPO runs have the punishment and no filter.",
  ),
  (
    _all(_has("select", "mixed_groups"), lambda c: not c.dynamic_sampling.enabled),
    "config.objective.select: mixed_groups only drops groups while config.dynamic_sampling.enabled is "
    "False; DAPO and verl's filter_groups also draw new ones in their place.",
  ),
  (
    _has("select", "top_entropy"),
    "config.objective.select: top_entropy takes its quantile over the optimiser batch; TRL takes one per "
    "microbatch, so that its share of tokens depends on their size.",
  ),
  (
    _has("penalty", "kl_k3"),
    "config.objective.penalty: kl_k3 has the value of KL(pi_theta || pi_ref) but the gradient of "
    "KL(pi_ref || pi_theta), also in the codes that call it low_var_kl; kl_k2 has that of the first.",
  ),
  (
    _has("penalty", "kl_k1"),
    "config.objective.penalty: kl_k1 has no gradient in expectation; as a part of the reward "
    "(config.objective.shape: kl_k1) it has that of KL(pi_theta || pi_ref).",
  ),
  (
    _all(_is("advantage", "turn_return", "gigpo", "hgpo"), lambda c: not c.env.name),
    "config.objective.advantage compares turns, and without config.env.name every completion is one turn, so "
    "that the turn's advantage is the completion's ('gigpo' adds both, which is 1 + omega times either).",
  ),
)
