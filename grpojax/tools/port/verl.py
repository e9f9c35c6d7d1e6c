"""verl's PPO trainer: keys and defaults of ppo_trainer.yaml with the FSDP engine.

Read in the wheel of verl 0.9.1.  Formulas there: verl/trainer/ppo/core_algos.py,
rollout_corr_helper.py beside it
and `ppo_loss` of verl/workers/utils/losses.py.  `actor.`, `rollout.`, `model.` and `ref.` stand for
`actor_rollout_ref.actor.` and so on.
"""

from grpojax.tools.port.table import Flag, Peer
from grpojax.tools.port.verl_differences import GAPS, WORDS

KEYS = {
  "data.train_batch_size": 1024,
  "data.gen_batch_size": None,
  "data.max_prompt_length": 512,
  "data.max_response_length": 512,
  "data.filter_overlong_prompts": False,
  "data.truncation": "error",
  "data.train_files": None,
  "data.val_files": None,
  "data.prompt_key": "prompt",
  "data.shuffle": True,
  "data.seed": None,
  "rollout.n": 1,
  "rollout.temperature": 1.0,
  "rollout.top_p": 1,
  "rollout.top_k": -1,
  "rollout.do_sample": True,
  "rollout.val_kwargs.n": 1,
  "rollout.val_kwargs.temperature": 0,
  "rollout.val_kwargs.top_p": 1.0,
  "rollout.val_kwargs.top_k": -1,
  "rollout.val_kwargs.do_sample": False,
  "rollout.multi_turn.enable": False,
  "rollout.over_sample_rate": 0,
  "rollout.enable_rollout_routing_replay": False,
  "rollout.calculate_log_probs": True,
  "algorithm.adv_estimator": "gae",
  "algorithm.norm_adv_by_std_in_grpo": True,
  "algorithm.gamma": 1.0,
  "algorithm.lam": 1.0,
  "algorithm.use_kl_in_reward": False,
  "algorithm.kl_penalty": "kl",
  "algorithm.kl_ctrl.type": "fixed",
  "algorithm.kl_ctrl.kl_coef": 0.001,
  "algorithm.kl_ctrl.horizon": 10000,
  "algorithm.kl_ctrl.target_kl": 0.1,
  "algorithm.filter_groups.enable": False,
  "algorithm.filter_groups.metric": "reward",
  "algorithm.filter_groups.max_num_gen_batches": 0,
  "algorithm.use_pf_ppo": False,
  "algorithm.gdpo_reward_keys": None,
  "algorithm.gdpo_reward_weights": None,
  "algorithm.rollout_correction.rollout_is": None,
  "algorithm.rollout_correction.rollout_is_threshold": 2.0,
  "algorithm.rollout_correction.rollout_rs": None,
  "algorithm.rollout_correction.rollout_rs_threshold": None,
  "algorithm.rollout_correction.bypass_mode": False,
  "algorithm.rollout_correction.loss_type": "ppo_clip",
  "algorithm.rollout_correction.rollout_is_batch_normalize": False,
  "actor.policy_loss.loss_mode": "vanilla",
  "actor.policy_loss.dro_beta": None,
  "actor.clip_ratio": 0.2,
  "actor.clip_ratio_low": 0.2,
  "actor.clip_ratio_high": 0.2,
  "actor.clip_ratio_c": 3.0,
  "actor.tau_pos": 1.0,
  "actor.tau_neg": 1.05,
  "actor.loss_agg_mode": "token-mean",
  "actor.loss_scale_factor": None,
  "actor.entropy_coeff": 0,
  "actor.use_kl_loss": False,
  "actor.kl_loss_coef": 0.001,
  "actor.kl_loss_type": "low_var_kl",
  "actor.ppo_mini_batch_size": 256,
  "actor.ppo_epochs": 1,
  "actor.grad_clip": 1.0,
  "actor.optim.optimizer": "AdamW",
  "actor.optim.lr": 1e-6,
  "actor.optim.lr_warmup_steps": -1,
  "actor.optim.lr_warmup_steps_ratio": 0.0,
  "actor.optim.lr_scheduler_type": "constant",
  "actor.optim.warmup_style": None,
  "actor.optim.weight_decay": 0.01,
  "actor.optim.betas": [0.9, 0.999],
  "actor.optim.clip_grad": 1.0,
  "actor.megatron.router_replay.mode": "disabled",
  "actor.qat.enable": False,
  "model.path": None,
  "model.lora_rank": 0,
  "model.lora_alpha": 16,
  "model.lora.rank": 0,
  "model.lora.alpha": 32,
  "model.target_modules": "all-linear",
  "reward.reward_kwargs.overlong_buffer_cfg.enable": False,
  "reward.reward_kwargs.overlong_buffer_cfg.len": 0,
  "reward.reward_kwargs.overlong_buffer_cfg.penalty_factor": 1.0,
  "reward.reward_kwargs.max_resp_len": None,
  "reward.custom_reward_function.path": None,
  "reward.custom_reward_function.name": "compute_score",
  "reward.reward_manager.name": "naive",
  "reward.reward_model.enable": False,
  "trainer.total_training_steps": None,
  "trainer.total_epochs": 30,
  "trainer.test_freq": -1,
  "trainer.save_freq": -1,
  "trainer.max_actor_ckpt_to_keep": None,
  "trainer.experiment_name": "gsm8k",
  "trainer.use_v1": True,
  "trainer.v1.trainer_mode": "sync",
  "distillation.enabled": False,
}

