"""The stored cases (tests/data/variants_cases.json), said in this project's words.

Every number in the file was computed in float64 by another program (torch autograd) and compared
with public implementations; `hyper` names what was computed.
"""

import json
from pathlib import Path

import numpy as np
from jax.tree_util import Partial

from grpojax import objective as lib
from grpojax.types import Batch

CASES = json.loads((Path(__file__).parent / "data" / "variants_cases.json").read_text())
LOSSES = {case["name"]: case for case in CASES if case["expected_loss"] is not None}
OTHERS = {case["name"]: case for case in CASES if case["expected_loss"] is None}

RATIO = dict(
  token="token",
  none="token",
  sequence="sequence",
  sequence_token="sequence_token",
  seq_product="sequence_product",
  arith_mean="arithmetic",
)
AGGREGATE = {
  "token-mean": "token_mean",
  "seq-mean-token-mean": "sequence_mean",
  "seq-mean-token-sum": "sequence_sum",
  "constant": "constant",
  "prompt-mean-token-mean": "prompt_mean",
}


def given(group):
  """Advantages that a case simply states."""
  return group.extra["given"]


def is_given(case: dict) -> bool:
  """Whether the advantages are an input; those of rows that are turns: test_objective_turns.py."""
  return case["hyper"]["adv"]["kind"] in ("given", "gigpo")


def batch_of(case: dict) -> Batch:
  """A case's arrays [B][T] as a Batch [P, G, T]."""
  mask = np.asarray(case["mask"], float)
  group_size = case["group_size"] or len(mask)
  fold = lambda x: np.reshape(x, (-1, group_size, *np.shape(x)[1:]))
  maybe = lambda key: None if case[key] is None else fold(case[key])
  rows = len(mask)
  reward = np.zeros(rows) if case["rewards"] is None else np.asarray(case["rewards"], float)
  return Batch(
    mask=fold(mask),
    reward=fold(reward),
    accuracy=fold((reward > 0.5) * 1.0),
    valid=fold(np.ones(rows, bool)),
    ended=fold(np.asarray(case["hyper"]["adv"].get("valid_rows", np.ones(rows)), bool)),
    sampler_logp=maybe("logp_rollout"),
    old_logp=maybe("logp_old"),
    ref_logp=maybe("logp_ref"),
    entropy=maybe("entropy"),
    extra=_extra(case, fold),
  )


def logp_of(case: dict):
  return np.reshape(case["logp"], np.shape(batch_of(case).mask))


def objective_of(case: dict) -> lib.Objective:
  """The config that the case's `hyper` describes, built."""
  hyper = case["hyper"]
  config = dict(
    advantage=dict(fn="raw"),
    rescale=dict(fn="identity"),
    ratio=dict(fn=RATIO.get(hyper["ratio"], "token")),
    aggregate=dict(fn=AGGREGATE[hyper["agg"]["kind"]]),
    shape={},
    correct={},
    veto={},
    penalty={},
  )
  if hyper["agg"].get("rows") == "all" and hyper["agg"]["kind"].startswith("seq"):
    config["aggregate"]["rows"] = "all"
  if "norm_len" in hyper["agg"]:
    config["aggregate"]["budget"] = hyper["agg"]["norm_len"]
  _advantage(config, hyper["adv"])
  _surrogate(config, hyper["clip"])
  _mismatch(config, hyper["mismatch"])
  _kl(config, hyper["kl"])
  if is_given(case):
    return lib.build(config)._replace(advantage=Partial(given))
  return lib.build(config)


def _extra(case: dict, fold) -> dict | None:
  if is_given(case):
    return {"given": fold(np.asarray(case.get("advantages") or case["expected_advantages"]))}
  if case["hyper"]["adv"]["kind"] == "ema_mix":
    return {"baseline": fold(np.full(len(case["mask"]), case["hyper"]["adv"]["ema_prev"]))}
  return None


