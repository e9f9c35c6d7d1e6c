"""TRL's GRPOTrainer: names and defaults of GRPOConfig and of what its command line takes beside it.

Read in the wheels of trl 1.16.0 and transformers 5.24.0.  Formulas there: `_compute_loss` and
`_generate_and_score_completions` of trl/trainer/grpo_trainer.py.
"""

from grpojax.tools.port.table import Flag, Gap, Peer, Word

KEYS = {
  # how much is sampled, and how
  "num_generations": 8,
  "generation_batch_size": None,
  "steps_per_generation": None,
  "per_device_train_batch_size": 8,
  "gradient_accumulation_steps": 1,
  "num_iterations": 1,
  "max_completion_length": 512,
  "temperature": 1.0,
  "top_p": 1.0,
  "top_k": 0,
  "min_p": None,
  "repetition_penalty": 1.0,
  "generation_kwargs": None,
  "num_generations_eval": None,
  # the objective
  "loss_type": "dapo",
  "scale_rewards": "group",
  "multi_objective_aggregation": "sum_then_normalize",
  "reward_weights": None,
  "importance_sampling_level": "token",
  "epsilon": 0.2,
  "epsilon_high": None,
  "delta": None,
  "sapo_temperature_pos": 1.0,
  "sapo_temperature_neg": 1.05,
  "vespo_k_pos": 2.0,
  "vespo_lambda_pos": 3.0,
  "vespo_k_neg": 3.0,
  "vespo_lambda_neg": 2.0,
  "mask_truncated_completions": False,
  "top_entropy_quantile": 1.0,
  "off_policy_mask_threshold": None,
  "beta": 0.0,
  "use_bias_correction_kl": True,
  "sync_ref_model": False,
  "ref_model_sync_steps": 512,
  "ref_model_mixup_alpha": 0.6,
  "entropy_coef": 0.0,
  "use_adaptive_entropy": False,
  "entropy_coef_min": 0.0,
  "entropy_coef_max": 1.0,
  "entropy_coef_delta": 0.005,
  "entropy_target": 0.2,
  "use_vllm": False,
  "vllm_importance_sampling_correction": True,
  "vllm_importance_sampling_mode": "sequence_mask",
  "vllm_importance_sampling_clip_max": 3.0,
  "vllm_importance_sampling_clip_min": None,
  "vllm_importance_sampling_cap": None,
  "router_aux_loss_coef": None,
  # the optimiser
  "optim": "adamw_torch_fused",
  "learning_rate": 1e-6,
  "lr_scheduler_type": "linear",
  "warmup_steps": 0,
  "weight_decay": 0.0,
  "adam_beta1": 0.9,
  "adam_beta2": 0.999,
  "adam_epsilon": 1e-8,
  "max_grad_norm": 1.0,
  "label_smoothing_factor": 0.0,
  "neftune_noise_alpha": None,
  "max_steps": -1,
  "num_train_epochs": 3.0,
  "seed": 42,
  "data_seed": None,
  "shuffle_dataset": True,
  # precision, model, data
  "bf16": None,
  "fp16": False,
  "cast_lm_head_to_fp32": False,
  "model_name_or_path": None,
  "use_peft": False,
  "lora_r": 16,
  "lora_alpha": 32,
  "lora_dropout": 0.05,
  "lora_target_modules": None,
  "use_rslora": False,
  "use_dora": False,
  "load_in_4bit": False,
  "load_in_8bit": False,
  "dataset_name": None,
  "dataset_config": None,
  "dataset_train_split": "train",
  "reward_funcs": None,
  "reward_model_name_or_path": None,
  "max_tool_calling_iterations": None,
  # the run
  "eval_strategy": "no",
  "eval_steps": None,
  "save_steps": 500,
  "save_total_limit": None,
  "run_name": None,
}  # fmt: skip

