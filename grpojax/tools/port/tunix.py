"""Tunix: GRPOConfig, DAPOConfig, DrGRPOConfig, RolloutConfig and RLTrainingConfig, in Python or as YAML.

Read in the wheel of google-tunix 0.1.7; names of the YAML in its repository,
tunix/cli/base_config.yaml.  Formulas
there: tunix/rl/algo_core.py and `aggregate_loss` of tunix/rl/common.py.
"""

from grpojax.tools.port.table import Flag, Gap, Peer, Word

_BUFFER = {
  "enable": True, "overlong_buffer_length": 4096, "overlong_buffer_penalty": 1.0,
  "max_response_length": 20480,
}  # fmt: skip

KEYS = {
  "algo_variant": "grpo",
  "advantage_estimator": "grpo",
  "policy_loss_fn": "grpo",
  "loss_agg_mode": "sequence-mean-token-mean",
  "loss_algo": "grpo",
  "num_generations": 2,
  "num_iterations": 1,
  "beta": 0.04,
  "kl_loss_mode": "kl",
  "kl_clamp_value": None,
  "epsilon": 0.2,
  "epsilon_high": None,
  "epsilon_c": None,
  "dynamic_sampling": False,
  "overlong_buffer": None,
  "reward_manager": "sequence-level",
  "max_tokens_to_generate": 64,
  "max_prompt_length": 64,
  "temperature": 0.9,
  "top_p": 1.0,
  "top_k": None,
  "batch_size": None,
  "mini_batch_size": None,
  "max_steps": None,
  "gradient_accumulation_steps": None,
  "eval_every_n_steps": None,
  "actor_optimizer": None,
  "opt_type": "adamw",
  "learning_rate": None,
  "peak_value": None,
  "schedule_type": "constant",
  "warmup_steps": None,
  "b1": 0.9,
  "b2": 0.999,
  "weight_decay": None,
  "max_grad_norm": None,
  "model_id": None,
  "dataset_name": None,
  "data_type": None,
  "seed": None,
}

DERIVED = {
  "high": "epsilon if epsilon_high is None else epsilon_high",
  "pieces": "mini_batch_size or batch_size",
  "updates": "max(1, batch_size // pieces) if batch_size else 1",
  "padded": "loss_agg_mode == 'sequence-mean-token-scale'",
  "soft": "overlong_buffer and overlong_buffer.get('enable')",
  "rate": "learning_rate if peak_value is None or schedule_type == 'constant' else peak_value",
}

FLAGS = (
  Flag("rollout.prompts", "=batch_size", "batch_size"),
  Flag("rollout.group_size", "=num_generations"),
  Flag("updates_per_rollout", "=updates", "batch_size"),
  Flag("rollout.max_tokens", "=max_tokens_to_generate"),
  Flag("data.prompt_budget", "=max_prompt_length"),
  Flag("rollout.temperature", "=temperature"),
  Flag("rollout.top_k", "=top_k", "0 < (top_k or 0) <= 512"),
  Flag("rollout.top_p", "=float(top_p)", "top_p not in (1, None) and 0 < (top_k or 0) <= 512"),
  Flag("objective.advantage", {"fn": "zscore", "eps": 1e-6, "ddof": 1}, "advantage_estimator == 'grpo'"),
  Flag("objective.advantage", {"fn": "center"}, "advantage_estimator == 'drgrpo'"),
  Flag("objective.advantage", {"fn": "leave_one_out"}, "advantage_estimator == 'rloo'"),
  Flag("objective.ratio", {"fn": "sequence_token"}, "loss_algo == 'gspo-token'"),
  Flag("objective.surrogate", {"fn": "ppo_clip", "low": "=epsilon", "high": "=high"}, "epsilon_c is None"),
  Flag("objective.surrogate", {"fn": "dual_clip", "low": "=epsilon", "high": "=high", "floor": "=epsilon_c"},
       "epsilon_c is not None"),
  Flag("objective.aggregate", {"fn": "token_mean"}, "loss_agg_mode == 'token-mean'"),
  Flag("objective.aggregate", {"fn": "sequence_mean"}, "loss_agg_mode == 'sequence-mean-token-mean'"),
  Flag("objective.aggregate", {"fn": "sequence_sum"},
       "loss_agg_mode in ('seq-mean-token-sum', 'sequence-mean-token-sum-norm')"),
  Flag("objective.aggregate", {"fn": "constant", "budget": "=max_tokens_to_generate"}, "padded"),
  Flag("objective.penalty.kl", {"fn": "kl_k1", "beta": "=beta"}, "beta and kl_loss_mode == 'kl'"),
  Flag("objective.penalty.kl", {"fn": "kl_k2", "beta": "=beta"}, "beta and kl_loss_mode == 'mse_kl'"),
  Flag("objective.penalty.kl", {"fn": "kl_k3", "beta": "=beta"}, "beta and kl_loss_mode == 'low_var_kl'"),
  Flag("reference", "init", "beta"),
  Flag("reward.soft_overlong",
       {"fn": "shaping:soft_overlong", "max_tokens": "=min(max_tokens_to_generate, "
        "overlong_buffer['max_response_length'])",
        "cache": "=min(max_tokens_to_generate, overlong_buffer['overlong_buffer_length'])",
        "weight": "=float(overlong_buffer['overlong_buffer_penalty'])"}, "soft"),
  Flag("steps", "=max(1, max_steps // updates)", "max_steps"),
  Flag("eval.every", "=max(1, eval_every_n_steps // updates)", "eval_every_n_steps"),
  Flag("optimizer.learning_rate", "=rate", "rate is not None"),
  Flag("optimizer.warmup_steps", "=warmup_steps", "warmup_steps is not None and 'warmup' in schedule_type"),
  Flag("optimizer.b1", "=b1"),
  Flag("optimizer.b2", "=b2"),
  Flag("optimizer.weight_decay", "=weight_decay", "weight_decay is not None"),
  Flag("optimizer.clip_norm", "=max_grad_norm", "max_grad_norm"),
  Flag("model.path", "=model_id", "model_id"),
  Flag("seed", "=seed", "seed is not None"),
)  # fmt: skip

