"""Claims about credit for turns.  A function is one claim: Find -> Claim; its rule was written before it ran.

A case is a game.  Where the numbers of a case are within compare.TOLD standard errors, it cannot be told.
"""

from collections.abc import Callable

from experiments.estimator_lab.claim import Claim, verdict
from experiments.turns_lab import compare
from experiments.turns_lab.compare import BUDGET, ENOUGH, TOLD
from experiments.turns_lab.games import GAMES
from experiments.turns_lab.points import PENALTY, TRAJECTORY, Point, essa, gigpo, hgpo, turn_return
from experiments.turns_lab.store import Find

RLOO, GIGPO, HGPO, ROLL, DR_GRPO = (
  f"arXiv:{n}" for n in ("2402.14740", "2505.10978", "2602.22817", "2506.06122", "2503.20783")
)
ESSA = "the author's draft"
CODE = "verl-agent"


def trajectory_is_unbiased(find: Find) -> Claim:
  text = "A trajectory's return less the mean of the others is unbiased"
  return _unbiased(find, "trajectory", text, RLOO, TRAJECTORY)


def returns_are_unbiased(find: Find) -> Claim:
  text = "So is the undiscounted return from the turn on, without a baseline"
  return _unbiased(find, "return", text, "policy gradient theorem", turn_return(gamma=1.0, baseline="none"))


def mean_over_turns_is_unbiased(find: Find) -> Claim:
  text = "It stays unbiased less the mean over all turns of the prompt"
  return _unbiased(find, "turns_mean", text, ROLL, turn_return(gamma=1.0))


def gigpo_is_unbiased(find: Find) -> Claim:
  text = "Comparing returns at the same state is a baseline and costs no bias (GiGPO, γ 1, no std)"
  return _unbiased(find, "gigpo_unbiased", text, GIGPO, gigpo(gamma=1.0))


def gigpos_bias_falls_with_the_group(find: Find) -> Claim:
  text = "What bias the comparison has falls as the group grows, G = 4 to 16"
  few, many = (gigpo(gamma=1.0, G=G) for G in (4, 16))
  rule = "bias² at G = 4 is larger than at G = 16"
  return _pair(find, "gigpo_group", text, GIGPO, rule, few, many, compare.more_biased)


def gigpo_is_quieter(find: Find) -> Claim:
  text = "Credit for turns is quieter than credit for trajectories (GiGPO, γ .95, no std)"
  rule = "less variance a sampled token than RLOO's"
  return _pair(find, "gigpo_variance", text, GIGPO, rule, TRAJECTORY, gigpo(), compare.noisier)


def discounted_returns_have_no_objective(find: Find) -> Claim:
  text = "Discounted returns that turns do not weigh by γ^u follow the gradient of neither return"
  rule = f"γ .95, no baseline: bias² against ∇J and against ∇J_γ is above {TOLD:g} standard errors"
  found = {}
  for target in ("return", "discounted"):
    found[target] = {game: find(turn_return(baseline="none", target=target), game) for game in GAMES}
  cases = {game: all(compare.unbiased(found[t][game]) is False for t in found) for game in GAMES}
  numbers = {t: {game: compare.bias2(e) for game, e in by_game.items()} for t, by_game in found.items()}
  return Claim("discount_objective", text, "arXiv:1906.07073", rule, verdict(cases), numbers)


def discount_costs_bias(find: Find) -> Claim:
  text = "γ .95 instead of 1 costs bias against the undiscounted return (GiGPO, no std)"
  rule = "bias² is larger"
  return _pair(find, "discount_bias", text, GIGPO, rule, gigpo(), gigpo(gamma=1.0), compare.more_biased)


def discount_buys_variance(find: Find) -> Claim:
  text = "and buys variance"
  rule = "less variance a sampled token"
  return _pair(find, "discount_variance", text, GIGPO, rule, gigpo(gamma=1.0), gigpo(), compare.noisier)


