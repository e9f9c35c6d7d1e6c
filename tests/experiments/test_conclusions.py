"""What studies conclude from results.json: the map of regimes, the frontier of equal compute, the ladder."""

import numpy as np
import pytest

from experiments import dapo_ablation, isocompute, ladder, long_chains, pass_at_k, regimes
from grpojax.data.mini_aime import MiniAimeConfig
from grpojax.recipes import cispo, dapo, scale_rl
from grpojax.tools.study import plan, statistics


def difference(*values: float) -> dict:
  mean, low, high = statistics.estimate(values)
  return dict(seeds=list(range(len(values))), values=list(values), mean=mean, low=low, high=high)


def of_regimes(**effects: tuple) -> dict:
  """results.json of all rows, whose effects are "regime; way: row" -> values; else nothing, narrowly."""
  rows, group = [], ""
  for row in regimes.rows("tiny"):
    found = difference(*effects.get(row.label, (0.001, -0.001, 0.0, 0.002, -0.002, 0.0)))
    first, group = row.group != group, row.group
    keys = ("over_first", "over_first_at_equal_tokens")
    rows.append(dict(label=row.label, name=row.name) | dict.fromkeys(keys, None if first else found))
  curve = dict(steps=[1, 2], tokens=[[1, 2]], values=[[0.1, 0.3]])
  return dict(rows=rows, curves={row["label"]: {"clip_ratio/high_mean": curve} for row in rows})


GAIN, WIDE = (0.05, 0.06, 0.04, 0.05, 0.06, 0.04), (-0.09, 0.09, 0.05, -0.05, 0.1, -0.1)


def test_the_map_says_what_a_part_adds_whichever_way_it_was_measured():
  """What gets better without a part is hurt by it; a wide interval is no nothing."""
  results = of_regimes(**{
    "default; one in: + clip-higher": GAIN,
    "default; one out: - clip-higher": GAIN,
    "default; one in: + token-level loss": WIDE,
    "default; one in: + overlong filtering": GAIN[:4],
  })  # fmt: skip
  section = regimes.the_map("Map", "over_first")(results)
  said = {(regime, part): cells for regime, part, *cells in section.body}
  helps, hurts = said["default", "clip-higher"]
  assert helps.startswith("helps +5.0 [+4") and hurts.startswith("hurts -5.0 [-5")
  low, high = hurts.removeprefix("hurts -5.0 [").removesuffix("]").split(", ")
  assert float(low) < -5 < float(high) < 0
  assert said["default", "token-level loss"][0].startswith("not told")
  assert said["default", "overlong filtering"][0].endswith(", of 4 seeds: too few to tell")
  assert said["rambling 0.6", "overlong filtering"][0].startswith("nothing")
  assert len(section.body) == 5 + 2 + 2 * 2 + 3 * 2 + 2 + 2 * 2  # of each regime its own parts


def test_effects_along_a_knob_have_the_default_where_it_lies():
  results = of_regimes(**{"default; one in: + clip-higher": GAIN})
  (updates, *_) = regimes.KNOBS
  section = regimes.along(updates)(results)
  assert section.head == ["updates =", "1", "8", "16"]
  one_in, one_out = section.lines
  assert one_in.x.tolist() == [1, 8, 16] and one_in.label == "clip-higher, one in"
  np.testing.assert_allclose(one_in.mean, [0, 5, 0], atol=1e-9)
  np.testing.assert_allclose(one_out.mean, 0, atol=1e-9)
  assert section.body[0][2].startswith("+5.0")
  shown = regimes.phenomena(results)
  assert shown.body[0][:2] == ["default", "20"]  # % of tokens, mean of .1 and .3


def test_rows_that_were_not_run_are_not_in_the_map():
  results = of_regimes()
  results["rows"] = [row for row in results["rows"] if row["label"].startswith("default; one in")]
  body = regimes.the_map("Map", "over_first")(results).body
  assert [cells[0] for cells in body] == ["default"] * 5 and {cells[3] for cells in body} == {"not run"}
  assert regimes.along(regimes.KNOBS[0])(results) is None
  results = of_regimes()
  results["rows"] = [row for row in results["rows"] if row["label"].startswith("long chains; rambling 0; ")]
  body = regimes.the_map("Map", "over_first")(results).body
  assert {cells[0] for cells in body} == {"long chains; rambling 0"}, "and not 'rambling 0'"
  assert regimes.phenomena(results)
  results["curves"] = {label: x for label, x in results["curves"].items() if "naive" not in label}
  assert regimes.phenomena(results) is None


