"""A recipe's fit with intervals by seed, and the test of it: the end, as its first half predicts it."""

import numpy as np

from grpojax.tools.scale import seeds
from grpojax.tools.scale.fit import A_GRID, Fit, fit, linearised, mid_grid
from grpojax.tools.scale.runs import Recipe

LEAST = 4  # evaluations of the first half: one more than the sigmoid has parameters
POINTS = 60  # of a drawn curve


def estimate(recipe: Recipe, burn_in: float) -> dict:
  """Returns one row of scale.json.  Raises ValueError for too few evaluations."""
  S, C = len(recipe.seeds), recipe.compute.mean(axis=0)
  R, last = recipe.accuracy.mean(axis=0), C[-1]
  used = np.flatnonzero((np.arange(len(C)) > 0) & (burn_in <= C))
  half = used[C[used] <= last / 2]
  if len(half) < LEAST:
    raise ValueError(
      f"{recipe.label}: {len(half)} evaluations lie between --burn_in={burn_in:g} and half of the compute,"
      f" {last / 2:.4g}, and the fit needs {LEAST}: evaluate more often (config.eval.every), train longer"
      " (config.steps), or lower --burn_in."
    )
  everyone = np.arange(S)
  whole, first = _fit(recipe, everyone, used), _fit(recipe, everyone, half)
  grid = np.geomspace(C[used[0]], last, POINTS)
  row = dict(
    label=recipe.label,
    runs=recipe.names,
    seeds=recipe.seeds,
    left_out=recipe.left_out,
    steps=recipe.steps,
    compute=C.tolist(),
    accuracy=recipe.accuracy.tolist(),
    fit=_parameters(whole, C[used]),
    half=_parameters(first, C[half]) | dict(until=float(C[half[-1]])),
    end=dict(compute=float(last), measured=float(R[-1]), predicted=float(first.at(last))),
    linear=_linear(C[used], R[used], whole),
    drawn=dict(compute=grid.tolist(), whole=whole.at(grid).tolist(), half=first.at(grid).tolist()),
  )
  if S > 1:
    _add_intervals(row, recipe, used, half, grid)
  return row


def _fit(recipe: Recipe, which: np.ndarray, used: np.ndarray) -> Fit:
  """Fits the mean curve of the seeds `which` at the evaluations `used`."""
  C, R = recipe.compute[which].mean(axis=0), recipe.accuracy[which].mean(axis=0)
  return fit(C[used], R[used], R[0], A_GRID, mid_grid(C[used]))


def _parameters(found: Fit, C: np.ndarray) -> dict:
  """Returns a fit as JSON has it; `bent`: the bend at C_mid, and so A, lie within what was measured."""
  bent = bool(C[0] <= found.C_mid <= C[-1])
  return found._asdict() | dict(flat=found.flat, bent=bent, rms=float(np.sqrt(found.error / found.points)))


def _linear(C: np.ndarray, R: np.ndarray, whole: Fit) -> dict:
  """Returns the points of the linear form that have a logarithm, and how many have none."""
  x, z = linearised(C, R, whole.R0, whole.A)
  there = np.isfinite(z)
  return dict(log_compute=x[there].tolist(), z=z[there].tolist(), without=int((~there).sum()))


def _add_intervals(row: dict, recipe: Recipe, used: np.ndarray, half: np.ndarray, grid: np.ndarray) -> None:
  """Adds 95 % intervals by seed to the parameters, to the predicted end, and to the drawn prediction."""
  S, end = len(recipe.seeds), row["end"]
  whole = seeds.each(S, lambda which: _fit(recipe, which, used))
  first = seeds.each(S, lambda which: _fit(recipe, which, half))
  for part, fits in (row["fit"], whole), (row["half"], first):
    for name in ("A", "B", "C_mid"):
      part[f"{name}_interval"] = _ends([getattr(one, name) for one in fits])
  low, high = _ends([one.at(end["compute"]) for one in first])
  end |= dict(interval=[low, high], inside=low <= end["measured"] <= high)
  bands = seeds.interval([one.at(grid) for one in first])
  row["drawn"] |= dict(half_low=bands[0].tolist(), half_high=bands[1].tolist())


def _ends(values: list[float]) -> list[float]:
  return [float(end) for end in seeds.interval(values)]