def std_costs_bias(find: Find) -> Claim:
  text = "Division by the standard deviation costs bias (GiGPO, γ .95)"
  rule = "bias² is larger"
  return _pair(find, "std_bias", text, DR_GRPO, rule, gigpo(std=True), gigpo(), compare.more_biased)


def std_costs_error(find: Find) -> Claim:
  text = "and a larger mean squared error"
  rule = f"larger {_at_budget()}"
  return _pair(find, "std_mse", text, DR_GRPO, rule, gigpo(std=True), gigpo(), compare.worse)


def other_histories_bias(find: Find) -> Claim:
  text = "Turns that look alike after different histories bias each other's comparison"
  rule = "step term, γ 1: bias² with what is seen as anchor is larger than with the whole history"
  pair = (hgpo(gamma=1.0, history=0, anchor=kind) for kind in ("observation", "history"))
  return _pair(find, "history_bias", text, HGPO, rule, *pair, compare.more_biased)


def histories_cost_variance(find: Find) -> Claim:
  text = "and a comparison after equal histories alone costs variance"
  rule = "step term, γ 1: more variance a sampled token with the whole history as anchor"
  pair = (hgpo(gamma=1.0, history=0, anchor=kind) for kind in ("history", "observation"))
  return _pair(find, "history_variance", text, HGPO, rule, *pair, compare.noisier)


def hgpo_trades_better(find: Find) -> Claim:
  text = "HGPO has the better trade-off of bias and variance than GiGPO (mean and std, γ .95)"
  rule = f"GiGPO has the larger {_at_budget()}"
  return _pair(find, "hgpo_mse", text, HGPO, rule, gigpo(std=True), hgpo(std=True), compare.worse)


def coarseness_costs_bias(find: Find) -> Claim:
  text = "A coarse fingerprint as anchor costs bias (γ 1, no std)"
  rule = "bias² with ESSA's fingerprint is larger than with the state"
  pair = (gigpo(gamma=1.0, anchor=kind) for kind in ("fingerprint", "state"))
  return _pair(find, "essa_bias", text, ESSA, rule, *pair, compare.more_biased)


def coarseness_buys_variance(find: Find) -> Claim:
  text = "and buys variance"
  rule = "less variance a sampled token with ESSA's fingerprint than with the state"
  pair = (gigpo(gamma=1.0, anchor=kind) for kind in ("state", "fingerprint"))
  return _pair(find, "essa_variance", text, ESSA, rule, *pair, compare.noisier)


def half_omega_is_better(find: Find) -> Claim:
  text = "With fingerprints ω .5 is better than 1, as the first turn repeats the trajectories' comparison"
  rule = f"at ω 1 the larger {_at_budget()}"
  return _pair(find, "essa_omega", text, ESSA, rule, essa(omega=1.0), essa(), compare.worse)


def rows_cost_bias(find: Find) -> Claim:
  text = "Trajectories that count once a turn cost bias (the code's statistics over rows; no std)"
  rule = "bias² is larger than with statistics over trajectories"
  return _pair(find, "rows_bias", text, CODE, rule, gigpo(form="rows"), gigpo(), compare.more_biased)


def late_penalty_costs_bias(find: Find) -> Claim:
  text = "A penalty after discounting costs bias against the penalised return"
  rule = (
    f"bias² of the code's form less that of a penalty in the reward is larger at penalty {PENALTY} than at "
    f"0, beyond {TOLD:g} standard errors"
  )
  cases, numbers = {}, {}
  for game in GAMES:
    sign, total, errors = {PENALTY: 1, 0.0: -1}, 0.0, []
    for c in sign:
      for form, side in (("rows", 1), ("trajectories", -1)):
        square, error = compare.bias2(find(gigpo(form=form, penalty=c, target="penalised"), game))
        total, errors = total + sign[c] * side * square, [*errors, error]
    error = sum(e**2 for e in errors) ** 0.5
    cases[game], numbers[game] = compare.told(total, error), (total, error)
  return Claim("penalty_bias", text, CODE, rule, verdict(cases), numbers)