DERIVED = {
  "estimator": "algorithm.adv_estimator",
  "low": "actor.clip_ratio if actor.clip_ratio_low is None else actor.clip_ratio_low",
  "high": "actor.clip_ratio if actor.clip_ratio_high is None else actor.clip_ratio_high",
  "bypass": "algorithm.rollout_correction.bypass_mode",
  "weighs": "algorithm.rollout_correction.rollout_is",
  "chosen_by_bypass": "bypass and not trainer.use_v1",
  "loss": "actor.policy_loss.loss_mode if not chosen_by_bypass else 'vanilla'"
  " if algorithm.rollout_correction.loss_type == 'ppo_clip' else 'reinforce'",
  "threshold": "str(algorithm.rollout_correction.rollout_is_threshold).split('_')",
  "rejects": "algorithm.rollout_correction.rollout_rs or ''",
  "bounds": "str(algorithm.rollout_correction.rollout_rs_threshold).split('_')",
  "banded": "rejects.endswith('k1') and ',' not in rejects and len(bounds) == 2",
  "one_sided": "rejects[-2:] in ('k2', 'k3') and ',' not in rejects and rejects[:4] == 'seq_'",
  "updates": "max(1, data.train_batch_size // actor.ppo_mini_batch_size)",
  "grouped": "estimator in ('grpo', 'grpo_vectorized')",
  "returns": "estimator == 'reinforce_plus_plus'",
  "mode": "'seq-mean-token-mean' if loss == 'sapo' else actor.loss_agg_mode",
  "budget": "actor.loss_scale_factor or data.max_response_length",
  "kl_k1": "algorithm.use_kl_in_reward and algorithm.kl_penalty in ('kl', 'k1')",
  "warmup": "actor.optim.lr_warmup_steps if (actor.optim.lr_warmup_steps or 0) > 0 else"
  " int(actor.optim.lr_warmup_steps_ratio * (trainer.total_training_steps or 0))",
  "schedule": "actor.optim.warmup_style or actor.optim.lr_scheduler_type",
  "buffer": "reward.reward_kwargs.overlong_buffer_cfg.enable",
}

_KL = (("kl_k1", "'kl', 'k1'"), ("kl_k2", "'mse', 'k2', 'k1+', 'kl+', 'k2+', 'mse+'"),
       ("kl_k3", "'low_var_kl', 'k3'"), ("kl_k3_plus", "'k3+', 'low_var_kl+'"))  # fmt: skip
