"""Claims about corrections.  A function is one claim: Find -> Claim; its rule was written before it ran.

A case is a cause.  Where its numbers are within TOLD standard errors over policies, it cannot be told.
"""

from collections.abc import Callable

from experiments.estimator_lab.claim import Claim, verdict
from experiments.mismatch_lab import compare
from experiments.mismatch_lab.causes import CAUSES
from experiments.mismatch_lab.compare import FLOOR, RESTORED
from experiments.mismatch_lab.corrections import CORRECTIONS, EXACT, NONE, REPLAYS
from experiments.mismatch_lab.measure import BUDGET, Estimate
from experiments.turns_lab.compare import TOLD, log_ratio, told
from experiments.turns_lab.store import Find

WHOLE = "top-p"  # the gradient looked for is the whole policy's, of which the sampler never shows a part
SUPPORTED = tuple(cause for cause in CAUSES if cause not in ("none", WHOLE))
TIS, V32, DPPO, R3 = "fengyao.notion.site", "arXiv:2512.02556", "arXiv:2602.04879", "arXiv:2510.11370"
RULE = f"the bias of each cause is smaller than without, beyond {TOLD:g} standard errors over policies"
RESTORES = f"at most {RESTORED:g} of the bias without it is left, beyond {TOLD:g} standard errors"


def same_code_has_no_gap(find: Find) -> Claim:
  text = "The same code on the same parameters leaves no gap and no bias"
  rule = f"a gap of at most {FLOOR} nats and a bias of at most {2 * FLOOR} |∇J| in every policy"
  found = find(NONE, "none")
  good = all(e.gap <= FLOOR and e.bias <= 2 * FLOOR for e in found)
  return Claim("same_code", text, "design", rule, verdict({"none": good}), compare.gaps(found))


def causes_bias(find: Find) -> Claim:
  text = "Every cause biases the gradient"
  rule = f"without a correction the mean bias is above {2 * FLOOR} |∇J|, beyond {TOLD:g} standard errors"
  numbers = {cause: compare.gaps(find(NONE, cause)) for cause in CAUSES if cause != "none"}
  cases = {c: told(n["bias"] - 2 * FLOOR, n["bias/error"]) for c, n in numbers.items()}
  return Claim("causes_bias", text, TIS, rule, verdict(cases), numbers)


def exact_ratio_restores(find: Find) -> Claim:
  text = "The product of a completion's ratios, not truncated, restores it"
  return _restores(find, "exact_ratio", text, TIS, EXACT, SUPPORTED)


def exact_ratio_misses_what_is_never_sampled(find: Find) -> Claim:
  text = "but not the whole policy's under top-p, as it cannot weigh what is never sampled"
  rule = f"not: {RESTORES}"
  word = compare.verdict(find(EXACT, WHOLE), find(NONE, WHOLE))
  numbers = compare.summary(find(EXACT, WHOLE), find(NONE, WHOLE))
  return Claim("support", text, V32, rule, verdict({WHOLE: word != "restores"}), numbers)


def tis_reduces(find: Find) -> Claim:
  return _reduces(find, "TIS", TIS)


def sequence_tis_reduces(find: Find) -> Claim:
  return _reduces(find, "TIS of sequences", TIS)


def icepop_reduces(find: Find) -> Claim:
  return _reduces(find, "IcePop", "arXiv:2510.18855")


def mis_reduces(find: Find) -> Claim:
  return _reduces(find, "MIS", "the MIS blog")


def wtrs_reduces(find: Find) -> Claim:
  return _reduces(find, "WTRS", "verl, slime")


def geometric_reduces(find: Find) -> Claim:
  return _reduces(find, "geometric", "verl")


def dppo_reduces(find: Find) -> Claim:
  return _reduces(find, "DPPO-TV", DPPO)


def opsm_reduces(find: Find) -> Claim:
  return _reduces(find, "OPSM", V32)


def replay_restores_flips(find: Find) -> Claim:
  text = "Replaying the sampler's choice of experts (R3) restores it where routers flip"
  cause = "flipped experts"
  return _restores(find, "r3", text, R3, REPLAYS[cause]["R3"], (cause,))


