"""The stored cases of components, pairs, distillation, kept sets and the proximal policy, as configs.

As objective_cases_2026.py, whose file they share.
"""

import numpy as np
import objective_cases as known
from jax.tree_util import Partial
from objective_cases_2026 import CASES, batch_of, objective_of

from grpojax.objective import component, preference, rescale, shape, stream, veto
from grpojax.objective.build import bind
from grpojax.objective.terms import Component, Preference

FAMILIES = (
  "loglinear", "ce", "ref_kl", "opd", "kept_set", "dpo", "dpo_pairs", "spin", "ipo", "simpo", "distillation",
)  # fmt: skip
ALL = {case["name"]: case for case in CASES if case["variant"] in FAMILIES}
LOSSES = {name: case for name, case in ALL.items() if case["expected_loss"] is not None}
BY_LOGITS = {name: case for name, case in LOSSES.items() if case["wrt"] == "logits"}
DIVERGENCES = {name: case for name, case in BY_LOGITS.items() if "divergence" in case["hyper"]}
KEPT = {name: case for name, case in BY_LOGITS.items() if name not in DIVERGENCES}
BY_LOGP = {name: case for name, case in LOSSES.items() if name not in BY_LOGITS}


def given_mask(batch):
  """The stream of the policy term."""
  return batch.extra["policy"]


def given_stream(batch, *, number):
  return batch.extra[f"stream{number}"]


def given_share(batch):
  """α of the proximal policy, as the case states it."""
  return batch._replace(old_logp=None, prox_share=batch.extra["share"])


def problem(case: dict):
  """(objective, batch [P, G, T], the case's rows in the batch's order) of a case by log π."""
  hyper, extra = case["hyper"], case["extra"] or {}
  if "pref" in hyper:
    return _paired(case, extra)
  every = np.arange(len(case["mask"]))
  make = dict(loglinear=_proximal, opd=_distilled).get(case["variant"], _composed)
  return *make(case, extra), every


def _plain(case: dict, **hyper) -> dict:
  """The case with another `hyper`, and advantages of 0 where it states none."""
  zero = np.zeros(np.shape(case["mask"])).tolist()
  known = {key: case["hyper"][key] for key in ("adv", "clip", "agg", "kl", "mismatch", "ratio")}
  return case | dict(hyper=known | hyper, advantages=case.get("advantages") or zero)


def _with(batch, **extra):
  fold = lambda x: np.reshape(np.asarray(x, float), batch.mask.shape)
  return batch._replace(extra=(batch.extra or {}) | {key: fold(x) for key, x in extra.items()})


def _taught(batch, extra: dict):
  return batch._replace(teacher_logp=np.reshape(extra["logp_teacher"], batch.mask.shape))


def _proximal(case: dict, extra: dict):
  mismatch = case["hyper"]["mismatch"]
  bounds = dict(low=mismatch["alpha"], high=mismatch["beta"]) if mismatch["kind"] == "icepop" else {}
  case = _plain(case, mismatch=dict(kind="none"))
  objective, batch = objective_of(case), _with(batch_of(case), share=extra["prox_alpha"])
  make = Partial(given_share)
  if "versions" in extra:
    lag = extra["current_version"] - np.asarray(extra["versions"])
    batch, make = _with(batch, lag=lag), bind(shape.log_linear)
  return objective._replace(shape=(make,), veto=(bind(veto.proximal_is, **bounds),)), batch


def _distilled(case: dict, extra: dict):
  adv, clip = case["hyper"]["adv"], case["hyper"]["clip"]
  plain = _plain(case, adv=adv.get("base", dict(kind="given")))
  objective, batch = known.objective_of(plain), _taught(batch_of(plain), extra)
  if adv["student"] == "current":
    fn = bind(component.opd, low=clip["eps_low"], high=clip["eps_high"])
    return objective._replace(component=(Component(adv["coef"], bind(stream.actions), fn),)), batch
  student = dict(old="old", rollout="sampler")[adv["student"]]
  gap = bind(rescale.opd, scale=adv["coef"], student=student, gamma=adv.get("iw_gamma", 0.0))
  return objective._replace(rescale=gap), batch


def _composed(case: dict, extra: dict):
  """The policy term over the stream of kind "rl", if there is one; all others are components."""
  parts = case["hyper"]["components"]
  rl = next((part for part in parts if part["kind"] == "rl"), dict(weights=np.zeros(np.shape(case["mask"]))))
  assert rl.get("coef", 1) == 1 and set(np.unique(rl["weights"])) <= {0, 1}
  plain = _plain(case, clip=rl.get("clip", case["hyper"]["clip"]))
  objective, batch = objective_of(plain), _with(batch_of(plain), policy=rl["weights"])
  components = []
  for number, part in enumerate(part for part in parts if part is not rl):
    batch = _with(batch, **{f"stream{number}": part["weights"]})
    clip = part.get("clip")
    knobs = dict(low=clip["mask_low"], tau=clip["kl_tau"]) if part["kind"] == "ref_kl" else {}
    fn = bind(getattr(component, part["kind"]), **knobs)
    components.append(Component(part["coef"], bind(given_stream, number=str(number)), fn))
  if "logp_teacher" in extra:
    batch = _taught(batch, extra)
  return objective._replace(select=(Partial(given_mask),), component=tuple(components)), batch


def _paired(case: dict, extra: dict):
  """Pairs that are given become groups of two, the first of which is the better."""
  pref = case["hyper"]["pref"]
  names = dict(label_smoothing="smoothing")
  knobs = {names.get(key, key): value for key, value in pref.items() if key != "kind"}
  order = np.arange(len(case["mask"]))
  if "pairs" in extra:
    order = np.ravel(extra["pairs"])
    of_rows = lambda x: None if x is None else [x[row] for row in order]
    keys = "mask", "logp", "logp_old", "logp_ref", "logp_rollout", "valid"
    case = case | {key: of_rows(case[key]) for key in keys}
    case |= dict(group_size=2, rewards=[1.0, 0.0] * (len(order) // 2))
  plain = _plain(case | dict(expected_advantages=None, advantages=None))
  fn = bind(getattr(preference, pref["kind"]), **knobs)
  return objective_of(plain)._replace(preference=(Preference(1.0, fn),)), batch_of(plain), order