_REJECT = "not bypass and "

FLAGS = (
  Flag("rollout.prompts", "=data.train_batch_size"),
  Flag("rollout.group_size", "=rollout.n"),
  Flag("updates_per_rollout", "=updates"),
  Flag("rollout.max_tokens", "=data.max_response_length"),
  Flag("rollout.temperature", "=rollout.temperature"),
  Flag("rollout.top_k", "=rollout.top_k", "0 < (rollout.top_k or 0) <= 512"),
  Flag("rollout.top_p", "=float(rollout.top_p)",
       "rollout.top_p not in (1, None) and 0 < (rollout.top_k or 0) <= 512"),
  Flag("data.prompt_budget", "=data.max_prompt_length"),
  Flag("data.overlong_prompts", "='drop' if data.filter_overlong_prompts else 'error'",
       "data.filter_overlong_prompts or data.truncation == 'error'"),
  Flag("data.path", "=data.train_files if str(data.train_files)[:1] != '[' else data.train_files[0]",
       "data.train_files and not (str(data.train_files)[:1] == '[' and len(data.train_files) > 1)"),
  Flag("data.test_path", "=data.val_files if str(data.val_files)[:1] != '[' else data.val_files[0]",
       "data.val_files and not (str(data.val_files)[:1] == '[' and len(data.val_files) > 1)"),
  Flag("data.prompt", "=data.prompt_key"),
  Flag("seed", "=data.seed", "data.seed is not None"),
  # advantages
  Flag("objective.advantage", {"fn": "zscore", "eps": 1e-6, "ddof": 1},
       "grouped and algorithm.norm_adv_by_std_in_grpo"),
  Flag("objective.advantage", {"fn": "center"}, "grouped and not algorithm.norm_adv_by_std_in_grpo"),
  Flag("objective.advantage", {"fn": "leave_one_out"}, "estimator in ('rloo', 'rloo_vectorized')"),
  Flag("objective.advantage", {"fn": "opo"}, "estimator == 'opo'"),
  Flag("objective.advantage", {"fn": "center"}, "estimator in ('gpg', 'reinforce_plus_plus_baseline')"),
  Flag("objective.rescale", {"fn": "gpg"}, "estimator == 'gpg'"),
  Flag("objective.advantage", {"fn": "return_to_go"}, "returns and not kl_k1"),
  Flag("objective.advantage", {"fn": "return_to_go", "beta": "=algorithm.kl_ctrl.kl_coef"}, "returns and "
       "kl_k1"),
  Flag("objective.rescale", {"fn": "whiten", "ddof": 1, "eps": 1e-8},
       "estimator in ('reinforce_plus_plus', 'reinforce_plus_plus_baseline', 'gdpo')"),
  Flag("objective.advantage", {"fn": "gdpo", "eps": 1e-6, "ddof": 1}, "estimator == 'gdpo'"),
  # ratio and surrogate
  Flag("objective.surrogate",
       {"fn": "dual_clip", "low": "=low", "high": "=high", "floor": "=actor.clip_ratio_c"}, "loss == "
       "'vanilla'"),
  Flag("objective.ratio", {"fn": "sequence_token"}, "loss == 'gspo'"),
  Flag("objective.surrogate", {"fn": "ppo_clip", "low": "=low", "high": "=high"}, "loss == 'gspo'"),
  Flag("objective.surrogate", {"fn": "sapo", "tau_pos": "=actor.tau_pos", "tau_neg": "=actor.tau_neg"},
       "loss == 'sapo'"),
  Flag("objective.ratio", {"fn": "geometric", "low": "=low", "high": "=high"}, "loss == 'geo_mean'"),
  Flag("objective.surrogate", {"fn": "linear"}, "loss == 'geo_mean'"),
  Flag("objective.surrogate", {"fn": "cispo", "w_max": "=1 + high", "w_min": "=max(0.0, 1 - low)"},
       "loss == 'cispo'"),
  Flag("objective.surrogate",
       {"fn": "='' + loss", "low": "=low", "high": "=high", "w_max": "=actor.clip_ratio_c", "form": "sg"},
       "loss in ('dppo_tv', 'dppo_kl')"),
  Flag("objective.surrogate", {"fn": "reinforce"}, "loss in ('gpg', 'dro') or (loss == 'reinforce' and not "
       "weighs)"),
  Flag("objective.penalty.dro", {"fn": "log2_kl", "anchor": "old", "beta": "=actor.policy_loss.dro_beta / 2"},
       "loss == 'dro'"),
  Flag("objective.surrogate", {"fn": "cispo", "w_max": "=float(threshold[-1])", "w_min": 0.0},
       "loss == 'reinforce' and weighs"),
  Flag("objective.ratio", {"fn": "sequence_product"}, "loss == 'reinforce' and weighs == 'sequence'"),
  # aggregation
  Flag("objective.aggregate", {"fn": "token_mean"}, "mode == 'token-mean' and loss != 'geo_mean'"),
  Flag("objective.aggregate", {"fn": "sequence_mean", "rows": "all"},
       "mode == 'seq-mean-token-mean' or loss == 'geo_mean'"),
  Flag("objective.aggregate", {"fn": "sequence_sum", "rows": "all"}, "mode == 'seq-mean-token-sum'"),
  Flag("objective.aggregate", {"fn": "constant", "budget": "=budget"}, "mode == 'seq-mean-token-sum-norm'"),
  # KL, entropy, filters
  *(Flag("objective.penalty.kl", {"fn": fn, "beta": "=actor.kl_loss_coef"},
         f"actor.use_kl_loss and actor.kl_loss_type in ({kinds})") for fn, kinds in _KL),
  Flag("objective.shape.kl", {"fn": "kl_k1", "beta": "=algorithm.kl_ctrl.kl_coef"}, "kl_k1 and not returns"),
  Flag("reference", "init", "actor.use_kl_loss or kl_k1"),
  Flag("kl_control.target", "=algorithm.kl_ctrl.target_kl", "kl_k1 and algorithm.kl_ctrl.type == 'adaptive'"),
  Flag("kl_control.horizon", "=algorithm.kl_ctrl.horizon", "kl_k1 and algorithm.kl_ctrl.type == 'adaptive'"),
  Flag("objective.penalty.entropy", {"fn": "entropy_bonus", "beta": "=actor.entropy_coeff"},
       "actor.entropy_coeff"),
  Flag("dynamic_sampling.enabled", True, "algorithm.filter_groups.enable"),
  Flag("objective.select.mixed", {"fn": "mixed_groups"}, "algorithm.filter_groups.enable"),
  Flag("dynamic_sampling.max_tries", "=algorithm.filter_groups.max_num_gen_batches",
       "algorithm.filter_groups.enable and algorithm.filter_groups.max_num_gen_batches > 0"),
  Flag("reward.soft_overlong",
       {"fn": "shaping:soft_overlong", "max_tokens": "=data.max_response_length",
        "cache": "=reward.reward_kwargs.overlong_buffer_cfg.len",
        "weight": "=reward.reward_kwargs.overlong_buffer_cfg.penalty_factor"}, "buffer"),
  # sampler against learner
  Flag("objective.shape.bypass", {"fn": "bypass"}, "bypass"),
  Flag("objective.correct.tis",
       {"fn": "truncated_is", "high": "=float(threshold[-1])",
        "batch_normalize": "=algorithm.rollout_correction.rollout_is_batch_normalize"},
       "not bypass and weighs == 'token' and len(threshold) == 1"),
  Flag("objective.correct.tis",
       {"fn": "sequence_truncated_is", "high": "=float(threshold[-1])",
        "batch_normalize": "=algorithm.rollout_correction.rollout_is_batch_normalize"},
       "not bypass and weighs == 'sequence' and len(threshold) == 1"),
  Flag("objective.correct.icepop",
       {"fn": "icepop", "low": "=float(threshold[0])", "high": "=float(threshold[-1])",
        "batch_normalize": "=algorithm.rollout_correction.rollout_is_batch_normalize"},
       "not bypass and weighs == 'token' and len(threshold) == 2"),
  Flag("objective.correct.mis",
       {"fn": "masked_is", "low": "=float(threshold[0])", "high": "=float(threshold[-1])",
        "batch_normalize": "=algorithm.rollout_correction.rollout_is_batch_normalize"},
       "not bypass and weighs == 'sequence' and len(threshold) == 2"),
  Flag("objective.correct.reject",
       {"fn": "geometric_rejection", "low": "=1 / float(bounds[1])", "high": "=1 / float(bounds[0])",
        "renormalize": True}, _REJECT + "banded and rejects == 'seq_mean_k1'"),
  Flag("objective.correct.reject",
       {"fn": "masked_is", "weighted": False, "low": "=1 / float(bounds[1])", "high": "=1 / float(bounds[0])",
        "renormalize": True}, _REJECT + "banded and rejects == 'seq_sum_k1'"),
  Flag("objective.correct.reject",
       {"fn": "icepop", "weighted": False, "low": "=1 / float(bounds[1])", "high": "=1 / float(bounds[0])",
        "renormalize": True}, _REJECT + "banded and rejects == 'token_k1'"),
  Flag("objective.correct.reject",
       {"fn": "sequence_mask", "stat": "=rejects[-2:]", "reduce": "=rejects.split('_')[1]",
        "high": "=float(bounds[-1])", "renormalize": True}, _REJECT + "one_sided"),
  Flag("routing_replay", "=actor.megatron.router_replay.mode",
       "actor.megatron.router_replay.mode in ('R2', 'R3')"),
  Flag("staleness", 1, "trainer.v1.trainer_mode == 'colocate_async'"),
  # the optimiser, the model, the run
  Flag("optimizer.learning_rate", "=actor.optim.lr"),
  Flag("optimizer.warmup_steps", "=warmup"),
  Flag("optimizer.weight_decay", "=actor.optim.weight_decay"),
  Flag("optimizer.b1", "=actor.optim.betas[0]"),
  Flag("optimizer.b2", "=actor.optim.betas[1]"),
  Flag("optimizer.clip_norm",
       "=actor.grad_clip if 'actor.grad_clip' in given else actor.optim.clip_grad"),
  Flag("model.path", "=model.path", "model.path"),
  Flag("lora.rank", "=model.lora_rank", "model.lora_rank"),
  Flag("lora.alpha", "=float(model.lora_alpha)", "model.lora_rank"),
  Flag("lora.rank", "=model.lora.rank", "model.lora.rank"),  # with Megatron
  Flag("lora.alpha", "=float(model.lora.alpha)", "model.lora.rank"),
  Flag("steps", "=trainer.total_training_steps", "trainer.total_training_steps"),
  Flag("eval.samples", "=rollout.val_kwargs.n"),
  Flag("eval.temperature", "=rollout.val_kwargs.temperature if rollout.val_kwargs.do_sample else 0.0"),
  Flag("eval.top_p", "=rollout.val_kwargs.top_p", "rollout.val_kwargs.do_sample"),
  Flag("eval.top_k", "=max(0, rollout.val_kwargs.top_k)", "rollout.val_kwargs.do_sample"),
  Flag("eval.every", "=trainer.test_freq", "trainer.test_freq > 0"),
  Flag("checkpoint.every", "=trainer.save_freq", "trainer.save_freq > 0"),
  Flag("checkpoint.keep", "=trainer.max_actor_ckpt_to_keep", "trainer.max_actor_ckpt_to_keep"),
  Flag("name", "=trainer.experiment_name", "'trainer.experiment_name' in given"),
)  # fmt: skip

