"""What a peer is asked for in a case: the arguments of its config that name the case's formula.

Plain Python without imports of ours: peers' interpreters read it too.  Keys are those of `grpojax port`.
"""

OFF = 1e9  # a bound that nothing reaches, where a peer cannot turn one off
BESIDE = ("components", "pref", "divergence")  # losses that are more than a policy term


class Lacks(Exception):
  """The peer has no such formula; the text says what of it."""


def trl(case: dict) -> dict:
  """Returns arguments of GRPOConfig.  Raises Lacks."""
  hyper = policy_term(case)
  clip, agg = hyper["clip"], hyper["agg"]["kind"]
  loss_type = _trl_loss_type(clip["kind"], agg)
  rows = len(case["mask"])
  config = dict(loss_type=loss_type, num_generations=_group(case), per_device_train_batch_size=rows)
  if clip.get("anchor", "old") != "old" and clip["kind"] != "vespo":
    raise Lacks("a ratio to the sampler's policy")
  if clip["kind"] == "ppo":
    config |= dict(epsilon=clip["eps_low"], epsilon_high=clip["eps_high"], delta=clip.get("dual_c"))
  elif clip["kind"] == "gmpo":
    config |= dict(epsilon=clip["eps_low"], epsilon_high=clip["eps_high"])
  elif clip["kind"] == "cispo":
    if clip.get("w_min"):
      raise Lacks("a lower bound of CISPO's weight")
    config |= dict(epsilon_high=clip["w_max"])
  elif clip["kind"] == "sapo":
    config |= dict(sapo_temperature_pos=clip["tau_pos"], sapo_temperature_neg=clip["tau_neg"])
  else:
    config |= {f"vespo_{key}": clip[key] for key in ("k_pos", "lambda_pos", "k_neg", "lambda_neg")}
    if clip.get("with_mismatch"):
      config |= _trl_weights("token_truncate", OFF)
  if hyper["ratio"] == "sequence":
    config |= dict(importance_sampling_level="sequence")
  elif hyper["ratio"] not in ("token", "geo_mean"):
    raise Lacks(f"the ratio {hyper['ratio']}")
  if agg == "constant":
    config |= dict(max_completion_length=hyper["agg"]["norm_len"])
  return config | _trl_kl(hyper["kl"]) | _trl_mismatch(hyper["mismatch"])


def trl_advantage(case: dict) -> dict:
  """Returns the arguments of GRPOConfig for the case's advantages.  Raises Lacks."""
  adv = case["hyper"]["adv"]
  known = dict(grpo="group", dr_grpo="none", group_mean_batch_std="batch")
  if case["group_size"] == 1:
    raise Lacks("a group of one")
  if adv["kind"] in known and "valid_rows" not in adv and case["hyper"]["kl"]["where"] != "reward":
    return dict(scale_rewards=known[adv["kind"]])
  if adv["kind"] == "gdpo" and adv["batch"] == "rows":
    return dict(multi_objective_aggregation="normalize_then_sum", reward_weights=list(adv["weights"]))
  raise Lacks(f"the advantage {adv['kind']}")


def verl(case: dict) -> dict:
  """Returns keys of verl's config.  Raises Lacks."""
  hyper = policy_term(case)
  clip, agg = hyper["clip"], hyper["agg"]
  modes = {
    "token-mean": "token-mean",
    "seq-mean-token-mean": "seq-mean-token-mean",
    "seq-mean-token-sum": "seq-mean-token-sum",
    "constant": "seq-mean-token-sum-norm",
  }
  if agg["kind"] not in modes:
    raise Lacks(f"the aggregation {agg['kind']}")
  config = {"rollout.n": _group(case), "actor.loss_agg_mode": modes[agg["kind"]]}
  if agg["kind"] == "constant":
    config["actor.loss_scale_factor"] = agg["norm_len"]
  if clip.get("anchor", "old") == "rollout":
    config["algorithm.rollout_correction.bypass_mode"] = True
  elif clip.get("anchor", "old") != "old":
    raise Lacks("a policy between the sampler's and the learner's")
  return config | _verl_loss(hyper, clip) | _verl_kl(hyper["kl"]) | _verl_mismatch(hyper["mismatch"])