DERIVED = {
  "accumulated": "gradient_accumulation_steps",
  "pieces": "steps_per_generation or (generation_batch_size // per_device_train_batch_size"
  " if generation_batch_size else accumulated)",
  "rollout": "generation_batch_size or per_device_train_batch_size * pieces",
  "updates": "max(1, pieces // accumulated)",
  "high": "epsilon if epsilon_high is None else epsilon_high",
  "scale": "{True: 'group', False: 'none'}.get(scale_rewards, scale_rewards)",
  "several": "multi_objective_aggregation == 'normalize_then_sum'",
  "clips": "loss_type in ('grpo', 'bnpo', 'dr_grpo', 'dapo', 'luspo')",
  "cap": "vllm_importance_sampling_clip_max if vllm_importance_sampling_cap is None"
  " else vllm_importance_sampling_cap",
  "corrects": "use_vllm and vllm_importance_sampling_correction and loss_type != 'vespo'",
  "mode": "vllm_importance_sampling_mode",
  "sequence_level": "importance_sampling_level == 'sequence'",
}

FLAGS = (
  Flag("rollout.prompts", "=rollout // num_generations"),
  Flag("rollout.group_size", "=num_generations"),
  Flag("updates_per_rollout", "=updates"),
  Flag("rollout.max_tokens", "=max_completion_length"),
  Flag("rollout.temperature", "=temperature"),
  Flag("rollout.top_k", "=top_k", "0 < (top_k or 0) <= 512"),
  Flag("rollout.top_p", "=float(top_p)", "top_p not in (1, None) and 0 < (top_k or 0) <= 512"),
  Flag("rollout.min_p", "=float(min_p)", "min_p and 0 < (top_k or 0) <= 512"),
  Flag("objective.advantage", {"fn": "zscore", "eps": 1e-4, "ddof": 1}, "scale == 'group' and not several"),
  Flag("objective.advantage", {"fn": "center"}, "scale in ('none', 'batch') and not several"),
  Flag("objective.rescale", {"fn": "batch_std", "eps": 1e-4, "ddof": 1}, "scale == 'batch' and not several"),
  Flag("objective.advantage", {"fn": "gdpo", "eps": 1e-4, "ddof": 1}, "several"),
  Flag("objective.rescale", {"fn": "batch_zscore", "eps": 1e-4, "ddof": 1}, "several"),
  Flag("objective.ratio", {"fn": "token"}, "not sequence_level and loss_type != 'vespo'"),
  Flag("objective.ratio", {"fn": "sequence"}, "sequence_level and loss_type != 'vespo'"),
  Flag("objective.ratio", {"fn": "sequence_product"}, "loss_type == 'vespo'"),
  Flag("objective.surrogate", {"fn": "ppo_clip", "low": "=epsilon", "high": "=high"}, "clips and delta is "
       "None"),
  Flag(
    "objective.surrogate",
    {"fn": "dual_clip", "low": "=epsilon", "high": "=high", "floor": "=delta"},
    "clips and delta is not None",
  ),
  Flag("objective.surrogate", {"fn": "cispo", "w_max": "=high", "w_min": 0.0}, "loss_type == 'cispo'"),
  Flag(
    "objective.surrogate",
    {"fn": "sapo", "tau_pos": "=sapo_temperature_pos", "tau_neg": "=sapo_temperature_neg"},
    "loss_type == 'sapo'",
  ),
  Flag(
    "objective.surrogate",
    {
      "fn": "vespo",
      "k_pos": "=vespo_k_pos",
      "lambda_pos": "=vespo_lambda_pos",
      "k_neg": "=vespo_k_neg",
      "lambda_neg": "=vespo_lambda_neg",
    },
    "loss_type == 'vespo'",
  ),
  Flag("objective.aggregate", {"fn": "token_mean"}, "loss_type in ('dapo', 'bnpo', 'cispo', 'vespo')"),
  Flag("objective.aggregate", {"fn": "sequence_mean", "rows": "all"}, "loss_type in ('grpo', 'sapo')"),
  Flag("objective.aggregate", {"fn": "sequence_sum", "rows": "all"}, "loss_type == 'luspo'"),
  Flag("objective.aggregate", {"fn": "constant", "budget": "=max_completion_length"}, "loss_type == "
       "'dr_grpo'"),
  Flag("objective.select.overlong", {"fn": "finished"}, "mask_truncated_completions"),
  Flag("objective.select.top", {"fn": "top_entropy", "share": "=top_entropy_quantile"},
       "top_entropy_quantile < 1"),
  Flag("objective.correct.tis", {"fn": "truncated_is", "high": "=cap"}, "corrects and mode == "
       "'token_truncate'"),
  Flag(
    "objective.correct.tis",
    {"fn": "sequence_truncated_is", "high": "=cap"},
    "corrects and mode == 'sequence_truncate'",
  ),
  Flag(
    "objective.correct.icepop",
    {"fn": "icepop", "low": "=vllm_importance_sampling_clip_min or 0.0", "high": "=cap"},
    "corrects and mode == 'token_mask'",
  ),
  Flag(
    "objective.correct.mis",
    {"fn": "masked_is", "low": "=vllm_importance_sampling_clip_min or 0.0", "high": "=cap"},
    "corrects and mode == 'sequence_mask'",
  ),
  Flag("objective.shape.bypass", {"fn": "bypass"}, "loss_type == 'vespo' and use_vllm"),
  Flag(
    "objective.veto.opsm",
    {"fn": "stale_failures", "delta": "=off_policy_mask_threshold", "anchor": "='sampler' if use_vllm else "
    "'old'"},
    "off_policy_mask_threshold is not None",
  ),
  Flag("objective.penalty.kl", {"fn": "kl_k3", "beta": "=beta"}, "beta and not use_bias_correction_kl"),
  Flag("objective.penalty.kl", {"fn": "kl_k3_corrected", "beta": "=beta"}, "beta and use_bias_correction_kl"),
  Flag(
    "objective.penalty.entropy",
    {"fn": "entropy_bonus", "beta": "=entropy_coef"},
    "entropy_coef and not use_adaptive_entropy",
  ),
  Flag("reference", "init", "beta"),
  Flag("reference_sync.every", "=max(1, ref_model_sync_steps // updates)", "beta and sync_ref_model"),
  Flag("reference_sync.rate", "=ref_model_mixup_alpha", "beta and sync_ref_model"),
  Flag("load_balance", "=router_aux_loss_coef", "router_aux_loss_coef"),
  Flag("optimizer.fn", "adamw", "optim.startswith('adamw')"),
  Flag("optimizer.fn", "adafactor", "optim == 'adafactor'"),
  Flag("optimizer.learning_rate", "=learning_rate"),
  Flag("optimizer.warmup_steps", "=int(warmup_steps)", "warmup_steps == int(warmup_steps)"),
  Flag("optimizer.weight_decay", "=weight_decay"),
  Flag("optimizer.b1", "=adam_beta1", "optim.startswith('adamw')"),
  Flag("optimizer.b2", "=adam_beta2", "optim.startswith('adamw')"),
  Flag("optimizer.clip_norm", "=max_grad_norm", "max_grad_norm > 0"),
  Flag("steps", "=max(1, max_steps // updates)", "max_steps > 0"),
  Flag("seed", "=seed"),
  Flag("model.dtype", "=('float16' if fp16 else 'bfloat16' if bf16 in (None, True) else 'float32')"),
  Flag("model.head_dtype", "float32", "cast_lm_head_to_fp32"),
  Flag("model.path", "=model_name_or_path", "model_name_or_path"),
  Flag("lora.rank", "=lora_r", "use_peft"),
  Flag("lora.alpha", "=float(lora_alpha)", "use_peft"),
  Flag(
    "lora.modules",
    "='|'.join(lora_target_modules).replace('_proj', '')",
    "use_peft and lora_target_modules and 'all-linear' not in lora_target_modules",
  ),
  Flag("data.path", "=dataset_name", "dataset_name"),
  Flag("data.subset", "=dataset_config", "dataset_config"),
  Flag("data.split", "=dataset_train_split", "dataset_train_split != 'train'"),
  Flag("eval.samples", "=num_generations_eval", "num_generations_eval"),
  Flag("eval.every", "=max(1, int(eval_steps) // updates)", "eval_steps and eval_strategy == 'steps'"),
  Flag("checkpoint.every", "=max(1, int(save_steps) // updates)", "'save_steps' in given and save_steps >= "
       "1"),
  Flag("checkpoint.keep", "=save_total_limit", "save_total_limit"),
  Flag("name", "=run_name", "run_name"),
)

