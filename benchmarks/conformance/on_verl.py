"""Replays the cases through verl's own functions.  Written for verl 0.9.1 on torch.

    python on_verl.py CASES_FOLDER         # prints a line of JSON for each case

Advantages, losses, KL, weights and aggregation are verl's, by their names in its registries; what stands here
of its trainer is the order in which `ppo_loss` of verl/workers/utils/losses.py calls them.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import asked
import numpy as np
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.workers.config import FSDPActorConfig

torch.set_default_dtype(torch.float64)
CORRECTION = "algorithm.rollout_correction."
OF_THE_ACTOR = (
  "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "tau_pos", "tau_neg", "loss_scale_factor",
  "kl_loss_type", "kl_loss_coef", "use_kl_loss", "loss_agg_mode",
)  # fmt: skip


def array(values) -> torch.Tensor:
  """Returns numbers in float64."""
  return torch.tensor(values, dtype=torch.get_default_dtype())


def on(case: dict) -> torch.Tensor:
  """Returns the mask [B, T] of valid rows."""
  return array(case["mask"]) * array(case.get("valid") or [1.0] * len(case["mask"]))[:, None]


def actor(config: dict, mask: torch.Tensor) -> FSDPActorConfig:
  """Returns verl's config of the policy, with the mini-batch's sizes as its trainer fills them in."""
  own = {key.removeprefix("actor."): value for key, value in config.items() if key.startswith("actor.")}
  made = FSDPActorConfig(
    strategy="fsdp", rollout_n=config["rollout.n"], ppo_micro_batch_size_per_gpu=1,
    **{key: own[key] for key in OF_THE_ACTOR if key in own},
  )  # fmt: skip
  object.__setattr__(made.policy_loss, "dro_beta", own.get("policy_loss.dro_beta"))
  made.global_batch_info.update(
    dp_size=1, batch_num_tokens=mask.sum(), global_batch_size=len(mask),
    loss_scale_factor=made.loss_scale_factor,
  )  # fmt: skip
  return made


def corrected(case: dict, config: dict, mask: torch.Tensor):
  """Returns (weights or None, mask without what is rejected), of pi_old against the sampler."""
  own = {key.removeprefix(CORRECTION): value for key, value in config.items() if key.startswith(CORRECTION)}
  own.pop("bypass_mode", None), own.pop("loss_type", None)
  if not own:
    return None, mask
  weights, mask, _ = rollout_corr_helper.compute_rollout_correction_and_rejection_mask(
    old_log_prob=array(case["logp_old"]), rollout_log_prob=array(case["logp_rollout"]), response_mask=mask,
    **own,
  )  # fmt: skip
  return (weights.batch["rollout_is_weights"] if weights else None), mask


def solve(case: dict, config: dict, advantages: torch.Tensor) -> dict:
  """Returns the loss and its gradient by logp."""
  logp = array(case["logp"]).requires_grad_(True)
  mask, weights = on(case), None
  bypass = config.get(CORRECTION + "bypass_mode", False)
  mode = config.get("actor.policy_loss.loss_mode", "bypass_mode")
  if not bypass:
    weights, mask = corrected(case, config, mask)
  made = actor(config, mask)  # whose number of tokens is without what was rejected
  if config.get(CORRECTION + "loss_type") == "reinforce":
    own = {key.removeprefix(CORRECTION): value for key, value in config.items() if key.startswith(CORRECTION)}
    object.__setattr__(made.policy_loss, "rollout_correction", own)
  old = array(case["logp_rollout" if bypass else "logp_old"])
  how = dict(response_mask=mask, loss_agg_mode=made.loss_agg_mode, config=made, rollout_is_weights=weights)
  loss, _ = core_algos.get_policy_loss_fn(mode)(old, logp, advantages, **how)
  if made.use_kl_loss:
    kl = core_algos.kl_penalty(logp, array(case["logp_ref"]), made.kl_loss_type)
    info = made.global_batch_info
    loss = loss + made.kl_loss_coef * core_algos.agg_loss(kl, mask, made.loss_agg_mode, **info)
  (gradient,) = torch.autograd.grad(loss, logp)
  return dict(loss=loss.item(), gradient=gradient.tolist())


def advantages_of(case: dict, config: dict) -> torch.Tensor:
  """Returns the advantages [B, T] that verl's estimator makes of the case's rewards."""
  mask, rows = on(case), len(case["mask"])
  last = mask.cumsum(1).argmax(1)
  index = np.repeat(np.arange(rows // (case["group_size"] or 1)), case["group_size"] or 1)

  def at_the_end(score):
    return torch.zeros_like(mask).index_put_((torch.arange(rows), last), array(score))

  score = case["rewards"] or [0.0] * rows
  rewards = at_the_end(score)
  if config.get("algorithm.use_kl_in_reward"):
    kl = (array(case["logp_old"]) - array(case["logp_ref"])) * mask
    rewards = rewards - config["algorithm.kl_ctrl.kl_coef"] * kl
  name, more = config["algorithm.adv_estimator"], {}
  if name == "gdpo":
    parts = np.asarray(case["extra"]["rewards_k"], dtype=float)
    keys = [f"part_{k}" for k in range(parts.shape[1])]
    lengths = torch.cat([torch.ones(rows, 1), mask], dim=1)
    more = dict(
      non_tensor_batch=dict(zip(keys, parts.T, strict=True)),
      batch=dict(prompts=torch.zeros(rows, 1), attention_mask=lengths.long()),
    )
    weights = config["algorithm.gdpo_reward_weights"]
    algorithm = AlgoConfig(adv_estimator=name, gdpo_reward_keys=keys, gdpo_reward_weights=weights)
  else:
    algorithm = AlgoConfig(adv_estimator=name)
  if name == "grpo":
    more = dict(norm_adv_by_std_in_grpo=config.get("algorithm.norm_adv_by_std_in_grpo", True))
  if name != "reinforce_plus_plus":
    more |= dict(index=index)
  estimator = core_algos.get_adv_estimator_fn(name)
  found, _ = estimator(token_level_rewards=rewards, response_mask=mask, config=algorithm, **more)
  return found * mask


def one(case: dict) -> dict:
  """Returns what verl computes: from the case's rewards (`own`), and with the case's advantages (`given`)."""
  found, config, own = {}, {}, {}
  try:
    config = asked.verl(case)
  except asked.Lacks as why:
    found["none"] = str(why)
  try:
    asked.policy_term(case)
    own = asked.verl_advantage(case)
    advantages = advantages_of(case, own)
    found["advantages"] = advantages.tolist()
  except asked.Lacks as why:
    found["no_advantage"] = str(why)
  if config:
    stored = array(case.get("advantages") or case["expected_advantages"])
    found |= dict(asked=config | own, given=solve(case, config, stored))
    if own:
      found |= dict(own=solve(case, config, advantages))
  return found


def main(cases: str) -> None:
  """Prints the versions, and then what verl computes of each case."""
  versions = {name: importlib.metadata.version(name) for name in ("verl", "torch")}
  out, sys.stdout = sys.stdout, sys.stderr
  print(json.dumps(dict(versions=versions)), file=out, flush=True)
  for path in sorted(Path(cases).glob("*.json")):
    for case in json.loads(path.read_text()):
      print(json.dumps({case["name"]: one(case)}), file=out, flush=True)


if __name__ == "__main__":
  main(sys.argv[1])
