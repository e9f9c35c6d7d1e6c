"""The laboratory of mismatch: its gradients against autodiff and formulas by hand, and its verdicts."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.estimator_lab import policy
from experiments.mismatch_lab import __main__ as lab
from experiments.mismatch_lab import causes, claims, compare, corrections, decoders, measure, report
from experiments.mismatch_lab.corrections import CORRECTIONS, EXACT, NONE
from experiments.mismatch_lab.decoders import WORLD
from experiments.mismatch_lab.measure import Estimate
from experiments.mismatch_lab.size import FAST
from grpojax.objective import correct

ROOT = Path(__file__).parents[2]
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def scenes():
  """Scenes by cause, of policies that are random instead of trained."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(decoders, "trained", lambda experts, number, _: init(experts, number))
    causes.scene.cache_clear()
    yield lambda cause: causes.scene(cause, 0, FAST)
  causes.scene.cache_clear()


def init(experts: int, number: int) -> dict:
  params = decoders.model(experts).init(jax.random.key(number))
  return params | {"embedding": params["embedding"] * 3}


def score(learner) -> np.ndarray:
  """∇ log π of every answer, [N, D]."""
  picked = learner.slope[WORLD.state, WORLD.token]
  return (picked * WORLD.mask[..., None]).sum(1)


@slow
def test_the_gradient_is_autodiffs_and_the_sampler_is_the_learner(scenes):
  scene, params = scenes("none"), init(0, 0)
  slope = jax.jit(jax.grad(lambda p: decoders.expected_reward(0, p)))(params)
  slope = np.concatenate([np.asarray(x).ravel() for x in jax.tree.leaves(slope)])
  assert np.linalg.norm(slope) > 0.1
  np.testing.assert_allclose(scene.goal, slope, atol=1e-5 * np.linalg.norm(slope))
  np.testing.assert_allclose(np.exp(scene.learners["own"].table).sum(-1), 1, atol=1e-6)
  np.testing.assert_allclose(scene.sampler, scene.learners["own"].table, atol=1e-5)


@slow
@pytest.mark.parametrize("name", ["none", "Π ρ, not truncated", "TIS of sequences", "MIS"])
def test_moments_are_those_of_the_formula_over_ordered_pairs(scenes, name):
  """ĝ of a pair is ½ (R_i − R_j) (w_i ∇_i − w_j ∇_j); no objective of the project, no multisets."""
  scene = scenes("attended padding")
  own = scene.learners["own"]
  mu = policy.probability(WORLD, scene.sampler)
  ratio = policy.probability(WORLD, own.table) / mu
  w = {"none": ratio**0, "Π ρ, not truncated": ratio, "TIS of sequences": np.minimum(ratio, 2)}
  w = w.get(name, np.where(ratio <= 2, ratio, 0))
  moved = w[:, None] * score(own)
  mean = ((WORLD.reward - mu @ WORLD.reward) * mu) @ moved
  gram = moved @ moved.T
  of_pair = gram.diagonal()[:, None] + gram.diagonal()[None] - 2 * gram
  square = mu @ (0.25 * (WORLD.reward[:, None] - WORLD.reward) ** 2 * of_pair) @ mu
  e = measure.estimate(CORRECTIONS[name], scene)
  size2 = scene.goal @ scene.goal
  scale = mean @ scene.goal / size2
  assert e.scale == pytest.approx(scale, rel=1e-6)
  assert e.bias == pytest.approx(np.linalg.norm(mean / scale - scene.goal) / size2**0.5, rel=1e-3, abs=1e-5)
  assert e.variance == pytest.approx(2 * (square - mean @ mean) / (scale**2 * size2), rel=1e-6)
  assert e.k3 == pytest.approx(e.k1, rel=1e-3) and e.gap > 1e-3 and e.ess < 0.9999


def the_other_way_round(batch):
  return 1 / correct.sequence_truncated_is(batch, high=1e8)