def test_one_in_and_one_out_differ_by_the_part_alone(tmp_path):
  rows = {row.label: row.changes for row in regimes.rows("mini")}
  for part, own in regimes.PARTS.items():
    naive, more = rows["default; one in: naive GRPO"], rows[f"default; one in: + {part}"]
    full, less = rows["default; one out: full DAPO"], rows[f"default; one out: - {part}"]
    assert naive == {} and more == own and less | own == full and set(full) - set(less) == set(own)
  assert rows["default; one out: full DAPO"] == dapo_ablation.study("mini").rows[-1].changes


def test_the_demonstration_of_a_long_chain_is_right_unless_it_is_to_slip():
  clean, flawed = (MiniAimeConfig(name="x", wrong=share, rambling=share) for share in (0.0, 1.0))
  for chain in [(17, 9, 24), (2, 2, 8), (99, 20, 32)]:
    start, step, times = chain
    row = long_chains.to_row(*chain, clean)
    lines = row["demonstration"].partition("\n")[0].split(";")
    assert lines == [f"{times - i}:{start + step * i}" for i in range(times + 1)]
    assert row["answer"] == str(start + step * times) == row["demonstration"].partition("#")[2]
    wrong = long_chains.to_row(*chain, flawed)
    assert wrong["answer"] == row["answer"] and not wrong["demonstration"].endswith(f"#{row['answer']}")
    assert "hm, again: " in wrong["demonstration"]


def test_splits_of_long_chains_share_no_question_and_too_many_rows_are_refused():
  drawn = long_chains.draw(0, dict(train=500, validation=50, test=50))
  assert len({chain for rows in drawn.values() for chain in rows}) == 600
  with pytest.raises(ValueError, match=r"config.data.test = 99999 rows, but long_chains has 1 to \d+"):
    long_chains.draw(0, dict(train=1, validation=1, test=99_999))


# The ladder.


def test_the_ladders_rungs_are_the_recipes_that_have_their_names(tmp_path):
  made = plan.make(ladder.study("tiny"), tmp_path, 1, [], [])
  of = {run.row.label: run.config for run in made}
  slots = ("advantage", "rescale", "ratio", "surrogate", "aggregate", "select", "shape", "penalty")
  recipes = {"ladder: DAPO": dapo, "ladder: CISPO": cispo}
  recipes |= {"ladder: ScaleRL": scale_rl, "one out: ScaleRL": scale_rl}
  for label, recipe in recipes.items():
    wanted, found = recipe.get_config("tiny"), of[label]
    for slot in slots:
      assert found.objective[slot].to_dict() == wanted.objective[slot].to_dict(), (label, slot)
    for section in ("dynamic_sampling", "difficulty", "moment"):
      assert found[section].to_dict() == wanted[section].to_dict(), (label, section)
    if recipe is scale_rl:
      assert found.model.head_dtype == wanted.model.head_dtype == "float32"
  assert {config.model.dtype for config in of.values()} == {"bfloat16"}
  assert sum(label.startswith("one out: - ") for label in of) == 6


# Equal compute.


