"""slime: the arguments of its train.py, and those of Megatron's that decide what is computed.

Read in slime's repository at commit 624b824a (August 2026): slime/utils/arguments.py.  Formulas there:
`policy_loss_function` of slime/backends/megatron_utils/loss.py, slime/utils/ppo_utils.py,
slime/ray/rollout.py.
"""

from grpojax.tools.port.table import Flag, Gap, Peer, Word

KEYS = {
  "rollout_batch_size": None,
  "n_samples_per_prompt": 1,
  "global_batch_size": None,
  "num_steps_per_rollout": None,
  "over_sampling_batch_size": None,
  "rollout_max_response_len": None,
  "rollout_max_prompt_len": None,
  "rollout_max_context_len": None,
  "rollout_temperature": 1.0,
  "rollout_top_p": 1.0,
  "rollout_top_k": -1,
  "rollout_stop": None,
  "rollout_shuffle": False,
  "rollout_seed": 42,
  "dynamic_sampling_filter_path": None,
  "rollout_sample_filter_path": None,
  "buffer_filter_path": None,
  "partial_rollout": False,
  "mask_offpolicy_in_partial_rollout": False,
  "custom_generate_function_path": None,
  "num_rollout": None,
  "num_epoch": None,
  "advantage_estimator": "grpo",
  "disable_grpo_std_normalization": False,
  "disable_rewards_normalization": False,
  "normalize_advantages": False,
  "gamma": 1.0,
  "lambd": 1.0,
  "loss_type": "policy_loss",
  "custom_loss_function_path": None,
  "custom_advantage_function_path": None,
  "custom_pg_loss_reducer_function_path": None,
  "custom_reward_post_process_path": None,
  "custom_convert_samples_to_train_data_path": None,
  "rollout_all_samples_process_path": None,
  "custom_megatron_before_log_prob_hook_path": None,
  "custom_megatron_before_train_step_hook_path": None,
  "disable_compute_advantages_and_returns": False,
  "calculate_per_token_loss": False,
  "eps_clip": 0.2,
  "eps_clip_high": None,
  "eps_clip_c": None,
  "use_kl_loss": False,
  "kl_loss_coef": 0.0,
  "kl_loss_type": "k1",
  "use_unbiased_kl": False,
  "kl_coef": 0.0,
  "ref_update_interval": None,
  "entropy_coef": 0.0,
  "use_rollout_logprobs": False,
  "use_tis": False,
  "tis_clip": 2.0,
  "tis_clip_low": 0,
  "custom_tis_function_path": None,
  "use_opsm": False,
  "opsm_delta": 1e-4,
  "use_routing_replay": False,
  "use_rollout_routing_replay": False,
  "use_opd": False,
  "optimizer": "adam",
  "lr": 1e-6,
  "lr_decay_style": "linear",
  "lr_warmup_iters": 0,
  "lr_warmup_fraction": None,
  "weight_decay": 0.01,
  "adam_beta1": 0.9,
  "adam_beta2": 0.999,
  "adam_eps": 1e-8,
  "clip_grad": 1.0,
  "attention_dropout": 0.1,
  "hidden_dropout": 0.1,
  "moe_aux_loss_coeff": 0.0,
  "seed": 1234,
  "hf_checkpoint": None,
  "prompt_data": None,
  "input_key": "input",
  "label_key": None,
  "apply_chat_template": False,
  "rm_type": None,
  "custom_rm_path": None,
  "rm_url": None,
  "group_rm": False,
  "reward_key": None,
  "eval_interval": None,
  "n_samples_per_eval_prompt": 1,
  "eval_temperature": None,
  "eval_top_p": None,
  "eval_top_k": None,
  "eval_max_response_len": None,
  "save_interval": None,
  "enable_mtp_training": False,
}

DERIVED = {
  "high": "eps_clip if eps_clip_high is None else eps_clip_high",
  "samples": "(rollout_batch_size or 0) * n_samples_per_prompt",
  "updates": "num_steps_per_rollout or (max(1, samples // global_batch_size) if global_batch_size else 1)",
  "grouped": "advantage_estimator in ('grpo', 'gspo', 'cispo')",
  "returns": "advantage_estimator == 'reinforce_plus_plus'",
  "baseline": "advantage_estimator == 'reinforce_plus_plus_baseline'",
  "kl": "use_kl_loss and kl_loss_coef",
  "k3": "kl_loss_type in ('k3', 'low_var_kl')",
}