APART = {
  "of the critic, which none is here": "critic.* trainer.critic_warmup trainer.max_critic_ckpt_to_keep",
  "of devices, memory and speed, which change no number here; see config.mesh, config.microbatches and "
  "config.remat":
  "actor.fsdp_config.* actor.megatron.* ref.* actor.*micro_batch_size* actor.*max_token_len* "
  "actor.use_dynamic_bsz "
  "actor.strategy actor.use_torch_compile actor.use_fused_kernels actor.use_remove_padding actor.ulysses_* "
  "actor.entropy_* actor.pad_to_length* actor.veomni* actor.torchtitan* actor.use_prefix_grouper "
  "actor.shuffle "
  "actor.data_loader_seed actor.rollout_n actor.freeze_vision_tower actor.load_weight actor._target_ "
  "model.enable_* model.use_* model.fused_kernel_options.* model.tiled_mlp.* trainer.n_gpus_per_node "
  "trainer.nnodes trainer.device trainer.balance_batch actor_rollout_ref.hybrid_engine "
  "actor_rollout_ref.nccl_timeout trainer.v1.* trainer.ray_* ray_kwargs.* transfer_queue.* "
  "actor.optim.optimizer_impl actor.optim.total_training_steps actor.optim.override_optimizer_config "
  "actor.optim.min_lr_ratio actor.optim.num_cycles actor.optim.zero_indexed_step actor.optim._target_ "
  "actor.qat.* actor.calculate_* skip.* model_engine",
  "of the engine that samples; here it is one, in the process": "rollout.*",
  "of logging, profiling and saving; see config.log, config.checkpoint and --workdir": "trainer.logger "
  "trainer.project_name trainer.log_* trainer.rollout_data_dir trainer.validation_data_dir trainer.default_* "
  "trainer.resume_* trainer.del_local_* trainer.esi_* trainer.checkpoint_* trainer.val_* global_profiler.* "
  "actor.profiler.* actor.checkpoint.* hydra.* hydra trainer.timeline_json_file timeline_json_file",
  "of loading data, model and rewards": "data.tokenizer data.use_shm data.*_max_samples data.reward_fn_key "
  "data.val_batch_size data.*tool_* data.return_* data.dataloader_num_workers data.image_* data.video_key "
  "data.audio_key data.validation_shuffle data.filter_overlong_prompts_workers data.trust_remote_code "
  "data.custom_cls.* data.apply_chat_template_kwargs* data.mm_processor_kwargs* model.hf_config_path "
  "model.tokenizer_path model.trust_remote_code model.custom_chat_template model.external_lib "
  "model._target_ model.override_config* model.exclude_modules model.lora_adapter_path model.mtp.* "
  "model.lora.* reward.* "
  "reward_model.* sandbox_fusion.* defaults",
  "parameters of parts that are off or have no counterpart": "actor.policy_loss.* algorithm.pf_ppo.* "
  "distillation.* "
  "algorithm.filter_groups.* algorithm._target_ algorithm.kl_ctrl._target_ "
  "algorithm.rollout_correction._target_",
}  # fmt: skip

PEER = Peer(
  "verl", "0.9.1", KEYS, DERIVED, FLAGS, WORDS, GAPS, APART,
  prefix={
    "actor_rollout_ref.actor.": "actor.", "actor_rollout_ref.rollout.": "rollout.",
    "actor_rollout_ref.model.": "model.", "actor_rollout_ref.ref.": "ref.",
    "reward_model.reward_kwargs.": "reward.reward_kwargs.",
    "custom_reward_function.": "reward.custom_reward_function.",
    "reward_model.overlong_buffer.": "reward.reward_kwargs.overlong_buffer_cfg.",
  },
)  # fmt: skip
