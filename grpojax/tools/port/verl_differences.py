"""verl 0.9.1: where the same word means another formula, and what cannot be ported.  verl.py has the rest."""

from grpojax.tools.port.table import Gap, Word

WORDS = (
  Word("actor.policy_loss.loss_mode actor.clip_ratio_c", "'vanilla' is dual clip, always",
       "dual_clip has its own name, and ppo_clip has no floor", "loss == 'vanilla'"),
  Word("actor.clip_ratio", "it counts only where clip_ratio_low or clip_ratio_high is null, and both are 0.2 "
       "unless set", "low and high are two numbers without a third", "'actor.clip_ratio' in given"),
  Word("actor.clip_ratio_low actor.clip_ratio_high", "CISPO's weight lies between 1 - low and 1 + high",
       "w_min and w_max are the bounds themselves; as published there is no w_min", "loss == 'cispo'"),
  Word("actor.clip_ratio_low actor.clip_ratio_high", "GMPO's bounds are of log-ratios", "so are those of "
       "geometric",
       "loss == 'geo_mean'"),
  Word("actor.clip_ratio_low actor.clip_ratio_high actor.clip_ratio_c", "they bound a divergence, and "
       "clip_ratio_c, 3 unless set, is the cap of the weight", "low and high do, too, and w_max is 20 unless "
       "set",
       "loss in ('dppo_tv', 'dppo_kl')"),
  Word("actor.policy_loss.loss_mode", "'gspo' is GSPO-token, and its log-ratio is bounded by 10",
       "sequence_token is the same formula, bounded likewise", "loss == 'gspo'"),
  Word("actor.policy_loss.loss_mode actor.loss_agg_mode", "'gspo' is aggregated as loss_agg_mode says, over "
       "tokens "
       "unless set", "GSPO as published has sequence_mean, which configs/gspo.py sets",
       "loss == 'gspo' and mode != 'seq-mean-token-mean'"),
  Word("actor.loss_agg_mode", "SAPO takes seq-mean-token-mean, whatever the key says",
       "aggregation is a slot of its own", "loss == 'sapo'"),
  Word("actor.loss_agg_mode", "GMPO takes the mean of a microbatch's rows, whatever the key says",
       "weights are made on the optimiser batch", "loss == 'geo_mean'", remains=True),
  Word("actor.loss_agg_mode", "a mean over sequences divides by the rows of the mini-batch, empty ones too",
       "rows = 'all' does, and 'nonempty' is the default", "mode[:8] == 'seq-mean'"),
  Word("actor.loss_agg_mode actor.loss_scale_factor", "without loss_scale_factor the constant is the padded "
       "width "
       "of the microbatch", "budget is fixed for the run: here max_response_length",
       "mode == 'seq-mean-token-sum-norm' and not actor.loss_scale_factor", remains=True),
  Word("algorithm.adv_estimator", "a group of one keeps its raw reward", "its advantage is 0",
       "grouped or estimator in ('opo', 'gpg')", remains=True),
  Word("algorithm.adv_estimator", "groups of equal rewards are divided by 1e-6, so that rounding can survive",
       "their advantages are 0", "grouped and algorithm.norm_adv_by_std_in_grpo", remains=True),
  Word("algorithm.adv_estimator", "'rloo' is leave-one-out advantages in whatever loss_mode says: PPO's, "
       "unless set",
       "configs/rloo.py has the paper's, without a ratio", "estimator in ('rloo', 'rloo_vectorized')"),
  Word("algorithm.adv_estimator", "GDPO whitens the sum over tokens", "that is `whiten`; configs/gdpo.py "
       "normalises over completions, as TRL", "estimator == 'gdpo'"),
  Word("actor.kl_loss_type", "k3's log-ratio is bounded by 20 and its value by 10, without gradient beyond",
       "the exponent alone is bounded", "actor.use_kl_loss and actor.kl_loss_type in ('low_var_kl', 'k3')",
       remains=True),
  Word("actor.kl_loss_type", "k3 has the value of KL(policy to reference) and the gradient of the reverse",
       "kl_k3 is the same; kl_k2 has the gradient of its value",
       "actor.use_kl_loss and actor.kl_loss_type in ('low_var_kl', 'k3')"),
  Word("actor.kl_loss_type", "'kl' in the loss has no gradient in expectation", "neither has kl_k1",
       "actor.use_kl_loss and actor.kl_loss_type in ('kl', 'k1')"),
  Word("actor.kl_loss_type", "this form has the value of k1 and the gradient of k2",
       "kl_k2 has that gradient and its own value", "actor.use_kl_loss and actor.kl_loss_type in ('k1+', "
       "'kl+')"),
  Word("actor.entropy_coeff", "the bonus is aggregated as loss_agg_mode says",
       "it is a mean over tokens, always", "actor.entropy_coeff and mode != 'token-mean'", remains=True),
  Word("algorithm.rollout_correction.rollout_rs", "k1 is minus log(learner / sampler), so that the band is "
       "of the "
       "inverse ratio", "low and high are of learner / sampler, and have been turned", "'k1' in rejects and "
       "not bypass"),
  Word("algorithm.rollout_correction.rollout_rs", "rejected tokens leave the mask, KL and denominators, too",
       "renormalize does that; without it they stay", "rejects and not bypass"),
  Word("algorithm.filter_groups.metric", "groups are mixed by the reward, with its shaping",
       "they are mixed by accuracy", "algorithm.filter_groups.enable and algorithm.filter_groups.metric == "
       "'reward'",
       remains=True),
  Word("reward.reward_kwargs.overlong_buffer_cfg.len", "the punishment has no floor", "it ends at -1, which "
       "is "
       "reached where the budget is", "buffer"),
  Word("algorithm.rollout_correction.bypass_mode", "the older trainer (use_v1 = False) then takes PPO's clip "
       "or "
       "REINFORCE, whatever loss_mode says", "shape.bypass changes pi_old alone", "chosen_by_bypass"),
  Word("trainer.v1.trainer_mode", "colocate_async samples while it trains", "staleness = 1 samples one step "
       "ahead",
       "trainer.v1.trainer_mode == 'colocate_async'", remains=True),
  Word("data.max_response_length", "a completion of exactly that length counts as cut, also with an EOS at "
       "its end",
       "it is finished if an EOS was sampled"),
  Word("rollout.top_p rollout.top_k", "the learner's log-probs are of the whole vocabulary, so that ratios "
       "carry the mass that was kept", "they are over the set that the sampler kept, as it was recorded",
       "0 < (rollout.top_k or 0) <= 512"),
)  # fmt: skip