FLAGS = (
  Flag("rollout.prompts", "=rollout_batch_size", "rollout_batch_size"),
  Flag("rollout.group_size", "=n_samples_per_prompt"),
  Flag("updates_per_rollout", "=updates"),
  Flag("rollout.max_tokens", "=rollout_max_response_len", "rollout_max_response_len"),
  Flag("rollout.temperature", "=float(rollout_temperature)"),
  Flag("rollout.top_k", "=rollout_top_k", "0 < (rollout_top_k or 0) <= 512"),
  Flag("rollout.top_p", "=float(rollout_top_p)",
       "rollout_top_p not in (1, None) and 0 < (rollout_top_k or 0) <= 512"),
  Flag("data.prompt_budget", "=rollout_max_prompt_len", "rollout_max_prompt_len"),
  Flag("objective.advantage", {"fn": "zscore", "eps": 1e-6, "ddof": 1},
       "grouped and not disable_grpo_std_normalization and not disable_rewards_normalization"),
  Flag("objective.advantage", {"fn": "center"},
       "(grouped and disable_grpo_std_normalization or baseline) and not disable_rewards_normalization"),
  Flag("objective.advantage", {"fn": "raw"}, "(grouped or baseline) and disable_rewards_normalization"),
  Flag("objective.advantage", {"fn": "return_to_go"}, "returns and not kl_coef"),
  Flag("objective.advantage", {"fn": "return_to_go", "beta": "=kl_coef"}, "returns and kl_coef"),
  Flag("objective.rescale", {"fn": "whiten", "ddof": 1, "eps": 1e-8}, "normalize_advantages"),
  Flag("objective.ratio", {"fn": "sequence"}, "advantage_estimator == 'gspo'"),
  Flag("objective.surrogate", {"fn": "ppo_clip", "low": "=eps_clip", "high": "=high"},
       "advantage_estimator != 'cispo' and eps_clip_c is None"),
  Flag("objective.surrogate", {"fn": "dual_clip", "low": "=eps_clip", "high": "=high",
       "floor": "=eps_clip_c"},
       "advantage_estimator != 'cispo' and eps_clip_c is not None"),
  Flag("objective.surrogate", {"fn": "cispo", "w_max": "=1 + high", "w_min": "=max(0.0, 1 - eps_clip)"},
       "advantage_estimator == 'cispo'"),
  Flag("objective.aggregate", {"fn": "token_mean"}, "calculate_per_token_loss"),
  Flag("objective.aggregate", {"fn": "sequence_mean", "rows": "all"}, "not calculate_per_token_loss"),
  Flag("objective.penalty.kl", {"fn": "kl_k1", "beta": "=kl_loss_coef"}, "kl and kl_loss_type == 'k1'"),
  Flag("objective.penalty.kl", {"fn": "kl_k2", "beta": "=kl_loss_coef"}, "kl and kl_loss_type == 'k2'"),
  Flag("objective.penalty.kl", {"fn": "kl_k3", "beta": "=kl_loss_coef"}, "kl and k3"),
  Flag("objective.penalty.kl", {"fn": "kl_k3_corrected", "beta": "=kl_loss_coef"}, "kl and k3 and "
       "use_unbiased_kl"),
  Flag("objective.penalty.kl", {"fn": "kl_k1_corrected", "beta": "=kl_loss_coef"},
       "kl and kl_loss_type == 'k1' and use_unbiased_kl"),
  Flag("reference", "init", "kl or returns and kl_coef"),
  Flag("reference_sync.every", "=ref_update_interval", "kl and ref_update_interval"),
  Flag("objective.penalty.entropy", {"fn": "entropy_bonus", "beta": "=entropy_coef"}, "entropy_coef"),
  Flag("objective.correct.tis", {"fn": "truncated_is", "high": "=tis_clip"},
       "use_tis and not custom_tis_function_path"),
  Flag("objective.veto.opsm", {"fn": "stale_failures", "delta": "=opsm_delta", "anchor": "old"}, "use_opsm"),
  Flag("objective.shape.bypass", {"fn": "bypass"}, "use_rollout_logprobs"),
  Flag("dynamic_sampling.enabled", True, "dynamic_sampling_filter_path"),
  Flag("objective.select.mixed", {"fn": "mixed_groups"}, "dynamic_sampling_filter_path"),
  Flag("routing_replay", "R2", "use_routing_replay and not use_rollout_routing_replay"),
  Flag("routing_replay", "R3", "use_rollout_routing_replay"),
  Flag("load_balance", "=moe_aux_loss_coeff", "moe_aux_loss_coeff"),
  Flag("optimizer.learning_rate", "=lr"),
  Flag("optimizer.warmup_steps", "=lr_warmup_iters"),
  Flag("optimizer.weight_decay", "=weight_decay"),
  Flag("optimizer.b1", "=adam_beta1"),
  Flag("optimizer.b2", "=adam_beta2"),
  Flag("optimizer.clip_norm", "=clip_grad", "clip_grad > 0"),
  Flag("steps", "=num_rollout", "num_rollout"),
  Flag("seed", "=rollout_seed"),
  Flag("model.path", "=hf_checkpoint", "hf_checkpoint"),
  Flag("data.path", "=prompt_data", "prompt_data"),
  Flag("data.prompt", "=input_key"),
  Flag("data.answer", "=label_key", "label_key"),
  Flag("data.chat", "=True if apply_chat_template else False"),
  Flag("eval.samples", "=n_samples_per_eval_prompt"),
  Flag("eval.temperature", "=float(rollout_temperature if eval_temperature is None else eval_temperature)"),
  Flag("eval.top_p", "=eval_top_p", "eval_top_p"),
  Flag("eval.top_k", "=max(0, eval_top_k)", "eval_top_k"),
  Flag("eval.max_tokens", "=eval_max_response_len", "eval_max_response_len"),
  Flag("eval.every", "=eval_interval", "eval_interval"),
  Flag("checkpoint.every", "=save_interval", "save_interval"),
)  # fmt: skip