WORDS = (
  Word("loss_type", "'grpo' and 'sapo' average inside each completion first, and the default, 'dapo', weighs "
       "every token alike", "those are objective.aggregate.fn = sequence_mean and token_mean"),
  Word("loss_type", "a completion without a token counts among those of the mean", "rows = 'all' counts it, "
       "too; "
       "'nonempty' is the default", "loss_type in ('grpo', 'sapo', 'luspo')"),
  Word("loss_type", "this mean is of a microbatch, and means of microbatches are averaged",
       "weights are made on the optimiser batch, so that microbatches only add up",
       "loss_type in ('grpo', 'sapo', 'bnpo', 'luspo') and accumulated > 1", remains=True),
  Word("loss_type steps_per_generation", "the denominator is the rollout's tokens by the number of its "
       "updates",
       "it is the tokens of the update's own batch", "loss_type in ('dapo', 'cispo', 'vespo') and updates > "
       "1",
       remains=True),
  Word("loss_type max_completion_length", "Dr. GRPO's constant is max_completion_length times the rows",
       "budget is that constant, and a row that is filtered out counts in both", "loss_type == 'dr_grpo'"),
  Word("scale_rewards", "the standard deviation divides by G - 1 and has 1e-4 added to it",
       "ddof is 1 and eps 1e-6 unless set", "scale == 'group' or several"),
  Word("scale_rewards", "'batch' takes the standard deviation over the generation batch",
       "batch_std takes it over the optimiser batch", "scale == 'batch' and updates > 1", remains=True),
  Word("scale_rewards", "a group of equal rewards is divided by 1e-4, so that rounding can survive",
       "its advantages are 0", "scale != 'none'", remains=True),
  Word("epsilon_high", "it is the cap of the ratio itself", "w_max is the cap; with other surrogates `high` "
       "is "
       "what 1 is exceeded by", "loss_type == 'cispo'"),
  Word("epsilon", "it is the lower bound only of those losses that clip, and CISPO has none",
       "w_min = 0 is none", "loss_type == 'cispo'"),
  Word("delta", "the ratio is bounded before the minimum is taken", "dual_clip bounds the loss of bad "
       "answers, "
       "which is the same above 1 + high", "delta is not None"),
  Word("importance_sampling_level loss_type", "completions of a sequence ratio weigh as much as they are "
       "long",
       "so they do with token_mean; GSPO as published has sequence_mean",
       "sequence_level and loss_type in ('dapo', 'bnpo', 'cispo')"),
  Word("beta use_bias_correction_kl", "k3 is multiplied by the ratio, with gradient",
       "that is kl_k3_corrected, and the plain kl_k3 has the gradient of the other KL",
       "beta and use_bias_correction_kl"),
  Word("beta use_bias_correction_kl", "the correction is the completion's ratio where that is the level",
       "kl_k3_corrected takes the token's", "beta and use_bias_correction_kl and sequence_level",
       remains=True),
  Word("beta", "k3 has the value of KL(policy to reference) and the gradient of the reverse",
       "kl_k3 is the same; kl_k2 has the gradient of its value", "beta and not use_bias_correction_kl"),
  Word("ref_model_sync_steps", "it counts optimiser steps", "reference_sync.every counts rollouts",
       "beta and sync_ref_model"),
  Word("top_entropy_quantile", "the quantile is a microbatch's, and dropped tokens stay in KL and "
       "denominators",
       "it is the optimiser batch's, and they leave both", "top_entropy_quantile < 1", remains=True),
  Word("mask_truncated_completions", "truncated is what ends in no EOS, and its reward stays in the group's "
       "mean",
       "`finished` is the same; shape.finished_only takes the reward out, too", "mask_truncated_completions"),
  Word("vllm_importance_sampling_mode", "it is on by default with vLLM", "nothing corrects unless it is "
       "asked to",
       "corrects"),
  Word("vllm_importance_sampling_mode", "rejected tokens stay in the denominators", "so they do without "
       "renormalize", "corrects and 'mask' in mode"),
  Word("max_steps warmup_steps", "steps are optimiser steps", "`steps` counts rollouts, and "
       "optimizer.warmup_steps optimiser steps", "updates > 1"),
  Word("generation_batch_size", "it counts completions", "rollout.prompts counts prompts"),
  Word("top_p top_k min_p", "the learner's log-probs are of the whole vocabulary, so that ratios "
       "carry the mass that was kept", "they are over the set that the sampler kept, as it was recorded",
       "0 < (top_k or 0) <= 512"),
)  # fmt: skip

