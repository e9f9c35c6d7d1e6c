"""R -> A inside one group.  `group` is a Batch without its prompt axis: reward [G], mask [G, T].

Returns [G], or [G, T] where the tokens of a completion differ.  Rows that are not `valid` leave
mean and deviation and get A = 0.  A group without contrast (max R = min R, so also a group of one)
gets exactly 0, decided by max − min: in float32, (R − mean) / (std + eps) of equal rewards is not.
"""

import jax.numpy as jnp

from grpojax.objective import credit, stats
from grpojax.objective.fields import field
from grpojax.types import Array, Batch


def raw(group: Batch) -> Array:
  """A = R.  No baseline: SFT with R = 1, or what a `rescale` over the batch starts from."""
  return group.reward


def none(group: Batch) -> Array:
  """A = 0: rewards are reported and not trained on.  For `rescale.opd` alone, or components."""
  return jnp.zeros_like(group.reward)


def center(group: Batch) -> Array:
  """R − mean.  Dr. GRPO, https://arxiv.org/abs/2503.20783"""
  return _if_contrast(group, _centered(group))


def zscore(group: Batch, *, eps=1e-6, ddof=1) -> Array:
  """(R − mean) / (std + eps).  GRPO, https://arxiv.org/abs/2402.03300, ddof and eps as verl."""
  return _if_contrast(group, _centered(group) / (_std(group, ddof) + eps))


def leave_one_out(group: Batch) -> Array:
  """R − mean of the others = n / (n − 1) · (R − mean).  RLOO, https://arxiv.org/abs/2402.14740"""
  n = stats.total(1.0, group.valid)
  return _if_contrast(group, _centered(group) * n / jnp.maximum(n - 1, 1))


def optimal_baseline(group: Batch) -> Array:
  """R − Σ w² g² R / Σ w² g²: w = Π π_old / μ, g = |∇ log π| of a completion; least variance.  VCPO

  https://arxiv.org/abs/2602.17616.  `extra["grad_norm"]` [G] is g: a backward pass for each completion.
  Equal w and g: `center`.
  """
  delta = field(group, "old_logp") - field(group, "sampler_logp")
  log_weight = 2 * jnp.where(group.mask > 0, delta, 0.0).sum(-1)
  top = stats.largest(log_weight, group.valid)
  weight = jnp.exp(jnp.where(group.valid, log_weight - top, 0.0)) * field(group, "grad_norm") ** 2
  total = stats.total(weight, group.valid)
  baseline = stats.total(weight * group.reward, group.valid) / jnp.where(total > 0, total, 1.0)
  return _if_contrast(group, group.reward - baseline)


def leave_one_out_std(group: Batch, *, eps=1e-6, ddof=1) -> Array:
  """(R − mean of the others) / (std of all + eps) = n / (n − 1) · zscore: a learning rate."""
  return leave_one_out(group) / (_std(group, ddof) + eps)


def maxrl(group: Batch, *, eps=0.0, all_wrong="zero") -> Array:
  """(R − mean) / (mean + eps), 0 unless the mean is positive.  MaxRL, https://arxiv.org/abs/2602.02710

  For rewards of 0 and 1 and a right answer of probability p it climbs Σ pass@k / k over k < G, in
  expectation; log p has all k.  all_wrong "minus_one" gives −1 to groups without a right answer, which adds
  k = G: the authors' vr-cond.  Their eps is 1e-6, and turns all signs round where the mean is negative.
  """
  if all_wrong not in ("zero", "minus_one"):
    raise ValueError(
      f"config.objective.advantage.all_wrong = '{all_wrong}'; it is 'zero' or 'minus_one'."
    )
  mean = stats.mean(group.reward, group.valid)
  relative = jnp.where(mean > 0, _centered(group) / jnp.where(mean > 0, mean + eps, 1.0), 0.0)
  advantage = _if_contrast(group, relative)
  if all_wrong == "zero":
    return advantage
  nothing = group.valid.any() & ~(group.valid & (group.reward != 0)).any()
  return jnp.where(nothing, -1.0, advantage)