def of_the_first_token(batch):
  return correct.truncated_is(batch, high=1e8)[..., :1]


def a_mean_over_tokens(batch):
  return correct.sequence_truncated_is(batch, high=1e8) ** (1 / batch.mask.shape[-1])


@slow
@pytest.mark.parametrize("wrong", [the_other_way_round, of_the_first_token, a_mean_over_tokens])
def test_a_planted_bug_in_the_ratio_leaves_the_bias(scenes, wrong):
  scene = scenes("attended padding")
  without = measure.estimate(NONE, scene).bias
  assert measure.estimate(EXACT, scene).bias < compare.RESTORED * without
  planted = corrections.correct(f"{__name__}:{wrong.__name__}")
  assert measure.estimate(planted, scene).bias > compare.RESTORED * without


@slow
def test_kept_sets_are_exact_for_the_truncated_policy_and_only_for_it(scenes):
  kept = corrections.REPLAYS["top-p"]["kept set"]
  whole, truncated = scenes("top-p"), scenes("top-p, truncated policy")
  exact = measure.estimate(kept, truncated)
  assert exact.gap < 1e-5 and exact.bias < 1e-4 and exact.scale == pytest.approx(1, abs=1e-4)
  for scene, correction in ((whole, kept), (truncated, NONE), (truncated, EXACT), (whole, EXACT)):
    assert measure.estimate(correction, scene).bias > 0.01


@slow
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(scenes, tmp_path, monkeypatch):
  few = {name: causes.CAUSES[name] for name in ("none", "attended padding")}
  for module in lab, report:
    monkeypatch.setattr(module, "CAUSES", few)
  monkeypatch.setattr(claims, "ALL", (claims.same_code_has_no_gap,))
  lab.main(["--fast", f"--out={tmp_path}"])
  files = {name: (tmp_path / name).read_bytes() for name in ("points.jsonl", "results.json", "tables.md")}
  assert (tmp_path / "corrections.png").stat().st_size > 10_000
  assert b'"verdict": "holds"' in files["results.json"]
  lines = files["points.jsonl"].splitlines(keepends=True)
  (tmp_path / "points.jsonl").write_bytes(b"".join(lines[:-3]) + lines[-3][:50])
  lab.main(["--fast", f"--out={tmp_path}"])
  assert {name: (tmp_path / name).read_bytes() for name in files} == files


def estimate(**changes) -> Estimate:
  return Estimate(0.1, 0.01, 0.01, 0.9, 0.0, 1.0, 0.1, 50.0)._replace(**changes)


@pytest.mark.parametrize(
  ("biases", "word"),
  [
    ((0.001, 0.0011, 0.0009), "restores"),
    ((0.05, 0.051, 0.052), "reduces"),
    ((0.2, 0.21, 0.19), "adds"),
    ((0.01, 0.5, 0.1), "cannot be told"),
    ((0.1, 0.1, 0.1), "never acts"),
    ((0.1, float("nan"), 0.1), "no signal"),
  ],
)
def test_verdicts(biases, word):
  found = [estimate(bias=bias) for bias in biases]
  assert compare.verdict(found, [estimate()] * 3) == word
  assert word in compare.VERDICTS


def test_where_nothing_is_wrong_nothing_is_restored():
  fine = [estimate(bias=2e-6, variance=v) for v in (50.0, 50.1, 50.2)]
  assert compare.verdict(fine, [estimate(bias=1e-6)] * 3) == "no bias"
  assert compare.verdict([estimate(bias=0.1)] * 3, fine) == "adds"


def test_the_page_has_the_verdicts_of_the_committed_results():
  results = json.loads((ROOT / "docs" / "results" / "mismatch_lab" / "results.json").read_text())
  page = (ROOT / "docs" / "mismatch_lab.md").read_text()
  for claim in results["claims"]:
    cells = (claim["text"], claim["source"], claim["rule"], claim["verdict"])
    assert "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" in page
  assert report.verdicts_table(results["rows"]).strip() in page