WORDS = (
  Word("advantage_estimator", "it chooses ratio and surrogate as well", "advantage, ratio and surrogate are "
       "three "
       "slots", "advantage_estimator in ('gspo', 'cispo')"),
  Word("eps_clip eps_clip_high", "CISPO's weight lies between 1 - eps_clip and 1 + eps_clip_high",
       "w_min and w_max are the bounds themselves; as published there is no w_min",
       "advantage_estimator == 'cispo'"),
  Word("calculate_per_token_loss", "without it each completion is averaged first, and with it every token "
       "counts "
       "alike, GSPO's too", "those are sequence_mean and token_mean"),
  Word("calculate_per_token_loss", "denominators are those of the rollout, and rejected tokens stay in them",
       "they are those of the optimiser batch, and stay, too, without renormalize", "updates > 1",
       remains=True),
  Word("advantage_estimator", "groups of equal rewards are divided by 1e-6, so that rounding can survive",
       "their advantages are 0", "grouped and not disable_grpo_std_normalization", remains=True),
  Word("kl_loss_type", "k1 is the default, which in a loss has no gradient in expectation",
       "kl_k1 is the same; kl_k2 has that of the KL", "kl and kl_loss_type == 'k1'"),
  Word("kl_loss_type", "'low_var_kl' is bounded by 10, and 'k3' is not", "kl_k3 is not bounded",
       "kl and kl_loss_type == 'low_var_kl'", remains=True),
  Word("use_unbiased_kl", "KL is multiplied by the ratio, with gradient", "that is kl_k3_corrected or "
       "kl_k1_corrected", "kl and use_unbiased_kl"),
  Word("entropy_coef", "the bonus is aggregated as the loss is", "it is a mean over tokens, always",
       "entropy_coef and not calculate_per_token_loss", remains=True),
  Word("tis_clip_low", "weights are also bounded from below", "truncated_is bounds them from above only",
       "use_tis and tis_clip_low"),
  Word("opsm_delta", "the distance is to pi_old, and 1e-4 unless set", "anchor = 'old' is that; 'sampler' is "
       "the "
       "paper's", "use_opsm"),
  Word("dynamic_sampling_filter_path", "the usual filter keeps groups whose rewards differ",
       "groups are mixed by accuracy", "dynamic_sampling_filter_path", remains=True),
  Word("n_samples_per_prompt", "a group of one has no standard deviation, and its advantage is NaN",
       "its advantage is 0", "n_samples_per_prompt == 1 and grouped and not disable_grpo_std_normalization",
       remains=True),
  Word("rollout_max_response_len", "truncated is what the engine ended for its length",
       "it is what did not sample an EOS", "rollout_max_response_len"),
  Word("global_batch_size", "it counts completions of an update", "updates_per_rollout counts updates",
       "global_batch_size"),
  Word("lr_warmup_iters", "iterations are optimiser steps", "so are optimizer.warmup_steps",
       "lr_warmup_iters"),
)  # fmt: skip