GAPS = (
  Gap("per_device_train_batch_size", "the file does not say on how many devices; it is counted once, so "
      "multiply "
      "rollout.prompts by them", "generation_batch_size is None"),
  Gap("generation_batch_size", "it is no multiple of num_generations, which TRL refuses",
      "rollout % num_generations"),
  Gap("num_iterations", "completions are used once", "num_iterations != 1"),
  Gap("top_p", "what truncation keeps is recorded, up to 512 tokens; set config.rollout.top_k to a "
      "bound beside config.rollout.top_p", "top_p not in (1, None) and not 0 < (top_k or 0) <= 512"),
  Gap("top_k", "at most 512 tokens of a kept set are recorded", "(top_k or 0) > 512"),
  Gap("min_p", "what truncation keeps is recorded, up to 512 tokens; set config.rollout.top_k to a "
      "bound beside config.rollout.min_p", "min_p and not 0 < (top_k or 0) <= 512"),
  Gap("repetition_penalty", "the sampler's distribution is the policy's", "repetition_penalty != 1"),
  Gap("generation_kwargs", "the sampler has temperature and max_tokens", "generation_kwargs"),
  Gap("reward_weights", "set config.reward.NAME.weight of each reward", "reward_weights is not None"),
  Gap("reward_funcs", "name each function as config.reward.NAME.fn = my.module:function; its signature is "
      "another (docs/coming_from.md)", "reward_funcs is not None"),
  Gap("reward_model_name_or_path", "config.reward.NAME = {'fn': 'grpojax.rewards.learned:score', 'path': "
      "...}",
      "reward_model_name_or_path"),
  Gap("loss_type", "it is none of TRL 1.16's",
      "loss_type not in ('grpo', 'bnpo', 'dr_grpo', 'dapo', 'luspo', 'cispo', 'sapo', 'vespo')"),
  Gap("delta", "at or below 1 + epsilon_high it is TRL's own clip rule, which dual_clip is not",
      "clips and delta is not None and delta <= 1 + high"),
  Gap("vllm_importance_sampling_clip_min", "truncation bounds weights from above only",
      "corrects and 'truncate' in mode and vllm_importance_sampling_clip_min is not None"),
  Gap("vllm_importance_sampling_mode", "VESPO's weight here is the sampler's ratio, untruncated",
      "loss_type == 'vespo' and use_vllm and vllm_importance_sampling_correction"),
  Gap("use_adaptive_entropy", "the coefficient of the entropy bonus does not move", "use_adaptive_entropy"),
  Gap("optim", "config.optimizer.fn is adamw, muon, adafactor or sgd",
      "not optim.startswith('adamw') and optim != 'adafactor'"),
  Gap("lr_scheduler_type", "the learning rate is constant after warm-up; TRL's default decays it linearly to "
      "0",
      "lr_scheduler_type not in ('constant', 'constant_with_warmup')"),
  Gap("warmup_steps", "a share of all steps; set config.optimizer.warmup_steps to a number",
      "warmup_steps != int(warmup_steps)"),
  Gap("adam_epsilon", "it is 1e-8", "adam_epsilon != 1e-8"),
  Gap("max_grad_norm", "clipping cannot be turned off; set config.optimizer.clip_norm high", "max_grad_norm "
      "<= 0"),
  Gap("label_smoothing_factor", "no loss here has it", "label_smoothing_factor"),
  Gap("neftune_noise_alpha", "no noise is added to embeddings", "neftune_noise_alpha"),
  Gap("num_train_epochs", "set config.steps = rows of the dataset * epochs / rollout.prompts", "max_steps <= "
      "0"),
  Gap("data_seed", "one seed is for all", "data_seed is not None"),
  Gap("shuffle_dataset", "prompts are shuffled", "not shuffle_dataset"),
  Gap("lora_dropout", "adapters have no dropout", "use_peft and lora_dropout"),
  Gap("use_rslora", "the scale is alpha / rank", "use_rslora"),
  Gap("use_dora", "adapters are low-rank factors alone", "use_dora"),
  Gap("load_in_4bit", "the learner's weights are whole", "load_in_4bit or load_in_8bit"),
  Gap("max_tool_calling_iterations", "config.env names an environment, and config.env.turns its turns",
      "max_tool_calling_iterations is not None"),
)  # fmt: skip

