"""What is measured: credits by name, and sweeps of one knob each, all of grpojax/objective/advantage.py."""

from typing import NamedTuple

CRITIC = "perfect_critic"  # no credit of the code: the return less the exact value of state and turn
G, GAMMA, OMEGA, PENALTY = 8, 0.95, 1.0, 0.1  # GiGPO's own
# Anchors.  The first four go from fine to coarse, and so do the last three.
LEVELS = ("history", "state and turn", "state", "observation", "answer", "fingerprint", "none")


class Point(NamedTuple):
  """A credit and how it is fed."""

  advantage: dict  # config.objective.advantage
  anchor: str = "state"
  G: int = G
  copies: float | None = None  # rows are single turns, and this share of them is there twice
  target: str = "return"  # whose gradient it should be: "return", "discounted" or "penalised" return


def turn_return(gamma=GAMMA, baseline="turns", std=False, **how) -> Point:
  return Point(dict(fn="turn_return", gamma=gamma, baseline=baseline, std=std), **how)


def gigpo(gamma=GAMMA, omega=OMEGA, std=False, form="trajectories", penalty=0.0, **how) -> Point:
  return Point(dict(fn="gigpo", gamma=gamma, omega=omega, std=std, form=form, penalty=penalty), **how)


def hgpo(gamma=GAMMA, history=2, alpha=1.0, std=False, base_group=False, **how) -> Point:
  knobs = dict(gamma=gamma, history=history, alpha=alpha, std=std, base_group=base_group)
  return Point(dict(fn="hgpo", **knobs), **how)


def essa(omega=0.5, **how) -> Point:
  return gigpo(omega=omega, anchor="fingerprint", **how)


TRAJECTORY = Point(dict(fn="leave_one_out"))
RETURN = turn_return(gamma=1.0, baseline="none")



def reference(point: Point) -> Point:
  """Returns the unbiased credit for trajectories that a point is compared with: same groups, same target."""
  if point.target == "penalised":  # A − mean: RLOO's, but for its scale
    return gigpo(omega=0.0, penalty=point.advantage["penalty"], target="penalised")
  return TRAJECTORY._replace(G=point.G)


CREDITS = {
  "trajectory, mean of the others (RLOO)": TRAJECTORY,
  "trajectory, z-score (GRPO)": Point(dict(fn="zscore")),
  "return of the turn": RETURN,
  "return of the turn, γ .95": turn_return(baseline="none"),
  "return less the turns' mean": turn_return(gamma=1.0),
  "return less the turns' mean, γ .95": turn_return(),
  "return, z-score over turns, γ .95 (ROLL)": turn_return(std=True),
  "GiGPO, paper, mean": gigpo(),
  "GiGPO, paper, mean and std": gigpo(std=True),
  "GiGPO, repository, mean": gigpo(form="rows"),
  "GiGPO, repository, mean and std": gigpo(form="rows", std=True),
  "GiGPO, paper, mean, γ 1": gigpo(gamma=1.0),
  "HGPO, mean and std": hgpo(std=True),
  "HGPO, mean and std, base group": hgpo(std=True, base_group=True),
  "HGPO, mean": hgpo(),
  "HGPO, mean, γ 1": hgpo(gamma=1.0),
  "ESSA": essa(),
  "ESSA, γ 1": essa(gamma=1.0),
  "return less the exact value (a perfect critic)": Point(dict(fn=CRITIC)),
}
SWEEPS = {
  "γ": {
    "return": lambda x: turn_return(gamma=x, baseline="none"),
    "return less the turns' mean": lambda x: turn_return(gamma=x),
    "GiGPO": lambda x: gigpo(gamma=x),
    "HGPO": lambda x: hgpo(gamma=x),
    "ESSA": lambda x: essa(gamma=x),
  },
  "ω": {"GiGPO": lambda x: gigpo(omega=x), "ESSA": lambda x: essa(omega=x)},
  "anchor": {
    "GiGPO, γ 1": lambda x: gigpo(gamma=1.0, anchor=x),
    "GiGPO, mean and std, γ 1": lambda x: gigpo(gamma=1.0, std=True, anchor=x),
    "step term alone, γ 1": lambda x: hgpo(gamma=1.0, history=0, anchor=x),
  },
  "group size": {
    "GiGPO, γ 1": lambda x: gigpo(gamma=1.0, G=x),
    "ESSA, γ 1": lambda x: essa(gamma=1.0, G=x),
  },
  "history": {"HGPO, γ 1": lambda x: hgpo(gamma=1.0, history=x)},
  "α": {"HGPO, γ 1": lambda x: hgpo(gamma=1.0, alpha=x)},
  "penalty": {
    "in the reward": lambda x: gigpo(penalty=x, target="penalised"),
    "after discounting": lambda x: gigpo(form="rows", penalty=x, target="penalised"),
  },
  "copies": {"GiGPO, repository": lambda x: gigpo(form="rows", copies=x)},
}
GRIDS = {
  "γ": (1.0, 0.99, 0.95, 0.9, 0.8, 0.5),
  "ω": (0.0, 0.5, 1.0, 2.0, 4.0),
  "anchor": LEVELS,
  "group size": (4, 8, 16),
  "history": (0, 1, 2, 4),
  "α": (0.0, 1.0, 2.0),
  "penalty": (0.0, PENALTY, 0.5),
  "copies": (0.0, 0.1, 0.5),
}


def sweep() -> list[tuple[str, str, object, Point]]:
  """Returns (knob, line, value, point) of all sweeps."""
  lines = [(knob, line, make) for knob, lines in SWEEPS.items() for line, make in lines.items()]
  return [(knob, line, x, make(x)) for knob, line, make in lines for x in GRIDS[knob]]


def all_points() -> list[Point]:
  """Returns each point once."""
  extra = [turn_return(baseline="none", target="discounted")]
  listed = [*CREDITS.values(), *(point for *_, point in sweep()), *extra]
  listed += [reference(point) for point in listed]
  return list({repr(point): point for point in listed}.values())