_NO_ADVANTAGE = ("gae", "remax", "grpo_passk", "optimal_token_baseline", "tir_optimal_token_baseline")
_KNOWN = "'vanilla', 'gspo', 'sapo', 'geo_mean', 'cispo', 'dppo_tv', 'dppo_kl', 'gpg', 'dro', 'reinforce'"

GAPS = (
  Gap("algorithm.adv_estimator", "it needs a critic, and none is here; without the key verl trains with one. "
      "The "
      "flags have the z-score in its place", "estimator == 'gae'"),
  Gap("algorithm.adv_estimator", "there is no such advantage here; the flags have the z-score in its place",
      f"estimator in {_NO_ADVANTAGE[1:]}"),
  Gap("actor.policy_loss.loss_mode", "there is no such surrogate here; the flags have PPO's clip in its "
      "place",
      f"loss not in ({_KNOWN})"),
  Gap("actor.loss_agg_mode", "a sum depends on the batch's size; the flags have the mean over completions in "
      "its "
      "place", "mode == 'token-sum'"),
  Gap("actor.kl_loss_type", "there is no such KL here, and the flags have none",
      "actor.use_kl_loss and actor.kl_loss_type in ('abs', 'full')"),
  Gap("algorithm.kl_penalty", "KL in the reward is k1 here, and the flags have none",
      "algorithm.use_kl_in_reward and not kl_k1"),
  Gap("algorithm.gdpo_reward_keys", "name the rewards in config.reward, with their weights", "estimator == "
      "'gdpo'"),
  Gap("algorithm.gamma", "completions are not discounted", "algorithm.gamma != 1"),
  Gap("algorithm.lam", "there is no critic whose errors it would weigh", "algorithm.lam != 1"),
  Gap("algorithm.use_pf_ppo", "completions are not drawn again by their scores", "algorithm.use_pf_ppo"),
  Gap("algorithm.filter_groups.max_num_gen_batches", "without a limit in verl; here config.dynamic_sampling."
      "max_tries is one, and training goes on with what there is then",
      "algorithm.filter_groups.enable and algorithm.filter_groups.max_num_gen_batches <= 0"),
  Gap("algorithm.rollout_correction.rollout_rs", "in bypass mode verl rejects by policy / sampler of now; "
      "here "
      "rejection is by pi_old / sampler, which is 1 then", "rejects and bypass"),
  Gap("algorithm.rollout_correction.rollout_rs", "one rule of k1 with two bounds, or of seq_* with k2 or k3, "
      "can be "
      "said here", "rejects and not bypass and not banded and not one_sided"),
  Gap("algorithm.rollout_correction.loss_type", "the trainer of version 1 does not read it, and takes the "
      "loss of "
      "loss_mode; so do the flags",
      "bypass and trainer.use_v1 and algorithm.rollout_correction.loss_type != 'ppo_clip'"),
  Gap("algorithm.rollout_correction.rollout_is", "in bypass mode the ratio itself is policy / sampler, and "
      "no weight "
      "is left", "weighs and bypass and loss != 'reinforce'"),
  Gap("actor.ppo_epochs", "completions are used once", "actor.ppo_epochs != 1"),
  Gap("actor.optim.optimizer", "config.optimizer.fn is adamw, muon, adafactor or sgd",
      "actor.optim.optimizer not in ('AdamW', 'Adam')"),
  Gap("actor.optim.lr_scheduler_type", "the learning rate is constant after warm-up", "schedule != "
      "'constant'"),
  Gap("actor.optim.lr_warmup_steps_ratio", "a share of steps that the file does not say; set "
      "config.optimizer.warmup_steps", "warmup == 0 and actor.optim.lr_warmup_steps_ratio"),
  Gap("data.train_batch_size", "it is no multiple of actor.ppo_mini_batch_size",
      "data.train_batch_size % actor.ppo_mini_batch_size"),
  Gap("data.gen_batch_size", "a refill draws rollout.prompts prompts at a time",
      "data.gen_batch_size not in (None, data.train_batch_size)"),
  Gap("data.truncation", "prompts are dropped or refused, never cut",
      "not data.filter_overlong_prompts and data.truncation != 'error'"),
  Gap("data.train_files", "several files; set config.data.train with a name for each",
      "str(data.train_files)[:1] == '[' and len(data.train_files) > 1"),
  Gap("data.val_files", "several files; set config.data.test with a name for each",
      "str(data.val_files)[:1] == '[' and len(data.val_files) > 1"),
  Gap("data.shuffle", "prompts are shuffled", "not data.shuffle"),
  Gap("rollout.top_p", "what truncation keeps is recorded, up to 512 tokens; set config.rollout.top_k to a "
      "bound beside config.rollout.top_p",
      "rollout.top_p not in (1, None) and not 0 < (rollout.top_k or 0) <= 512"),
  Gap("rollout.top_k", "at most 512 tokens of a kept set are recorded", "(rollout.top_k or 0) > 512"),
  Gap("rollout.do_sample", "greedy rollouts have no policy gradient", "not rollout.do_sample"),
  Gap("rollout.over_sample_rate", "all completions are waited for", "rollout.over_sample_rate"),
  Gap("rollout.multi_turn.enable", "config.env names an environment, and config.env.turns its turns",
      "rollout.multi_turn.enable"),
  Gap("actor.qat.enable", "the learner's weights are whole", "actor.qat.enable"),
  Gap("model.target_modules", "set config.lora.modules to a regular expression",
      "model.lora_rank and model.target_modules != 'all-linear'"),
  Gap("reward.custom_reward_function.path", "name it as config.reward.NAME.fn = my.module:function; its "
      "signature "
      "is another (docs/coming_from.md)", "reward.custom_reward_function.path"),
  Gap("reward.reward_model.enable", "config.reward.NAME = {'fn': 'grpojax.rewards.learned:score', 'path': "
      "...}",
      "reward.reward_model.enable"),
  Gap("reward.reward_kwargs.max_resp_len", "the punishment ends at data.max_response_length",
      "buffer and reward.reward_kwargs.max_resp_len not in (None, data.max_response_length)"),
  Gap("trainer.total_epochs", "set config.steps = rows of the dataset * epochs / rollout.prompts",
      "not trainer.total_training_steps"),
  Gap("trainer.v1.trainer_mode", "set config.mesh.rollout_devices to the number of devices that sample, and "
      "config.staleness = 1", "trainer.v1.trainer_mode == 'separate_async'"),
  Gap("distillation.enabled", "configs/distill.py has it: set config.objective.rescale = {'fn': 'opd', "
      "...} and config.teacher.path; the flags have none", "distillation.enabled"),
)  # fmt: skip