def _advantage(config: dict, adv: dict):
  knobs = {key: adv[key] for key in ("eps", "ddof") if key in adv}
  clamp = adv.get("entropy_clip") or (1e-3, np.inf)
  kind = adv["kind"]
  if kind == "grpo":
    config["advantage"] = dict(fn="zscore", **knobs)
    if "valid_rows" in adv:
      config["shape"]["finished_only"] = dict(fn="finished_only")
  elif kind == "group_mean_batch_std":
    config.update(advantage=dict(fn="center"), rescale=dict(fn="batch_std", **knobs))
  elif kind == "reinforce_pp":
    config.update(advantage=dict(fn="return_to_go"), rescale=dict(fn="whiten", **knobs))
  elif kind == "reinforce_pp_baseline":
    config.update(advantage=dict(fn="center"), rescale=dict(fn="whiten", **knobs))
  elif kind == "ema_mix":
    config["advantage"] = dict(fn="mixed_baseline", mix=adv["lam"])
  elif kind == "gtpo" and adv["scope"] == "batch":
    config["rescale"] = dict(fn="gtpo_over_batch", low=clamp[0], high=clamp[1])
  elif kind in ("gtpo", "grpo_s"):
    names = ("alpha1", "alpha2", "beta1", "beta2", "pool")
    knobs |= {key: adv[key] for key in names if key in adv}
    config["advantage"] = dict(fn=kind, low=clamp[0], high=clamp[1], **knobs)
  elif kind not in ("given", "gigpo"):
    names = dict(
      dr_grpo="center",
      rloo="leave_one_out",
      loo_groupstd="leave_one_out_std",
      loo_loostd="leave_one_out_zscore",
    )
    config["advantage"] = dict(fn=names[kind], **knobs)


def _surrogate(config: dict, clip: dict):
  kind = clip["kind"]
  if kind == "ppo":
    config["surrogate"] = dict(fn="ppo_clip", low=clip["eps_low"], high=clip["eps_high"])
    if clip["dual_c"]:
      config["surrogate"] |= dict(fn="dual_clip", floor=clip["dual_c"])
  elif kind == "gmpo":
    config["ratio"] = dict(fn="geometric", low=clip["eps_low"], high=clip["eps_high"])
    config["surrogate"] = dict(fn="linear")
  elif kind == "icepop2":
    config["shape"]["bypass"] = dict(fn="bypass")
    config["surrogate"] = dict(fn="ratio_band", low=clip["alpha"], high=clip["beta"])
    config["veto"]["worst"] = dict(fn="worst_ratio", low=clip["rollout_min"])
  elif kind == "cispo":
    config["surrogate"] = dict(fn="cispo", w_max=clip["w_max"], w_min=clip["w_min"] or 0.0)
  else:
    knobs = {key: value for key, value in clip.items() if key != "kind"}
    config["surrogate"] = dict(fn=kind, **knobs)


def _mismatch(config: dict, mismatch: dict):
  kind = mismatch["kind"]
  if kind == "opsm":
    config["veto"]["opsm"] = dict(fn="stale_failures", delta=mismatch["delta"])
  if kind in ("none", "opsm"):
    return
  bounds = {to: mismatch[key] for key, to in (("C_low", "low"), ("C", "high")) if key in mismatch}
  entry = dict(
    tis_token=dict(fn="truncated_is", **bounds),
    tis_seq=dict(fn="sequence_truncated_is", **bounds),
    icepop=dict(fn="icepop", low=mismatch.get("alpha"), high=mismatch.get("beta")),
    mis_seq=dict(fn="masked_is", weighted=mismatch.get("weight"), **bounds),
    geo_rs=dict(fn="geometric_rejection", **bounds),
    wtrs=dict(fn="worst_token", low=mismatch.get("tau")),
  )[kind]
  if mismatch.get("token_weight"):
    entry["fn"] = "sequence_masked_tis"
  for switch in ("renormalize", "batch_normalize"):
    entry[switch] = mismatch.get(switch, False)
  config["correct"]["mismatch"] = entry


def _kl(config: dict, kl: dict):
  if kl["where"] == "reward" and config["advantage"]["fn"] == "return_to_go":
    config["advantage"]["beta"] = kl["coef"]
  elif kl["where"] == "reward":
    config["shape"]["kl"] = dict(fn="kl_k1", beta=kl["coef"])
  elif kl["where"] == "loss":
    names = {"k1": "kl_k1", "k2": "kl_k2", "k3": "kl_k3", "k3+": "kl_k3_plus"}
    name = names[kl["est"]] + ("_corrected" if kl.get("is_correct") else "")
    config["penalty"]["kl"] = dict(fn=name, beta=kl["coef"])


def assert_float64(case: dict, loss, grad) -> None:
  np.testing.assert_allclose(loss, case["expected_loss"], atol=1e-10, rtol=1e-10)
  np.testing.assert_allclose(grad, case["expected_grad_logp"], atol=1e-10, rtol=1e-10)


def assert_float32(case: dict, loss, grad) -> None:
  """1e-5 relative to the largest gradient: losses are differences, and may cancel to 0."""
  assert grad.dtype == np.float32
  scale = np.abs(case["expected_grad_logp"]).max()
  np.testing.assert_allclose(grad, case["expected_grad_logp"], atol=1e-5 * scale + 1e-9)
  np.testing.assert_allclose(loss, case["expected_loss"], rtol=1e-5, atol=1e-5 * scale)
