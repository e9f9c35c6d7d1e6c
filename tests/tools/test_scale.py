"""ScaleRL's fit: stored cases, a plain search; recipes, intervals, the predicted end, refusals, the page."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from objective_cases_2026 import OTHERS
from scipy import optimize

from grpojax.recipes import base
from grpojax.tools.scale import command, fit, runs, seeds
from grpojax.tools.scale.fit import sigmoid

# Stored cases.


def stored(name):
  return OTHERS[name]["extra"]["inputs"], OTHERS[name]["extra"]["expected"]


def fitted(inputs, R):
  C, R = np.array(inputs["C"]), np.array(R)
  used = inputs["burn_in"] <= C
  grids = inputs["A_grid"], inputs["mid_grid"]
  return fit.fit(C[used], R[used], inputs["R0"], *grids, inputs["B_range"])


FITS = (
  "scaling_fit_noiseless", "scaling_fit_burn_in", "scaling_fit_noisy", "scaling_fit_first_half",
  "scaling_fit_flat",
)  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_a_stored_fit(name):
  inputs, expected = stored(name)
  got = fitted(inputs, inputs["R"])
  np.testing.assert_allclose(got.error, expected["sse"], rtol=1e-10, atol=1e-10)
  assert expected["A"] == got.A and got.points == expected.get("points", got.points)
  if name == "scaling_fit_flat":
    assert got.flat
    return
  assert got.C_mid == expected["C_mid"] and not got.flat
  np.testing.assert_allclose(got.B, expected["B"], rtol=1e-10)
  if "predicted_at_last_C" in expected:
    np.testing.assert_allclose(got.at(inputs["last_C"]), expected["predicted_at_last_C"], rtol=1e-10)


def test_the_stored_values_of_the_sigmoid_and_of_its_linear_form():
  inputs, expected = stored("sigmoid_values")
  knobs = (inputs[name] for name in ("R0", "A", "B", "C_mid"))
  got = sigmoid(inputs["C"], *knobs)
  np.testing.assert_allclose(got, expected["R"], rtol=1e-10)
  inputs, expected = stored("scaling_linearised")
  x, z = fit.linearised(inputs["C"], inputs["R"], inputs["R0"], inputs["A"])
  np.testing.assert_allclose(z, expected["z"], rtol=1e-10, atol=1e-10)
  np.testing.assert_allclose(np.polyfit(x, z, 1), [expected["slope"], expected["intercept"]], rtol=1e-9)
  beyond = fit.linearised([1, 2, 3], [0.2, 0.5, 0.7], 0.3, 0.6)[1]
  assert np.isnan(beyond).tolist() == [True, False, True]


@pytest.mark.parametrize("S", [2, 3, 4])
def test_a_stored_bootstrap_of_all_resamples(S):
  inputs, expected = stored(f"bootstrap_exact_{S}_seeds")
  values, rows = np.array(inputs["values"]), seeds.resamples(S)
  assert len(rows) == expected["resamples"]
  got = seeds.interval(values[rows].mean(1))
  np.testing.assert_allclose(got, expected["interval"], rtol=1e-10)
  same = seeds.each(S, lambda which: values[which].mean())  # each set of seeds once
  np.testing.assert_allclose(same, values[rows].mean(1), rtol=1e-12)


def test_the_stored_bootstraps_of_pairs_and_of_the_asymptote():
  inputs, expected = stored("bootstrap_paired_difference")
  change = np.array(inputs["after"]) - np.array(inputs["before"])
  got = seeds.interval(seeds.each(3, lambda which: change[which].mean()))
  np.testing.assert_allclose(got, expected["interval"], rtol=1e-10)
  inputs, expected = stored("bootstrap_of_the_asymptote")
  R = np.array(inputs["R"])
  got = seeds.each(len(R), lambda which: fitted(inputs, R[which].mean(0)).A)
  assert got == expected["A_of_each_resample"]
  np.testing.assert_allclose(seeds.interval(got), expected["interval"], rtol=1e-10)


def test_every_stored_case_of_fits_and_bootstraps_is_tested():
  names = {name for name, case in OTHERS.items() if case["variant"] in ("scaling_fit", "bootstrap")}
  source = Path(__file__).read_text()
  assert len(names) == 12
  assert all(name in source or re.match(r"bootstrap_exact_[234]_seeds", name) for name in names)


def test_the_fit_is_the_best_of_a_plain_search():
  """Cell by cell with another minimiser; the cells that the fit leaves out would not have won."""
  rng, C = np.random.default_rng(0), np.geomspace(1, 50, 9)
  A_grid, mids = np.linspace(0, 1, 21), np.geomspace(0.5, 100, 9)
  for A, B, mid in (0.8, 1.3, 7.0), (0.6, 3.0, 30.0), (0.1, 0.8, 4.0):
    R = sigmoid(C, 0.3, A, B, mid) + rng.normal(0, 0.02, size=9)
    cells = []
    for a in A_grid:
      for m in mids:
        error = lambda logB, R=R, a=a, m=m: np.square(R - sigmoid(C, 0.3, a, np.exp(logB), m)).sum()
        starts = np.linspace(*np.log(fit.B_RANGE), 40)
        i = int(np.argmin([error(x) for x in starts]))
        near = starts[max(i - 1, 0)], starts[min(i + 1, 39)]
        cells.append((optimize.minimize_scalar(error, bounds=near, method="bounded").fun, a, m))
    got = fit.fit(C, R, 0.3, A_grid, mids)
    best = min(cells)
    assert (got.A, got.C_mid) == best[1:]
    assert got.error == pytest.approx(best[0], rel=1e-6)


def test_cells_that_the_fit_leaves_out_would_not_have_won():
  """On grids so fine that neighbours nearly tie: no B of a dense grid does better in any cell."""
  rng, C, A_grid = np.random.default_rng(1), np.geomspace(1, 50, 9), np.linspace(0, 1, 101)
  mids, B = fit.mid_grid(C), np.geomspace(0.3, 3.0, 501)
  s = sigmoid(C, 0.0, 1.0, B[:, None], mids[:, None, None])  # [mid, B, N]
  a, squares = A_grid[:, None, None] - 0.3, (s * s).sum(-1)
  for noise in rng.normal(0, 0.02, size=(20, 9))[[0, 8, 19]]:  # with the last two, 201 values of B mislead
    R = sigmoid(C, 0.3, 0.8, 1.0, 7.0) + noise
    best = (a * a * squares - 2 * a * (s @ (R - 0.3)) + np.square(R - 0.3).sum()).min()
    assert fit.fit(C, R, 0.3, A_grid, mids).error <= best + 1e-12


# Workdirs.

STEPS = range(0, 65, 5)


def a_run(workdir, seed=0, truth=(0.8, 1.2, 4000.0), noise=0.004, steps=STEPS, **changes):
  """A run that follows the sigmoid from 0.3; 200 tokens a step, and a cold start that counts its own."""
  config = base.get_config("tiny")
  config.seed = seed
  with config.unlocked():
    config.update_from_flattened_dict(changes)
  rng = np.random.default_rng([seed, 7])
  records = [dict(step=9, wall=0.0, kind="cold_start", num_tokens=10**9)]
  for step in range(steps[-1] + 1):
    if step:
      records.append({"step": step, "wall": 1.0, "kind": "train", "num_tokens": 200, "time/step": 2.0})
    if step in steps:
      right = sigmoid(200 * step, 0.3, *truth) if step else 0.3
      records.append({"step": step, "wall": 1.0, "kind": "eval", runs.METRIC: right + rng.normal(0, noise)})
  workdir.mkdir(parents=True)
  (workdir / "config.json").write_text(config.to_json_best_effort())
  (workdir / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
  return str(workdir)


def several(folder, S=3, **how):
  return [a_run(folder / f"seed{seed}", seed, **how) for seed in range(S)]


def test_runs_that_follow_a_sigmoid_are_fitted_and_their_end_is_predicted(tmp_path):
  """Of three seeds that end at different heights; their mean is the sigmoid of the mean height."""
  ends = enumerate((0.76, 0.8, 0.84))
  names = [a_run(tmp_path / f"{seed}", seed, (A, 1.2, 4000.0), noise=0.0) for seed, A in ends]
  (row,) = command.collect(names, "tokens", 0.0)["rows"]
  assert row["seeds"] == [0, 1, 2] and row["compute"] == [200.0 * step for step in STEPS]
  assert row["fit"]["R0"] == pytest.approx(np.mean([accuracy[0] for accuracy in row["accuracy"]]))
  for name, true in (("A", 0.8), ("B", 1.2), ("C_mid", 4000)):
    low, high = row["fit"][f"{name}_interval"]
    assert row["fit"][name] == pytest.approx(true, rel=0.05) and low <= row["fit"][name] <= high
  assert row["half"]["until"] == 6000 and row["half"]["points"] == 6 and row["fit"]["points"] == 12
  end = row["end"]
  assert end["compute"] == 12_000 and end["inside"] is True
  assert end["interval"][0] <= end["measured"] <= end["interval"][1]


def test_an_end_that_the_first_half_does_not_foresee_is_outside(tmp_path):
  names = several(tmp_path)
  for name in names:
    path = tmp_path / name / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
      if record["kind"] == "eval" and record["step"] > 30:
        record[runs.METRIC] = 0.35  # it collapses
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
  found = command.collect(names, "tokens", 0.0)
  end = found["rows"][0]["end"]
  assert end["inside"] is False and end["interval"][0] > 0.35
  assert "outside the interval" in command.page.verdicts(found)[0]


def test_the_order_of_runs_is_nothing_and_the_unit_scales_c_mid_alone(tmp_path):
  names = several(tmp_path, S=2)
  first = command.collect(names, "tokens", 0.0)["rows"]
  assert command.collect(names[::-1], "tokens", 0.0)["rows"] == first
  for unit, size in (("steps", 200), ("seconds", 100)):
    (row,) = command.collect(names, unit, 0.0)["rows"]
    assert row["fit"]["A"] == first[0]["fit"]["A"]
    for name, scale in (("B", 1), ("C_mid", size)):
      np.testing.assert_allclose(scale * row["fit"][name], first[0]["fit"][name], rtol=1e-6)


def test_recipes_are_told_apart_and_the_best_comes_first(tmp_path):
  rate = {"optimizer.learning_rate": 0.5}
  low = several(tmp_path / "low", S=2, truth=(0.6, 1.5, 3000.0))
  high = several(tmp_path / "high", S=1, truth=(0.9, 1.5, 3000.0), **rate)
  found = command.collect([low[0], *high, low[1]], "tokens", 0.0)
  first, second = found["rows"]
  assert (first["seeds"], second["seeds"]) == ([0], [0, 1])
  assert (first["label"], second["label"]) == ("high", "low"), "a study keeps a row's runs in its folder"
  assert first["fit"]["A"] > second["fit"]["A"]
  assert "interval" not in first["end"] and "interval" in second["end"]
  assert "one seed: no interval" in command.page.verdicts(found)[0]
  assert any("With 2 seeds no bootstrap interval reaches 95 %" in note for note in command.page.notes(found))


def test_recipes_of_one_folder_are_named_by_what_they_change(tmp_path):
  names = [a_run(tmp_path / "low", 0), a_run(tmp_path / "high", 0, **{"optimizer.learning_rate": 0.5})]
  rows = command.collect(names, "tokens", 0.0)["rows"]
  assert sorted(row["label"] for row in rows)[1] == "grpo, learning_rate=0.5"


def test_burn_in_leaves_out_and_unfinished_seeds_shorten_the_curve(tmp_path):
  names = [a_run(tmp_path / "a", 0), a_run(tmp_path / "b", 1, steps=range(0, 55, 5))]
  (row,) = command.collect(names, "tokens", 1500.0)["rows"]
  assert row["left_out"] == 2 and row["steps"][-1] == 50
  assert row["fit"]["points"] == 9  # 2000, 3000, ..., 10000 tokens
  with pytest.raises(ValueError, match="grpo: 3 evaluations lie between --burn_in=2500 and half of the"):
    command.collect(names, "tokens", 2500.0)


def test_a_flat_curve_says_so_instead_of_b_and_c_mid(tmp_path):
  found = command.collect(several(tmp_path, S=1, truth=(0.3, 1.0, 4000.0), noise=0.0), "tokens", 0.0)
  cells = dict(zip(command.page.HEAD, command.page.body(found)[0], strict=True))
  assert cells["B, exponent"] == cells["C_mid"] == "no gain" and cells["A, asymptote, %"] == "30.0"
  assert "there is no gain" in command.page.verdicts(found)[0]


def refused(names, sentence, **how):
  with pytest.raises(ValueError, match=sentence):
    command.collect(names, how.get("unit", "tokens"), how.get("burn_in", 0.0))


def test_what_cannot_be_fitted_is_one_sentence(tmp_path):
  one, again = a_run(tmp_path / "one"), a_run(tmp_path / "again")
  refused([], r"no run is named; write workdirs, as in `grpojax scale runs/gspo-0")
  refused([str(tmp_path)], "is no run: it has no config.json of one")
  refused([one, again], r"one' and '.*again' are of one recipe and one seed, 0: leave one out")
  refused([one], r"--burn_in=-1 is an amount of compute", burn_in=-1.0)
  few = a_run(tmp_path / "few", steps=range(0, 65, 20))
  refused([few], r"grpo: 1 evaluations lie between --burn_in=0 and half .* evaluate more often \(config.eval")
  late = a_run(tmp_path / "late", seed=3, steps=range(5, 65, 5))
  refused([late], "late' has no evaluation before training")
  other = a_run(tmp_path / "other", seed=4, **{"eval.samples": 16})
  refused([one, other], r"other' has other data or another evaluation than .*one' \(config.eval.samples = 16")


def test_the_command_prints_its_table_and_writes_a_page_without_scripts(tmp_path, monkeypatch, capsys):
  names, out = several(tmp_path / "<b>", S=2, name="<i>grpo"), tmp_path / "out"
  monkeypatch.setattr(sys, "argv", ["grpojax scale", *names, f"--out={out}"])
  monkeypatch.setenv("COLUMNS", "90")
  command.command()
  said = capsys.readouterr().out
  assert "A, asymptote, %" in said and "<i>grpo: fitted to the 6 evaluations up to 6 k tokens" in said
  found = json.loads((out / "scale.json").read_text())
  assert found["unit"] == "tokens" and found["rows"][0]["runs"] == names
  page = (out / "scale.html").read_text()
  assert "<i>grpo" not in page and "&lt;i&gt;grpo" in page and "<script" not in page
  drawings = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
  assert len(drawings) == 2
  for svg in drawings:
    ElementTree.fromstring(svg)
    assert not re.search(r"#(?!010101)[0-9a-f]{6}", svg)
  monkeypatch.setattr(sys, "argv", ["grpojax scale", str(tmp_path / "none")])
  with pytest.raises(ValueError, match=r"RUN=.*none is no run"):
    command.command()
