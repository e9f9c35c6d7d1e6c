"""The stored cases of newer objectives (tests/data/variants_2026_cases.json), said in this project's words.

Numbers are float64, gradients complex steps with every stop-gradient argument held; most were compared with
public code (`checked_against`).  Fields are those of `objective_cases`, and `valid`, [B] or null.
"""

import json
from pathlib import Path

import numpy as np
import objective_cases as known
from jax.tree_util import Partial

from grpojax import objective as lib
from grpojax.train import moment
from grpojax.types import Batch

CASES = json.loads((Path(__file__).parent / "data" / "variants_2026_cases.json").read_text())
# Variants that are a choice in each slot.
SLOTS = (
  "maxrl", "opo", "gpg", "gdpo", "scalerl_norm", "dppo_tv", "dppo_kl", "prime_default", "prime_ipo",
  "reinforce_is", "dro", "vespo", "m2po", "topr", "log2_kl", "seq_mask", "opsm",
)  # fmt: skip
OTHER_SLOTS = ("denominator_token_mean", "denominator_seq_mean_token_mean")
LOSSES = {
  case["name"]: case
  for case in CASES
  if (case["variant"] in SLOTS or case["name"] in OTHER_SLOTS) and case["expected_loss"] is not None
}
OTHERS = {case["name"]: case for case in CASES if case["expected_loss"] is None}
ADVANTAGES = dict(maxrl="maxrl", opo="opo", gpg="center", gdpo="gdpo", rms_ema="center", dr_grpo="center")


def batch_of(case: dict) -> Batch:
  """A case's arrays [B][T] as a Batch [P, G, T]."""
  batch = known.batch_of(case)
  fold = lambda x: np.reshape(x, (*batch.reward.shape, *np.shape(x)[1:]))
  if case["valid"] is not None:
    batch = batch._replace(valid=fold(np.asarray(case["valid"], bool)))
  if case["hyper"]["adv"]["kind"] == "gdpo":
    batch = batch._replace(extra=_parts(case, fold))
    batch = batch._replace(ended=(batch.extra["part_valid"] > 0).any(-1))  # see `finished_only` below
  if case["hyper"]["adv"]["kind"] == "rms_ema":
    batch = batch._replace(extra=dict(moment=moment_of(case, batch)[0]))
  if batch.extra and "given" in batch.extra:  # prime-rl's factor of the policy term
    scale = case["hyper"]["clip"].get("adv_tau", 1.0)
    batch = batch._replace(extra=dict(given=scale * batch.extra["given"]))
  return batch


def moment_of(case: dict, batch: Batch) -> tuple[np.ndarray, float]:
  """v [P, G] that the groups are divided by, and the one after the step."""
  adv = case["hyper"]["adv"]
  before = np.nan if adv["moment_prev"] is None else adv["moment_prev"]
  update = dict(batch=moment.by_step, stream=moment.by_completion)[adv["update"]]
  found, after = update(before, batch.reward, batch.valid, adv["rate"])
  return np.repeat(found[:, None], batch.reward.shape[1], axis=1), after


def _parts(case: dict, fold) -> dict:
  parts = np.asarray(case["extra"]["rewards_k"], float)
  valid = np.asarray(case["extra"].get("reward_valid", np.ones_like(parts)), float)
  weight = np.broadcast_to(case["hyper"]["adv"]["weights"], parts.shape)
  return dict(part=fold(parts), part_valid=fold(valid), part_weight=fold(weight))


def objective_of(case: dict) -> lib.Objective:
  """The config that the case's `hyper` describes, built."""
  hyper = case["hyper"]
  config = dict(
    advantage=dict(fn=ADVANTAGES.get(hyper["adv"]["kind"], "raw")),
    rescale=dict(fn="identity"),
    ratio=dict(fn="token"),
    surrogate=dict(fn="linear"),
    aggregate=_aggregate(hyper["agg"]),
    shape={},
    correct={},
    veto={},
    batch_veto={},
    penalty={},
  )
  _advantage(config, hyper["adv"])
  _surrogate(config, hyper["clip"])
  _mismatch(config, hyper["mismatch"])
  if hyper["kl"]["where"] == "loss":
    config["penalty"]["kl"] = dict(fn="log2_kl", beta=hyper["kl"]["coef"])
  if hyper["clip"].get("anchor") == "rollout" or hyper["clip"].get("with_mismatch"):
    config["shape"]["bypass"] = dict(fn="bypass")
  objective = lib.build(config)
  return objective._replace(advantage=Partial(known.given)) if hyper["adv"]["kind"] == "given" else objective