def of_shapes(accuracy: np.ndarray, shapes: list[tuple[int, int]], C: list[int]) -> dict:
  """results.json of accuracies [R, S, N] of shapes (n, prompts) at C [N]; all start from 0."""
  rows, curves = [], {}
  for (n, prompts), of_row in zip(shapes, accuracy, strict=True):
    label = f"{prompts} prompts: n = {n}"
    changes = {"rollout.group_size": n, "rollout.prompts": prompts}
    rows.append(dict(label=label, changes=changes, final=dict(seeds=list(range(len(of_row))))))
    steps = [0, *(c // (n * prompts) for c in C)]
    curves[label] = {isocompute.PASS: dict(steps=steps, values=np.pad(of_row, ((0, 0), (1, 0))).tolist())}
  return dict(rows=rows, curves=curves)


def test_the_frontier_has_the_best_shape_at_each_compute_and_only_records():
  """Small groups win early, large ones late; the third amount of compute is no record."""
  shapes, C = [(2, 8), (4, 8), (16, 8)], [128, 256, 512, 1024, 2048]
  mean = np.array([[0.3, 0.35, 0.3, 0.4, 0.41], [0.2, 0.4, 0.38, 0.5, 0.52], [0.1, 0.2, 0.3, 0.45, 0.6]])
  results = of_shapes(mean[:, None] + np.array([[0.0], [0.001], [-0.001]]), shapes, C)
  section = isocompute.frontier(results)
  assert [row[1].split()[0] for row in section.body] == ["2", "4", "4", "4", "16"]
  assert [row[-1] for row in section.body] == ["yes", "yes", "no", "yes", "yes"]
  assert [row[3] for row in section.body] == ["8", "8", "16", "32", "16"]  # steps of the best shape
  assert section.body[0][1] == "2 [2, 2]" and section.body[0][4] == "30.0"
  (line,) = section.lines
  assert line.x.tolist() == [128, 256, 1024, 2048] and line.mean.tolist() == [2, 4, 4, 16]
  assert "determine no sigmoid" in section.note  # three numbers
  by_size = isocompute.by_size(results)
  assert by_size.body[0][:2] == ["2", "30.0 (8)"] and len(by_size.lines) == 3


def test_a_sigmoid_is_told_of_records_that_determine_one():
  one_jump = np.array([8, 4, 4, 4, 4, 4, 4, 4])
  steady = isocompute.sigmoid(128 * 2 ** np.arange(8), np.array([2, 2, 4, 8, 16, 16, 16, 32]), 32)
  assert steady.startswith("Sigmoid of log2 n* in log C: from 2 to 22.6, half of it")
  said = isocompute.sigmoid(2048 * np.arange(1, 9), one_jump, 32)
  assert said.startswith("The records determine no sigmoid: the best fit's exponent is 10")


def test_seeds_that_disagree_widen_the_interval_of_n():
  values = np.array([[[0.5], [0.1]], [[0.2], [0.45]]])  # the first seed prefers n = 2, the second n = 8
  section = isocompute.frontier(of_shapes(values, [(2, 8), (8, 8)], [128]))
  assert section.body[0][1] == "8 [2, 8]"
  one = isocompute.frontier(of_shapes(values[:, :1], [(2, 8), (8, 8)], [128]))
  assert one.body[0][1] == "2" and "No sigmoid is fitted" in one.note


@pytest.mark.parametrize("scale", ["mini", "tiny"])
def test_every_row_spends_the_same_completions_and_is_evaluated_at_the_same_amounts(scale, tmp_path):
  at = set()
  for run in plan.make(isocompute.study(scale), tmp_path, 1, [], []):
    c = run.config
    cost = c.rollout.prompts * c.rollout.group_size
    assert cost * c.steps == isocompute.COMPLETIONS[scale] and c.steps % c.eval.every == 0
    at.add(tuple(cost * step for step in range(0, c.steps + 1, c.eval.every)))
  assert len(at) == 1


def test_pass_at_k_is_compared_with_what_the_policy_could_do_before():
  """Of each row its own start, by seed: surer of what it could do, and no more."""
  curves = {
    "entropy": dict(values=[[0.5], [0.4]]),
    "eval/pass@1": dict(values=[[0.2, 0.3, 0.6], [0.4, 0.5, 0.6]]),
    "eval/pass@32": dict(values=[[0.9, 0.9, 0.8], [0.8, 0.8, 0.7]]),
  }
  section = pass_at_k.over_k(dict(rows=[dict(label="GRPO")], curves={"GRPO": curves}))
  (row,) = section.body
  assert section.head[1:4] == ["pass@1 before", "after", "change"] and len(section.head) == len(row) == 7
  assert row[1].startswith("30.0") and row[2].startswith("60.0") and row[3].startswith("+30.0 [+20.0, +40.0]")
  assert row[6].startswith("-10.0 [-10.0, -10.0]")
