"""The literature's claims.  A function is one claim: Size -> Claim, its rule written before it runs.

Errors of exact (enumerated, float64) quantities are compared with EXACT; sampled ones carry standard
errors.  No seed was chosen after seeing a result; docs/estimator_lab.md says which rules were changed, and
why.  Estimators are ranked by direction (cosine) and by noise, the trace of the covariance over |E ĝ|²: a
learning rate changes neither.
"""

from experiments.estimator_lab.claims import advantages, clipping, kl, mismatch, trust

ALL = (
  advantages.rloo_is_unbiased,
  advantages.dr_grpo_is_a_scale,
  advantages.std_biases_by_difficulty,
  advantages.length_mean_favours_long_wrong,
  advantages.uniform_groups_give_zero,
  advantages.group_of_two_is_a_sign,
  advantages.on_policy_surrogates_agree,
  kl.k1_in_loss_is_useless,
  kl.k3_is_the_forward_kl,
  kl.k2_is_the_reverse_kl,
  kl.k1_in_reward_is_exact,
  clipping.clip_higher_steps,
  clipping.upper_clip_needs_small_old,
  clipping.rloo_clip_is_rare,
  clipping.others_keep_gradient,
  trust.gspo_clips_two_orders_more,
  trust.gspo_has_lower_variance,
  mismatch.exact_ratio_is_unbiased,
  mismatch.corrections_accept_bias,
  mismatch.corrections_remove_bias,
)