WORDS = (
  Word("loss_agg_mode", "the constant of Dr. GRPO is the padded width, and rows without a token do not count",
       "budget is fixed for the run, and every row counts", "padded", remains=True),
  Word("loss_agg_mode", "this 'norm' is the number of rows with a token", "that is sequence_sum",
       "loss_agg_mode == 'sequence-mean-token-sum-norm'"),
  Word("loss_algo", "'gspo-token' is GSPO-token, and its log-ratio is bounded by 10",
       "sequence_token is the same formula, bounded likewise", "loss_algo == 'gspo-token'"),
  Word("loss_algo epsilon", "the clip range is GRPO's, 0.2, unless set", "configs/gspo.py has the paper's, "
       "3e-4 and "
       "4e-4", "loss_algo == 'gspo-token' and epsilon == 0.2"),
  Word("kl_loss_mode", "'kl' is k1 and the default, which in a loss has no gradient in expectation",
       "kl_k1 is the same; kl_k2 has that of the KL", "beta and kl_loss_mode == 'kl'"),
  Word("kl_loss_mode", "k3 has the value of KL(policy to reference) and the gradient of the reverse",
       "kl_k3 is the same; kl_k2 has the gradient of its value", "beta and kl_loss_mode == 'low_var_kl'"),
  Word("advantage_estimator", "'rloo' is leave-one-out advantages in PPO's clip",
       "configs/rloo.py has the paper's, without a ratio", "advantage_estimator == 'rloo'"),
  Word("advantage_estimator", "groups of equal rewards are divided by 1e-6, so that rounding can survive",
       "their advantages are 0", "advantage_estimator == 'grpo'", remains=True),
  Word("overlong_buffer", "lengths are characters of the text", "they are tokens", "soft", remains=True),
  Word("overlong_buffer", "the punishment has no floor", "it ends at -1", "soft", remains=True),
  Word("temperature", "0.9 unless set", "1 unless set; the learner's log-probs use the same in both",
       "'temperature' not in given"),
  Word("max_steps eval_every_n_steps", "steps are updates", "they are rollouts", "updates > 1"),
  Word("loss_agg_mode", "a mean is of a microbatch where gradients are accumulated",
       "weights are made on the optimiser batch, so that microbatches only add up",
       "(gradient_accumulation_steps or 1) > 1", remains=True),
  Word("top_p top_k", "the learner's log-probs are of the whole vocabulary, so that ratios "
       "carry the mass that was kept", "they are over the set that the sampler kept, as it was recorded",
       "0 < (top_k or 0) <= 512"),
)  # fmt: skip