def replay_reduces_staleness(find: Find) -> Claim:
  text = "Replay reduces the bias of a stale mixture (R2 and R3 are one here)"
  cause = "stale mixture"
  cases, numbers = _told(find, REPLAYS[cause]["R2, R3"], (cause,), compare.bias_of)
  return Claim("r2", text, "arXiv:2507.18071", RULE, verdict(cases), numbers)


def kept_set_restores(find: Find) -> Claim:
  text = "Log-probs over the kept sets restore the gradient of the truncated policy"
  cause = "top-p, truncated policy"
  return _restores(find, "kept_set", text, V32, REPLAYS[cause]["kept set"], (cause,))


def corrections_cost_variance(find: Find) -> Claim:
  text = "TIS costs variance"
  rule = f"more variance a completion than without, beyond {TOLD:g} standard errors over policies"
  cases, numbers = _told(find, CORRECTIONS["TIS"], SUPPORTED, lambda e: e.variance)
  cases = {cause: None if case is None else not case for cause, case in cases.items()}
  return Claim("tis_variance", text, TIS, rule, verdict(cases), numbers)


def exactness_is_worth_it(find: Find) -> Claim:
  text = f"The exact ratio has the smaller squared error at {BUDGET} completions"
  rule = f"smaller than without, beyond {TOLD:g} standard errors over policies"
  cases, numbers = _told(find, EXACT, SUPPORTED, Estimate.mse)
  return Claim("exact_mse", text, TIS, rule, verdict(cases), numbers)


def tis_is_worth_it(find: Find) -> Claim:
  text = f"TIS has the smaller squared error at {BUDGET} completions"
  rule = f"smaller than without, beyond {TOLD:g} standard errors over policies"
  cases, numbers = _told(find, CORRECTIONS["TIS"], SUPPORTED, Estimate.mse)
  return Claim("tis_mse", text, TIS, rule, verdict(cases), numbers)


ALL: tuple[Callable[[Find], Claim], ...] = (
  same_code_has_no_gap,
  causes_bias,
  exact_ratio_restores,
  exact_ratio_misses_what_is_never_sampled,
  tis_reduces,
  sequence_tis_reduces,
  icepop_reduces,
  mis_reduces,
  wtrs_reduces,
  geometric_reduces,
  dppo_reduces,
  opsm_reduces,
  replay_restores_flips,
  replay_reduces_staleness,
  kept_set_restores,
  corrections_cost_variance,
  exactness_is_worth_it,
  tis_is_worth_it,
)


def _restores(find: Find, name: str, text: str, source: str, correction, causes) -> Claim:
  words = {c: compare.verdict(find(correction, c), find(NONE, c)) for c in causes}
  numbers = {c: compare.summary(find(correction, c), find(NONE, c)) for c in causes}
  return Claim(name, text, source, RESTORES, verdict({c: w == "restores" for c, w in words.items()}), numbers)


def _reduces(find: Find, correction: str, source: str) -> Claim:
  """Tests each cause but those without a gap; what never acts, or leaves no signal, does not reduce."""
  cases, numbers = {}, {}
  for cause in SUPPORTED:
    pair = find(CORRECTIONS[correction], cause), find(NONE, cause)
    word = compare.verdict(*pair)
    cases[cause] = None if word == "cannot be told" else word in ("restores", "reduces")
    numbers[cause] = compare.summary(*pair)
  text = f"{correction} reduces the bias"
  return Claim(correction, text, source, RULE, verdict(cases), numbers)


def _told(find: Find, correction, causes, of) -> tuple[dict, dict]:
  """Returns by cause whether `of` is smaller than without the correction, and (mean log ratio, error)."""
  numbers = {cause: log_ratio(find(correction, cause), find(NONE, cause), of) for cause in causes}
  cases = {cause: told(*x) for cause, x in numbers.items()}
  return {cause: None if case is None else not case for cause, case in cases.items()}, numbers