def verl_advantage(case: dict) -> dict:
  """Returns the keys of verl's config for the case's advantages.  Raises Lacks."""
  adv, kl = case["hyper"]["adv"], case["hyper"]["kl"]
  known = dict(
    grpo="grpo", dr_grpo="grpo", rloo="rloo", opo="opo", gpg="gpg", reinforce_pp="reinforce_plus_plus",
    reinforce_pp_baseline="reinforce_plus_plus_baseline",
  )  # fmt: skip
  if adv["kind"] == "gdpo" and adv["batch"] == "tokens" and "reward_valid" not in case["extra"]:
    _all_scored(case)
    return {"algorithm.adv_estimator": "gdpo", "algorithm.gdpo_reward_weights": list(adv["weights"])}
  if adv["kind"] not in known or "valid_rows" in adv:
    raise Lacks(f"the advantage {adv['kind']}")
  _all_scored(case)
  config = {"algorithm.adv_estimator": known[adv["kind"]]}
  if adv["kind"] == "dr_grpo":
    config["algorithm.norm_adv_by_std_in_grpo"] = False
  if kl["where"] == "reward":
    config |= {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": kl["coef"]}
  return config


def tunix(case: dict) -> dict:
  """Returns fields of Tunix' GRPOConfig, and what its loss reads beside them.  Raises Lacks."""
  hyper = policy_term(case)
  clip, agg, kl = hyper["clip"], hyper["agg"]["kind"], hyper["kl"]
  modes = {
    "token-mean": "token-mean",
    "seq-mean-token-mean": "sequence-mean-token-mean",
    "seq-mean-token-sum": "seq-mean-token-sum",
    "constant": "sequence-mean-token-scale",
  }
  if agg not in modes:
    raise Lacks(f"the aggregation {agg}")
  if clip["kind"] != "ppo" or hyper["ratio"] not in ("token", "sequence_token", "sequence"):
    raise Lacks(f"the surrogate {clip['kind']} of the ratio {hyper['ratio']}")
  if clip.get("anchor", "old") != "old" or hyper["mismatch"]["kind"] != "none":
    raise Lacks("the sampler's policy")
  config = dict(
    num_generations=_group(case),
    loss_agg_mode=modes[agg],
    loss_algo="grpo" if hyper["ratio"] == "token" else "gspo-token",
    epsilon=clip["eps_low"],
    epsilon_high=clip["eps_high"],
    epsilon_c=clip.get("dual_c"),
    beta=0.0,
  )
  if kl["where"] == "loss":
    kinds = dict(k1="kl", k2="mse_kl", k3="low_var_kl")
    if kl["est"] not in kinds or kl.get("is_correct") or kl.get("ref"):
      raise Lacks(f"the KL {kl['est']}" + (", corrected" if kl.get("is_correct") else ""))
    config |= dict(beta=kl["coef"], kl_loss_mode=kinds[kl["est"]])
  return config


def tunix_advantage(case: dict) -> dict:
  """Returns the field of Tunix' GRPOConfig for the case's advantages.  Raises Lacks."""
  adv = case["hyper"]["adv"]
  known = dict(grpo="grpo", dr_grpo="drgrpo", rloo="rloo")
  if adv["kind"] not in known or "valid_rows" in adv or case["hyper"]["kl"]["where"] == "reward":
    raise Lacks(f"the advantage {adv['kind']}")
  _all_scored(case)
  return dict(advantage_estimator=known[adv["kind"]])


def policy_term(case: dict) -> dict:
  """Returns the case's formula.  Raises Lacks where there is more than a policy term, or no log-probs."""
  hyper = case["hyper"]
  if any(key in hyper for key in BESIDE) or case.get("wrt", "logp") != "logp":
    raise Lacks("losses beside the policy term")
  return hyper


def _all_scored(case: dict) -> None:
  if not all(case.get("valid") or [True]):
    raise Lacks("a completion without a reward")


def _group(case: dict) -> int:
  """Returns G; of rows that are compared with none, all are one group, whose advantages are given."""
  if len(case["mask"]) < 2:
    raise Lacks("a group of one")
  return case["group_size"] if (case["group_size"] or 1) > 1 else len(case["mask"])


def _trl_loss_type(clip: str, agg: str) -> str:
  known = {
    ("ppo", "token-mean"): "dapo",
    ("ppo", "seq-mean-token-mean"): "grpo",
    ("ppo", "constant"): "dr_grpo",
    ("ppo", "seq-mean-token-sum"): "luspo",
    ("cispo", "token-mean"): "cispo",
    ("sapo", "seq-mean-token-mean"): "sapo",
    ("vespo", "token-mean"): "vespo",
    ("gmpo", "seq-mean-token-mean"): "grpo",  # of experimental.gmpo, which reads no loss_type
  }
  if (clip, agg) not in known:
    raise Lacks(f"{clip} with {agg}")
  return known[clip, agg]


def _trl_kl(kl: dict) -> dict:
  if kl["where"] == "loss":
    if kl["est"] != "k3" or kl.get("ref"):
      raise Lacks(f"the KL {kl['est']} in the loss")
    return dict(beta=kl["coef"], use_bias_correction_kl=bool(kl.get("is_correct")))
  return {}  # what is in the reward is in the advantages


def _trl_weights(mode: str, high: float, low: float | None = None) -> dict:
  name = "vllm_importance_sampling_"
  return {"use_vllm": True, f"{name}mode": mode, f"{name}clip_max": high, f"{name}clip_min": low}


def _trl_mismatch(mismatch: dict) -> dict:
  kind = mismatch["kind"]
  if mismatch.get("renormalize") or mismatch.get("batch_normalize"):
    raise Lacks("rejected tokens that leave the denominator, or normalised weights")
  if kind == "none":
    return {}
  if kind == "opsm":
    on_sampler = mismatch.get("anchor", "rollout") == "rollout"
    weights = _trl_weights("token_truncate", OFF) if on_sampler else {}
    switch = dict(vllm_importance_sampling_correction=False) if on_sampler else {}
    return weights | switch | dict(off_policy_mask_threshold=mismatch["delta"])
  if kind == "tis_token":
    return _trl_weights("token_truncate", mismatch["C"])
  if kind == "tis_seq":
    return _trl_weights("sequence_truncate", mismatch["C"])
  if kind == "icepop":
    return _trl_weights("token_mask", mismatch["beta"], mismatch["alpha"])
  if kind == "mis_seq" and mismatch["weight"]:
    return _trl_weights("sequence_mask", mismatch["C"], mismatch.get("C_low"))
  raise Lacks(f"the correction {kind}")


def _verl_loss(hyper: dict, clip: dict) -> dict:
  ratio, kind, mode = hyper["ratio"], clip["kind"], "actor.policy_loss.loss_mode"
  bounds = lambda low, high: {"actor.clip_ratio_low": low, "actor.clip_ratio_high": high}
  if kind == "ppo" and ratio == "token":
    range_ = bounds(clip["eps_low"], clip["eps_high"])
    return {mode: "vanilla", "actor.clip_ratio_c": clip.get("dual_c") or OFF} | range_
  if kind == "ppo" and ratio in ("sequence", "sequence_token"):
    return {mode: "gspo"} | bounds(clip["eps_low"], clip["eps_high"])
  if kind == "gmpo":
    return {mode: "geo_mean"} | bounds(clip["eps_low"], clip["eps_high"])
  if kind == "cispo":
    return {mode: "cispo"} | bounds(1 - (clip.get("w_min") or 0.0), clip["w_max"] - 1)
  if kind == "sapo":
    return {mode: "sapo", "actor.tau_pos": clip["tau_pos"], "actor.tau_neg": clip["tau_neg"]}
  if kind == "reinforce":
    return {mode: "gpg"}
  if kind in ("dppo_tv", "dppo_kl") and clip["form"] == "sg":
    range_ = bounds(clip["delta_low"], clip["delta_high"])
    return {mode: kind, "actor.clip_ratio_c": clip["C"] or OFF} | range_
  if kind == "dro":
    return {mode: "dro", "actor.policy_loss.dro_beta": clip["beta"]}
  if kind == "reinforce_is" and not clip.get("C_low") and clip.get("anchor") == "rollout":
    return {
      "trainer.use_v1": False,  # whose bypass mode has this loss
      "algorithm.rollout_correction.loss_type": "reinforce",
      "algorithm.rollout_correction.rollout_is": clip["unit"],
      "algorithm.rollout_correction.rollout_is_threshold": clip["C"],
    }
  raise Lacks(f"the surrogate {kind}" + (f" of the ratio {ratio}" if ratio != "token" else ""))


def _verl_kl(kl: dict) -> dict:
  if kl["where"] != "loss":
    return {}
  if kl["est"] not in ("k1", "k2", "k3", "k3+") or kl.get("is_correct") or kl.get("ref"):
    raise Lacks(f"the KL {kl['est']}" + (", corrected" if kl.get("is_correct") else ""))
  return {"actor.use_kl_loss": True, "actor.kl_loss_type": kl["est"], "actor.kl_loss_coef": kl["coef"]}


def _verl_mismatch(mismatch: dict) -> dict:
  kind, at = mismatch["kind"], "algorithm.rollout_correction."
  if kind == "none":
    return {}
  if kind in ("tis_token", "tis_seq"):
    unit = dict(tis_token="token", tis_seq="sequence")[kind]
    normal = bool(mismatch.get("batch_normalize"))
    found = {f"{at}rollout_is": unit, f"{at}rollout_is_threshold": mismatch["C"]}
    return found | {f"{at}rollout_is_batch_normalize": normal}
  if kind == "icepop":
    bounds = f"{mismatch['alpha']}_{mismatch['beta']}"
    return {f"{at}rollout_is": "token", f"{at}rollout_is_threshold": bounds}
  if kind == "mis_seq" and mismatch["weight"] and not mismatch.get("renormalize"):
    bounds = f"{mismatch.get('C_low') or 1e-9}_{mismatch['C']}"
    return {f"{at}rollout_is": "sequence", f"{at}rollout_is_threshold": bounds}
  if kind == "geo_rs" and not mismatch.get("token_weight"):
    return _verl_band("seq_mean_k1", mismatch["C_low"], mismatch["C"])
  if kind == "token_mask":
    return _verl_band("token_k1", mismatch["low"], mismatch["high"])
  if kind == "seq_mask" and mismatch["stat"] == "k1" and mismatch["reduce"] != "max":
    return _verl_band(f"seq_{mismatch['reduce']}_k1", mismatch.get("low") or 1e-9, mismatch["high"])
  if kind == "seq_mask" and mismatch["stat"] in ("k2", "k3") and not mismatch.get("low"):
    name = f"seq_{mismatch['reduce']}_{mismatch['stat']}"
    return {f"{at}rollout_rs": name, f"{at}rollout_rs_threshold": str(mismatch["high"])}
  raise Lacks(f"the correction {kind}")


def _verl_band(name: str, low: float, high: float) -> dict:
  """Returns a band of learner / sampler as verl writes it: of the inverse."""
  at = "algorithm.rollout_correction."
  return {f"{at}rollout_rs": name, f"{at}rollout_rs_threshold": f"{1 / high!r}_{1 / low!r}"}