def opo(group: Batch) -> Array:
  """R − Σ n R / Σ n, n the tokens of a completion: long ones weigh more in the baseline.  OPO

  https://arxiv.org/abs/2505.23585: the baseline of least variance if |∇ log π|² grows as n does.
  """
  length = jnp.where(group.valid, group.mask.sum(-1), 0.0)
  baseline = stats.total(length * group.reward, group.valid) / jnp.maximum(length.sum(), 1.0)
  return jnp.where(length.sum() > 0, _if_contrast(group, group.reward - baseline), 0.0)


def gdpo(group: Batch, *, eps=1e-6, ddof=1) -> Array:
  """Σ_k weight_k · (R_k − mean) / (std + eps): each reward is normalised by itself.  GDPO

  https://arxiv.org/abs/2601.05242, which normalises the sum over the batch next.  `extra` [G, K]: `part`,
  `part_valid`, `part_weight` of K rewards.  A reward that a completion lacks adds nothing to it.
  """
  part, known, weight = (field(group, name) for name in ("part", "part_valid", "part_weight"))
  on = (known > 0) & group.valid[:, None]
  relative = (part - stats.mean(part, on, axis=0)) / (stats.std(part, on, ddof=ddof, axis=0) + eps)
  relative = jnp.where(on & (stats.spread(part, on, axis=0) > 0), relative, 0.0)
  return jnp.where(on, weight * relative, 0.0).sum(-1)


def leave_one_out_zscore(group: Batch, *, eps=1e-2, ddof=1) -> Array:
  """(R − mean of the others) / (std of the others + eps).

  A trap with a small eps: the only success of a group meets others of no spread and gets 1 / eps.
  """
  others = group.valid[None, :] & ~jnp.eye(group.valid.size, dtype=bool)
  spread = stats.std(group.reward[None, :], others, ddof=ddof, axis=1)[:, 0]
  return leave_one_out(group) / (spread + eps)


def mixed_baseline(group: Batch, *, mix=0.0) -> Array:
  """R − (mix · mean + (1 − mix) · b), with b = `extra["baseline"]` [G] known before the rollout.

  b is a moving average over prompts, or the prompt's own Beta tracker (SPO, G = 1 and mix = 0,
  https://arxiv.org/abs/2509.13232).  A group of wrong answers is pushed away,
  not ignored; unless mix = 1, which is `center`.
  """
  mean = stats.mean(group.reward, group.valid)
  advantage = group.reward - (mix * mean + (1 - mix) * field(group, "baseline"))
  return jnp.where(mix == 1, _if_contrast(group, advantage), advantage)


def pooled(group: Batch, *, eps=1e-6) -> Array:
  """(R − m) / (s + eps), m and s over all that were ever drawn for the prompt, kept or not.

  `extra["pool_mean"]`, `extra["pool_std"]` [G].  Reinforce-Ada, https://arxiv.org/abs/2510.04996
  """
  std = field(group, "pool_std")
  return jnp.where(std > 0, (group.reward - field(group, "pool_mean")) / (std + eps), 0.0)


def return_to_go(group: Batch, *, beta=None) -> Array:
  """Σ over t' ≥ t of 1[t' last] R − beta (log π_old − log π_ref), [G, T].  REINFORCE++

  https://arxiv.org/abs/2501.03262; whitened over the batch next.  beta None: no KL in the reward.
  A masked token (an observation between two turns) passes on what comes after it.
  """
  on = group.mask > 0
  position = jnp.where(on, jnp.arange(on.shape[1])[None, :], -1)
  last = on & (position == position.max(1, keepdims=True))
  reward = jnp.where(last, group.reward[:, None], 0.0)
  if beta is not None:
    x = field(group, "old_logp") - field(group, "ref_logp")
    reward = reward - beta * jnp.where(on, x, 0.0)
  return jnp.cumsum(reward[:, ::-1], axis=1)[:, ::-1]