def _aggregate(agg: dict) -> dict:
  names = known.AGGREGATE | {"prompt-sum-token-mean": "prompt_sum"}
  words = {key: agg[key] for key in ("rows", "prompts") if key in agg}
  return dict(fn=names[agg["kind"]], **words) | (dict(budget=agg["norm_len"]) if "norm_len" in agg else {})


def _advantage(config: dict, adv: dict):
  if adv["kind"] == "maxrl":
    config["advantage"] |= {key: adv[key] for key in ("eps", "all_wrong") if key in adv}
  elif adv["kind"] == "gpg":
    assert adv["f_norm"] == 1
    config["rescale"] = dict(fn="gpg")
  elif adv["kind"] == "rms_ema":
    config["rescale"] = dict(fn="rms", eps=adv["eps"])
  elif adv["kind"] == "gdpo":
    config["advantage"] |= dict(eps=adv["eps"], ddof=adv["ddof"])
    config["shape"]["scored"] = dict(fn="finished_only")  # a row without any reward stays in D
    if adv["batch"] != "none":
      name = dict(rows="batch_zscore", tokens="whiten")[adv["batch"]]
      config["rescale"] = dict(fn=name, eps=adv["batch_eps"], ddof=adv["batch_ddof"])


def _surrogate(config: dict, clip: dict):
  kind = clip["kind"]
  if kind in ("dppo_tv", "dppo_kl"):
    cap = np.inf if clip["C"] is None else clip["C"]
    bounds = dict(low=clip["delta_low"], high=clip["delta_high"])
    config["surrogate"] = dict(fn=kind, w_max=cap, form=clip["form"], **bounds)
  elif kind == "prime_default":
    bounds = dict(low=clip["mask_low"], high=clip["mask_high"])
    config["surrogate"] = dict(fn="dppo_tv", w_max=np.inf, form="grad", **bounds)
  elif kind == "prime_ipo":
    config["surrogate"] = dict(fn="tv_band", delta=clip["threshold"])
  elif kind == "reinforce_is":
    config["ratio"] = dict(fn="sequence_product" if clip["unit"] == "sequence" else "token")
    config["surrogate"] = dict(fn="cispo", w_max=clip["C"], w_min=clip.get("C_low", 0.0))
  elif kind == "dro":
    config["surrogate"] = dict(fn="reinforce")
    config["penalty"]["dro"] = dict(fn="log2_kl", beta=clip["beta"] / 2, anchor="old")
  elif kind == "vespo":
    config["ratio"] = dict(fn="sequence_product")
    knobs = {key: clip[key] for key in ("k_pos", "lambda_pos", "k_neg", "lambda_neg")}
    config["surrogate"] = dict(fn="vespo", **knobs)
  elif kind == "m2po":
    config["batch_veto"]["m2po"] = dict(fn="m2po", tau=clip["tau"], scope=clip["scope"])
  elif kind == "topr":
    config["surrogate"] = dict(fn="reinforce")
    knobs = {key: clip[key] for key in ("unit", "sign", "threshold")}
    config["veto"]["topr"] = dict(fn="taper_failures", **knobs)
  elif kind != "ratio":
    knobs = dict(w_min=None) | clip if kind == "cispo" else clip
    known._surrogate(config, {key: value for key, value in knobs.items() if key != "anchor"})
  if clip.get("kl_tau"):
    config["penalty"]["log2"] = dict(fn="log2_kl", beta=clip["kl_tau"])


def _mismatch(config: dict, mismatch: dict):
  anchor = dict(rollout="sampler", old="old")
  bounds = {key: mismatch[key] for key in ("low", "high") if key in mismatch}
  if mismatch["kind"] == "opsm":
    knobs = dict(delta=mismatch["delta"], anchor=anchor[mismatch["anchor"]])
    config["veto"]["opsm"] = dict(fn="stale_failures", **knobs)
  elif mismatch["kind"] == "seq_mask":
    words = dict(stat=mismatch["stat"], reduce=mismatch["reduce"])
    config["correct"]["it"] = dict(fn="sequence_mask", **words, **bounds)
  elif mismatch["kind"] == "token_mask":
    config["correct"]["it"] = dict(fn="icepop", weighted=False, **bounds)
  else:
    assert mismatch["kind"] == "none"
  if config["correct"]:
    config["correct"]["it"]["renormalize"] = mismatch.get("renormalize", False)