GAPS = (
  Gap("batch_size", "the rows of the dataset's batch are not in the file; set config.rollout.prompts, and "
      "config.updates_per_rollout = batch / mini_batch_size", "not batch_size"),
  Gap("mini_batch_size", "it does not divide batch_size", "batch_size and batch_size % pieces"),
  Gap("num_iterations", "completions are used once", "num_iterations != 1"),
  Gap("policy_loss_fn", "there is no loss of that name here", "policy_loss_fn != 'grpo'"),
  Gap("algo_variant", "there is no variant of that name here",
      "algo_variant not in ('grpo', 'dapo', 'drgrpo', 'gspo')"),
  Gap("advantage_estimator", "there is no such advantage here; the flags have the z-score in its place",
      "advantage_estimator not in ('grpo', 'drgrpo', 'rloo')"),
  Gap("reward_manager", "rewards are of completions", "reward_manager != 'sequence-level'"),
  Gap("dynamic_sampling", "Tunix 0.1.7 accepts it and does nothing; for DAPO's set "
      "config.dynamic_sampling.enabled",
      "dynamic_sampling"),
  Gap("kl_clamp_value", "KL is not bounded", "beta and kl_clamp_value is not None"),
  Gap("top_p", "what truncation keeps is recorded, up to 512 tokens; set config.rollout.top_k to a "
      "bound beside config.rollout.top_p", "top_p not in (1, None) and not 0 < (top_k or 0) <= 512"),
  Gap("top_k", "at most 512 tokens of a kept set are recorded", "(top_k or 0) > 512"),
  Gap("actor_optimizer", "an optax object; set config.optimizer", "actor_optimizer is not None"),
  Gap("learning_rate", "not in the file; config.optimizer.learning_rate has the recipe's number", "rate is "
      "None"),
  Gap("schedule_type", "the learning rate is constant after warm-up",
      "schedule_type not in ('constant', 'warmup_constant_schedule', 'constant_schedule')"),
  Gap("opt_type", "config.optimizer.fn is adamw, muon, adafactor or sgd", "opt_type not in ('adamw', "
      "'adam')"),
  Gap("max_steps", "set config.steps", "not max_steps"),
  Gap("dataset_name", "a name of TFDS, Kaggle or the hub; set config.data.path", "dataset_name"),
  Gap("data_type", "config.model.dtype is bfloat16", "data_type not in (None, 'bfloat16')"),
)  # fmt: skip

APART = {
  "of devices, memory and speed, which change no number here; see config.mesh, config.microbatches and "
  "config.remat":
  "*_micro_batch_size role_to_mesh role_to_logical_axis_rule offload_to_cpu data_sharding_axis "
  "max_inflight_computations max_seq_token_per_tpu tensor_parallel_size data_parallel_size "
  "expert_parallel_size "
  "mesh.* shape axis_names allocation_policy use_flash_attention flash_attention_block_size",
  "of the engine that samples; here it is one, in the process": "rollout_* kv_cache_size return_logprobs "
  "eos_tokens "
  "total_generation_steps vllm_config* sglang_jax_config*",
  "of logging, profiling and saving; see config.log, config.checkpoint and --workdir": "checkpoint* "
  "metrics_logging_options* profiler_options* perf_metrics_options* metrics_prefix pbar_description "
  "max_to_keep "
  "save_interval_steps project_name run_name log_dir flush_every_n_steps skip_first_n_steps profiler_steps "
  "enable_perf_* custom_export_* enable_trace_writer trace_dir",
  "of loading data, model and rewards": "rollout_config training_config model_* lora_config* "
  "intermediate_ckpt_dir "
  "tokenizer_* add_bos add_eos data_source data_directory data_module apply_chat_template_to_dataset "
  "max_target_length num_train_epochs train_fraction num_test_batches tfds_download num_batches rng_seed "
  "reward_functions verl_compatible",
  "of other algorithms, and of schedules that are not used": "critic_* reference_* rollout_model_config* "
  "optimizer_config.* ppo_config.* actor_optimizer_config gae_lambda gamma value init_value end_value "
  "warmup_ratio decay_steps use_rollout_logps max_concurrency system_prompt",
}  # fmt: skip

_DAPO = dict(
  algo_variant="dapo", loss_agg_mode="token-mean", beta=None, epsilon_high=0.28, dynamic_sampling=True,
  overlong_buffer=_BUFFER,
)  # fmt: skip
_DR_GRPO = dict(
  algo_variant="drgrpo", advantage_estimator="drgrpo", loss_agg_mode="sequence-mean-token-scale"
)
_SECTIONS = (
  "grpo_config", "rollout_config", "rl_training_config.actor_optimizer_config", "rl_training_config",
  "actor_model_config", "tokenizer_config",
)  # fmt: skip

PEER = Peer(
  "Tunix", "0.1.7", KEYS, DERIVED, FLAGS, WORDS, GAPS, APART,
  calls={
    "GRPOConfig": {}, "DAPOConfig": _DAPO, "DrGRPOConfig": _DR_GRPO, "RolloutConfig": {},
    "RLTrainingConfig": {},
    "ClusterConfig": {},
  },
  prefix={f"{section}.": "" for section in _SECTIONS},
)  # fmt: skip