GAPS = (
  Gap("rollout_batch_size", "slime requires it; config.rollout.prompts has the recipe's number",
      "not rollout_batch_size"),
  Gap("rollout_max_response_len", "config.rollout.max_tokens has the recipe's number",
      "not rollout_max_response_len"),
  Gap("global_batch_size", "rollout_batch_size * n_samples_per_prompt is no multiple of it",
      "global_batch_size and not num_steps_per_rollout and samples % global_batch_size"),
  Gap("advantage_estimator", "it needs a critic, and none is here; the flags have the z-score in its place",
      "advantage_estimator == 'ppo'"),
  Gap("loss_type", "write the function and name it in a slot (docs/new_variant.md)", "loss_type != "
      "'policy_loss'"),
  Gap("custom_advantage_function_path", "write it as config.objective.advantage.fn = my.module:function",
      "custom_advantage_function_path"),
  Gap("custom_pg_loss_reducer_function_path", "Dr. GRPO's is config.objective.aggregate = {'fn': 'constant', "
      "'budget': ...}; another one is a function of that slot", "custom_pg_loss_reducer_function_path"),
  Gap("custom_reward_post_process_path", "write it as config.objective.advantage.fn = my.module:function",
      "custom_reward_post_process_path"),
  *(Gap(key, "a function of one's own that may change anything; say what it does in the slots",
  key) for key in (
    "custom_convert_samples_to_train_data_path", "rollout_all_samples_process_path",
    "custom_megatron_before_log_prob_hook_path", "custom_megatron_before_train_step_hook_path",
  )),
  Gap("disable_compute_advantages_and_returns", "advantages are always computed",
      "disable_compute_advantages_and_returns"),
  Gap("custom_tis_function_path", "config.objective.correct has icepop, masked_is, geometric_rejection, "
      "worst_token and others; none is chosen", "custom_tis_function_path"),
  Gap("tis_clip_low", "truncation bounds weights from above only", "use_tis and tis_clip_low"),
  Gap("kl_loss_type", "there is no corrected k2; the flags have the plain one",
      "kl and kl_loss_type == 'k2' and use_unbiased_kl"),
  Gap("kl_coef", "KL in the reward is for reinforce_plus_plus", "kl_coef and not returns"),
  Gap("gamma", "completions are not discounted", "gamma != 1"),
  Gap("lambd", "there is no critic whose errors it would weigh", "lambd != 1"),
  Gap("rollout_top_p", "what truncation keeps is recorded, up to 512 tokens; set config.rollout.top_k to a "
      "bound beside config.rollout.top_p",
      "rollout_top_p not in (1, None) and not 0 < (rollout_top_k or 0) <= 512"),
  Gap("rollout_top_k", "at most 512 tokens of a kept set are recorded", "(rollout_top_k or 0) > 512"),
  Gap("rollout_stop", "completions end at an end token", "rollout_stop"),
  Gap("rollout_max_context_len", "config.data.prompt_budget and config.rollout.max_tokens bound the two "
      "parts",
      "rollout_max_context_len"),
  Gap("rollout_shuffle", "prompts are shuffled", "not rollout_shuffle"),
  Gap("dynamic_sampling_filter_path", "a filter of one's own is a function of config.objective.select; the "
      "flags "
      "have the groups whose accuracies differ",
      "dynamic_sampling_filter_path and 'nonzero_std' not in dynamic_sampling_filter_path"),
  Gap("over_sampling_batch_size", "a refill draws rollout.prompts prompts at a time",
      "over_sampling_batch_size"),
  Gap("rollout_sample_filter_path", "config.objective.select is where tokens are left out",
      "rollout_sample_filter_path"),
  Gap("buffer_filter_path", "no completions are kept for later", "buffer_filter_path"),
  Gap("partial_rollout", "config.rollout.in_flight, with config.staleness, goes on by the newest policy",
      "partial_rollout"),
  Gap("custom_generate_function_path", "config.env names an environment", "custom_generate_function_path"),
  Gap("num_epoch", "set config.steps = rows of the dataset * epochs / rollout.prompts", "not num_rollout"),
  Gap("use_opd", "configs/distill.py has it: set config.objective.rescale = {'fn': 'opd', ...} and "
      "config.teacher.path; the flags have none", "use_opd"),
  Gap("optimizer", "config.optimizer.fn is adamw, muon, adafactor or sgd", "optimizer != 'adam'"),
  Gap("lr_decay_style", "the learning rate is constant after warm-up; Megatron's default decays it linearly",
      "lr_decay_style != 'constant'"),
  Gap("lr_warmup_fraction", "set config.optimizer.warmup_steps", "lr_warmup_fraction"),
  Gap("adam_eps", "it is 1e-8", "adam_eps != 1e-8"),
  Gap("clip_grad", "clipping cannot be turned off; set config.optimizer.clip_norm high", "clip_grad <= 0"),
  Gap("attention_dropout", "models have no dropout; Megatron's default is 0.1", "attention_dropout"),
  Gap("hidden_dropout", "models have no dropout; Megatron's default is 0.1", "hidden_dropout"),
  Gap("rm_type", "config.reward.accuracy has math:equivalent; see docs/slots.md for others",
      "rm_type and rm_type not in ('math', 'deepscaler', 'dapo')"),
  Gap("custom_rm_path", "name it as config.reward.NAME.fn = my.module:function; its signature is another",
      "custom_rm_path"),
  Gap("rm_url", "rewards are functions; one of your own may ask an address", "rm_url"),
  Gap("group_rm", "a reward that takes `group` sees all of a prompt's completions", "group_rm"),
  Gap("reward_key", "rewards return numbers", "reward_key"),
  Gap("enable_mtp_training", "models have no further heads", "enable_mtp_training"),
)  # fmt: skip