def process_supervision(group: Batch, *, eps=1e-6, ddof=1) -> Array:
  """Σ of the z-scored step scores that end at or after t, [G, T].  GRPO with a process reward model

  `extra["step_score"]`, `extra["step_end"]` [G, K]: index of a step's last token, −1 for no step.
  All steps of the group are normalised together; https://arxiv.org/abs/2402.03300 section 4.1.3
  """
  score, end = field(group, "step_score"), field(group, "step_end")
  on = (end >= 0) & group.valid[:, None]
  normalized = (score - stats.mean(score, on)) / (stats.std(score, on, ddof=ddof) + eps)
  normalized = jnp.where(on & (stats.spread(score, on) > 0), normalized, 0.0)
  token = jnp.arange(group.mask.shape[1])[None, None, :]
  return jnp.where(end[:, :, None] >= token, normalized[:, :, None], 0.0).sum(1)


def gtpo(
  group: Batch, *, alpha1=1.0, alpha2=0.1, low=1e-3, high=jnp.inf, pool="all", eps=1e-8, ddof=0
) -> Array:
  """Token rewards by entropy H, z-scored in the group, [G, T].  GTPO, https://arxiv.org/abs/2508.04349

  On right answers alpha1 + alpha2 H / mean H, on wrong ones −alpha1 − alpha2 H⁻¹ / mean H⁻¹, means
  over the answers of that kind that reach t.  H of π_old is clamped to [low, high].  pool "all"
  counts the other kind's tokens as zeros (equal entropies then give GRPO); "own" leaves them out.
  """
  on = (group.mask > 0) & group.valid[:, None]
  entropy = jnp.clip(field(group, "entropy"), low, high)
  return _entropy_zscore(group, entropy, on, alpha1, alpha2, pool, eps, ddof)


def grpo_s(
  group: Batch, *, beta1=1.0, beta2=0.1, low=1e-3, high=jnp.inf, pool="all", eps=1e-8, ddof=0
) -> Array:
  """GTPO with one entropy per completion, its tokens' mean, [G].  GRPO-S, the same paper"""
  on = (group.mask > 0) & group.valid[:, None]
  entropy = stats.mean(jnp.clip(field(group, "entropy"), low, high), on, axis=1)
  rows = on.any(1, keepdims=True)
  entropy = jnp.where(rows, entropy, 1.0)
  return _entropy_zscore(group, entropy, rows, beta1, beta2, pool, eps, ddof)[:, 0]


def turn_return(
  group: Batch, *, gamma=1.0, baseline="turns", std=True, penalty=0.0, eps=1e-6, ddof=1
) -> Array:
  """Discounted return of each turn, less the mean over the prompt's turns, [G, T].  Monte-Carlo credit

  baseline "none": the return itself.  `penalty` is taken from the reward of an invalid action's turn.
  As ROLL's `step_reinforce`, https://arxiv.org/abs/2506.06122
  """
  _one_of("baseline", baseline, ("turns", "none"))
  turns = credit.turns_of(group)
  x = credit.discounted(turns.reward - penalty * turns.invalid, turns.on, gamma)
  if baseline == "turns":
    x = credit.relative(x, credit.all_turns(turns), std, eps, ddof)
  return credit.to_tokens(x, group)