APART = {
  "of logging and reports": "logging_* log_* report_to project trackio_* disable_tqdm "
  "num_completions_to_print "
  "include_num_input_tokens_seen include_for_metrics skip_memory_metrics debug",
  "of folders, saving and the hub; see --workdir, config.checkpoint and `grpojax export`": "output_dir "
  "save_* "
  "push_to_hub hub_* resume_from_checkpoint load_best_model_at_end metric_for_best_model greater_is_better "
  "enable_jit_checkpoint restore_callback_states_from_checkpoint ignore_data_skip",
  "of evaluation; see config.eval": "eval_* per_device_eval_batch_size prediction_loss_only "
  "batch_eval_metrics "
  "do_train do_eval do_predict bf16_full_eval fp16_full_eval dataset_test_split",
  "of memory and speed, which change no number here; see config.microbatches, config.remat and config.mesh":
  "gradient_checkpointing* activation_checkpointing* torch_compile* torch_empty_cache_steps "
  "auto_find_batch_size "
  "use_liger_kernel liger_kernel_config use_cache tf32 fsdp fsdp_config deepspeed ddp_* accelerator_config "
  "parallelism_config ds3_gather_for_generation local_rank use_cpu average_tokens_across_devices "
  "full_determinism pad_to_multiple_of attn_implementation cache_implementation optim_args "
  "optim_target_modules",
  "of the engine that samples; here it is one, in the process": "vllm_mode vllm_model_impl "
  "vllm_enable_sleep_mode "
  "vllm_structured_outputs_regex vllm_server_* vllm_group_port vllm_gpu_memory_utilization "
  "vllm_max_model_length vllm_tensor_parallel_size use_transformers_* "
  "transformers_continuous_batching_config",
  "of loading data and model": "dataloader_* remove_unused_columns label_names train_sampling_strategy "
  "length_column_name disable_dropout dataset_streaming ignore_bias_buffers model_init_kwargs "
  "trust_remote_code model_revision "
  "dtype chat_template_kwargs bnb_4bit_* use_bnb_nested_quant lora_target_parameters lora_modules_to_save "
  "lora_task_type lr_scheduler_kwargs",
}  # fmt: skip

PEER = Peer(
  "TRL", "1.16.0", KEYS, DERIVED, FLAGS, WORDS, GAPS, APART, calls={"GRPOConfig": {}, "ModelConfig": {},
  "ScriptArguments": {}},
)  # fmt: skip