def copies_cost_no_bias(find: Find) -> Claim:
  text = "Rows that are there twice (one in ten) cost no bias"
  rule = f"bias² is not told from that without copies, and {TOLD:g} standard errors are at most {ENOUGH}²"
  cases, numbers = {}, {}
  for game in GAMES:
    (a, error_a), (b, error_b) = (compare.bias2(find(gigpo(form="rows", copies=c), game)) for c in (0.1, 0.0))
    error = (error_a**2 + error_b**2) ** 0.5
    same = compare.told(a - b, error) is None
    cases[game] = (TOLD * error <= ENOUGH**2 or None) if same else False
    numbers[game] = (a - b, error)
  return Claim("copies_bias", text, CODE, rule, verdict(cases), numbers)


def copies_cost_variance(find: Find) -> Claim:
  pair = (gigpo(form="rows", copies=c) for c in (0.1, 0.0))
  rule = "more variance a sampled token than without copies"
  return _pair(find, "copies_variance", "but variance", CODE, rule, *pair, compare.noisier)


def turns_are_worth_it(find: Find) -> Claim:
  text = "Credit for turns has the smaller squared error at the papers' size of a step"
  rule = (
    f"as published (HGPO and GiGPO with std, ESSA without; γ .95): RLOO has the larger {_at_budget()}, "
    f"beyond {TOLD:g} standard errors"
  )
  credits = dict(GiGPO=gigpo(std=True), HGPO=hgpo(std=True), ESSA=essa())
  cases, numbers = {}, {}
  for name, credit in credits.items():
    for game in GAMES:
      pair = find(TRAJECTORY, game), find(credit, game)
      cases[f"{name} in {game}"] = compare.worse(*pair)
      numbers[f"{name} in {game}"] = compare.log_ratio(*pair, lambda e: e.mse())
  return Claim("published_mse", text, f"{GIGPO}, {HGPO}, {ESSA}", rule, verdict(cases), numbers)


ALL = (
  trajectory_is_unbiased,
  returns_are_unbiased,
  mean_over_turns_is_unbiased,
  gigpo_is_unbiased,
  gigpos_bias_falls_with_the_group,
  gigpo_is_quieter,
  discounted_returns_have_no_objective,
  discount_costs_bias,
  discount_buys_variance,
  std_costs_bias,
  std_costs_error,
  other_histories_bias,
  histories_cost_variance,
  hgpo_trades_better,
  coarseness_costs_bias,
  coarseness_buys_variance,
  half_omega_is_better,
  rows_cost_bias,
  late_penalty_costs_bias,
  copies_cost_no_bias,
  copies_cost_variance,
  turns_are_worth_it,
)


def _unbiased(find: Find, name: str, text: str, source: str, point: Point) -> Claim:
  rule = f"bias² is within {TOLD:g} standard errors of 0, and no bias above {ENOUGH} |∇J| could hide there"
  found = {game: find(point, game) for game in GAMES}
  cases = {game: compare.unbiased(e) for game, e in found.items()}
  numbers = {game: (*compare.bias2(e), compare.null(e)) for game, e in found.items()}
  return Claim(name, text, source, rule, verdict(cases), numbers)


def _pair(find: Find, name, text, source, rule, larger: Point, smaller: Point, test: Callable) -> Claim:
  """Tests in each game if the first point has more of what `test` compares than the second."""
  cases, numbers = {}, {}
  of = {compare.noisier: lambda e: e.variance, compare.worse: lambda e: e.mse()}.get(test)
  for game in GAMES:
    pair = find(larger, game), find(smaller, game)
    cases[game] = test(*pair)
    numbers[game] = compare.log_ratio(*pair, of) if of else [compare.bias2(e) for e in pair]
  return Claim(name, text, source, f"{rule}, beyond {TOLD:g} standard errors", verdict(cases), numbers)


def _at_budget() -> str:
  return f"mean squared error in a step of {BUDGET} groups"