def gigpo(
  group: Batch, *, omega=1.0, gamma=0.95, std=False, form="trajectories", penalty=0.0, eps=1e-6, ddof=1
) -> Array:
  """A of the trajectory + omega · A of the turn among those with its anchor, [G, T].  GiGPO

  https://arxiv.org/abs/2505.10978; std False divides by 1, as Dr. GRPO does.  form "trajectories": a
  trajectory counts once, and `penalty` is taken from the reward of an invalid action's turn.  "rows", as the
  authors' code: it counts once a turn, `penalty` from that turn's return and score alone, and a turn alone in
  its prompt keeps its score.  With fingerprints of a validator's answers as anchors (rollout/anchors.py) this
  is ESSA.
  """
  _one_of("form", form, ("trajectories", "rows"))
  turns = credit.turns_of(group)
  fine = penalty * turns.invalid
  if form == "rows":
    episode = credit.score_by_turns(group.reward[:, None] - fine, turns, std, eps, ddof)
    returns = credit.discounted(turns.reward, turns.on, gamma) - fine
  else:
    score = group.reward - stats.total(fine, turns.on, axis=1)[:, 0]
    both = group.valid[:, None] & group.valid[None, :]
    episode = credit.relative(score[:, None], both, std, eps, ddof)
    returns = credit.discounted(turns.reward - fine, turns.on, gamma)
  step = credit.relative(returns, credit.same_situation(turns), std, eps, ddof)
  return credit.to_tokens(episode + omega * step, group)


def hgpo(
  group: Batch, *, history=2, alpha=1.0, gamma=0.95, std=True, base_group=False, penalty=0.0, eps=1e-6
) -> Array:
  """Weighted mean of A among turns whose last 1, 2, .., history + 1 anchors agree, [G, T].  HGPO

  https://arxiv.org/abs/2602.22817, as its code: A of k anchors weighs (k + 1)^alpha, ddof is 0, and a level
  without contrast leaves the mean.  `base_group` adds the trajectory's A as level 0.  `penalty` as in
  gigpo's "rows".
  """
  turns = credit.turns_of(group)
  fine = penalty * turns.invalid
  score = credit.score_by_turns(group.reward[:, None] - fine, turns, std, eps, 1)
  returns = credit.discounted(turns.reward, turns.on, gamma) - fine
  base = jnp.where(base_group, score, 0.0)
  return credit.to_tokens(credit.by_history(returns, turns, base, history, alpha, std, eps), group)


def _one_of(knob: str, word: str, words: tuple[str, ...]) -> None:
  if word not in words:
    raise ValueError(f"config.objective.advantage.{knob} = '{word}'; it is '{words[0]}' or '{words[1]}'.")


def _entropy_zscore(group: Batch, entropy: Array, on: Array, base, bonus, pool, eps, ddof) -> Array:
  """Returns entropy-shaped rewards of right and wrong answers, each z-scored, [G, T] (or [G, 1])."""
  _one_of("pool", pool, ("all", "own"))
  right = on & (group.accuracy[:, None] > 0.5)
  wrong = on & ~right
  # What shaping adds to a right answer (the paper's overlong term) joins its tokens' reward.
  shaping = (group.reward - group.accuracy)[:, None]
  inverse = 1 / entropy
  gain = base + bonus * entropy / stats.mean(entropy, right, axis=0) + shaping
  pain = -base - bonus * inverse / stats.mean(inverse, wrong, axis=0)

  def zscore_of(kind, value):
    value, counted = jnp.where(kind, value, 0.0), on if pool == "all" else kind
    scale = stats.std(value, counted, ddof=ddof) + eps
    differ = kind & ~stats.equal(value, counted)
    return jnp.where(differ, (value - stats.mean(value, counted)) / scale, 0.0)

  return jnp.where(right.any() & wrong.any(), zscore_of(right, gain) + zscore_of(wrong, pain), 0.0)


def _centered(group: Batch) -> Array:
  return jnp.where(group.valid, group.reward - stats.mean(group.reward, group.valid), 0.0)


def _std(group: Batch, ddof) -> Array:
  return stats.std(group.reward, group.valid, ddof=ddof)


def _if_contrast(group: Batch, advantage: Array) -> Array:
  return jnp.where(stats.spread(group.reward, group.valid) > 0, advantage, 0.0)
