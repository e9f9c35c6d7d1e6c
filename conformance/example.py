"""An adapter in plain numpy: PPO's clip on token ratios, with its usual advantages and aggregations.

What a case asks for is in `hyper`, a word for each part of the formula; what is not known here is answered by
None.
"""

import numpy as np

OTHER = {"components", "pref", "divergence"}  # losses that are more than one policy term


def loss(case: dict) -> float | None:
  """Returns Σ w · max(−r A, −clip(r) A), or None for a case with anything else in it."""
  hyper = case["hyper"]
  clip, agg = hyper.get("clip", {}), hyper.get("agg", {})
  known = clip.get("kind") == "ppo" and not clip.get("anchor") and hyper["ratio"] == "token"
  plain = hyper["kl"]["where"] == hyper["mismatch"]["kind"] == "none" and not OTHER & set(hyper)
  plain = plain and case.get("wrt", "logp") == "logp"
  advantage = advantages(case, hyper["adv"]) if known and plain and not case.get("valid") else None
  mask = np.asarray(case["mask"], float)
  weight = weights(mask, agg)
  if advantage is None or weight is None:
    return None
  ratio = np.exp(np.where(mask > 0, np.asarray(case["logp"]) - np.asarray(case["logp_old"]), 0.0))
  clipped = np.clip(ratio, 1 - clip["eps_low"], 1 + clip["eps_high"])
  cost = np.maximum(-ratio * advantage, -clipped * advantage)
  if clip["dual_c"]:
    cost = np.where(advantage < 0, np.minimum(cost, -clip["dual_c"] * advantage), cost)
  return float((weight * cost).sum())


def advantages(case: dict, adv: dict) -> np.ndarray | None:
  """Returns A [B, 1] or [B, T]: given, or of the group's rewards."""
  if adv["kind"] == "given":
    return np.asarray(case.get("advantages") or case["expected_advantages"])
  if adv["kind"] not in ("grpo", "dr_grpo") or "valid_rows" in adv:
    return None
  groups = np.asarray(case["rewards"], float).reshape(-1, case["group_size"])
  centred = groups - groups.mean(1, keepdims=True)
  if adv["kind"] == "grpo" and groups.shape[1] > 1:
    centred = centred / (groups.std(1, ddof=adv["ddof"], keepdims=True) + adv["eps"])
  return np.where(np.ptp(groups, axis=1, keepdims=True) > 0, centred, 0.0).reshape(-1, 1)


def weights(mask: np.ndarray, agg: dict) -> np.ndarray | None:
  """Returns each token's share of the loss [B, T]."""
  length = mask.sum(1, keepdims=True)
  rows = len(mask) if agg.get("rows") == "all" else max((length > 0).sum(), 1)
  shares = {
    "token-mean": 1 / max(mask.sum(), 1),
    "seq-mean-token-mean": 1 / np.maximum(length, 1) / rows,
    "seq-mean-token-sum": 1 / rows,
    "constant": 1 / (len(mask) * agg.get("norm_len", 1)),
  }
  return mask * shares[agg["kind"]] if agg.get("kind") in shares else None