APART = {
  "of logging, debugging and profiling; see config.log": "use_wandb wandb_* use_tensorboard tb_* log_* "
  "disable_wandb_random_suffix get_mismatch_metrics use_rollout_entropy debug_* load_debug_* save_debug_* "
  "dump_details memory_* record_memory_history profile_* ci_* check_weight_update_equal "
  "custom_*_log_function_path "
  "load_forge_rollout_data num_layers hidden_size",
  "of folders and saving; see --workdir and config.checkpoint": "ref_load ref_ckpt_step load save save_hf "
  "async_save no_save_optim no_load_optim no_load_rng finetune start_rollout_id",
  "of devices, memory and speed, which change no number here; see config.mesh, config.microbatches and "
  "config.remat":
  "actor_num_* rollout_num_* num_gpus_per_node colocate offload* distributed_* train_backend train_env_vars "
  "tensor_model_parallel_size sequence_parallel pipeline_model_parallel_size context_parallel_size "
  "expert_model_parallel_size expert_tensor_parallel_size recompute_* micro_batch_size "
  "use_dynamic_batch_size "
  "*max_tokens_per_gpu balance_* data_pad_size_multiplier log_probs_chunk_size "
  "accumulate_allreduce_grads_in_fp32 "
  "attention_softmax_in_fp32 attention_backend update_weight* release_train allgather_cp keep_old_actor "
  "optimizer_cpu_offload overlap_* use_precision_aware_optimizer use_stateless_adam reset_optimizer_states "
  "decoder_last_pipeline_num_layers moe_token_dispatcher_type moe_enable_deepep qwen_gdn_backend "
  "megatron_* custom_megatron_init_path custom_update_weight_post_write_path http_proxy use_distributed_post",
  "of the engine that samples; here it is one, in the process": "sglang_* rollout_external* rollout_health_* "
  "use_fault_tolerance rollout_skip_special_tokens rollout_stop_token_ids rollout_function_path "
  "rollout_data_* rollout_sample_hook_path rollout_buffer_url rollout_task_type fetch_trajectory_retry_times "
  "min_batch_collection_ratio",
  "of loading data and model": "metadata_key tool_key multimodal_keys apply_chat_template_kwargs "
  "data_source_path "
  "disable_rollout_global_dataset model_name padded_vocab_size custom_config_path custom_model_provider_path "
  "loss_mask_type only_train_params_name_list freeze_*",
  "parameters of parts that are off or have no counterpart": "value_clip num_critic_only_steps opd_* mtp_*",
  "of evaluation; see config.eval": "eval_prompt_data eval_config eval_function_path skip_eval_before_train "
  "eval_*_key eval_max_prompt_len eval_max_context_len eval_min_new_tokens",
}  # fmt: skip

PEER = Peer("slime", "624b824a", KEYS, DERIVED, FLAGS, WORDS, GAPS, APART, foreign="Megatron or SGLang")
