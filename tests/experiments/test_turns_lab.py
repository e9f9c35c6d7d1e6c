"""The laboratory of many turns: its enumeration against dynamic programming, statistics, planted errors."""

import inspect
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.estimator_lab import policy
from experiments.estimator_lab.claim import verdict
from experiments.turns_lab import __main__ as lab
from experiments.turns_lab import claims, compare, games, measure, points, worlds
from experiments.turns_lab import draws as draws_lib
from experiments.turns_lab.draws import Source
from experiments.turns_lab.size import FAST, Size
from grpojax.objective import advantage

ROOT = Path(__file__).parents[2]
each_game = pytest.mark.parametrize("game", games.GAMES)
SMALL = Size(policies=1, groups=400)


def expected_return(game: games.Game, theta: np.ndarray) -> float:
  """Returns J by dynamic programming over states, without a list of trajectories."""
  S, A = game.next.shape
  V = game.vocabulary
  log_pi = policy.log_policy(theta)
  log_action = log_pi[:S]
  if game.tokens == 2:
    log_action = (log_pi[:S, :, None] + log_pi[S:].reshape(S, V, V)).reshape(S, A)
  value = np.zeros(S)
  for _ in range(game.turns):
    value = (np.exp(log_action) * (game.reward + ~game.done * value[game.next])).sum(1)
  return float(value[0])


@each_game
def test_every_trajectory_is_listed_and_its_states_come_back(game):
  world, states, _ = worlds.played(game)
  theta = policy.random_policy(world, 3)
  np.testing.assert_allclose(policy.probability(world, theta).sum(), 1, rtol=1e-12)
  np.testing.assert_allclose(
    policy.expected_reward(world, theta), expected_return(games.GAMES[game], theta), rtol=1e-12
  )
  seen = [row[row >= 0] for row in states[:: len(states) // 200]]
  assert np.mean([len(set(row)) < len(row) for row in seen]) > 0.5
  assert world.reward.max() == games.GAMES[game].best


@each_game
def test_the_enumerated_gradient_is_that_of_dynamic_programmings_differences(game):
  world, theta = worlds.played(game).world, worlds.trained(game, 0, 0.2)
  exact = policy.true_gradient(world, theta)
  assert np.linalg.norm(exact) > 0.05
  for i in np.ndindex(*theta.shape):
    step = np.zeros_like(theta)
    step[i] = 1e-5
    up, down = (expected_return(games.GAMES[game], theta + side * step) for side in (1, -1))
    np.testing.assert_allclose(exact[i], (up - down) / 2e-5, atol=1e-9)


@each_game
def test_anchors_go_from_fine_to_coarse(game):
  states, kinds = worlds.played(game)[1:]
  numbers = {kind: x[states >= 0] for kind, x in kinds.items()}
  assert list(numbers) == list(points.LEVELS)
  for fine, coarse in (("history", "state and turn"), ("state and turn", "state"), ("state", "observation"),
                       ("answer", "fingerprint"), ("fingerprint", "none")):  # fmt: skip
    pairs = np.unique(np.stack([numbers[fine], numbers[coarse]]), axis=1)
    assert len(pairs.T) == len(set(numbers[fine])) >= len(set(numbers[coarse]))


def test_values_are_those_of_dynamic_programming():
  """The value of the first turn is J, and returns less it have no mean in any state and turn."""
  game, theta = games.GAMES["key and door"], worlds.trained("key and door", 0, 0.2)
  returns, left = draws_lib.returns_and_rest(game.name, theta, 1.0)
  world, states, _ = worlds.played(game.name)
  np.testing.assert_allclose((returns - left)[:, 0], expected_return(game, theta), rtol=1e-12)
  p = policy.probability(world, theta)
  for turn, state in ((1, 1), (3, 0)):
    here = states[:, turn] == state
    assert here.any() and abs(p[here] @ left[here, turn]) < 1e-12


@pytest.fixture
def tiny(monkeypatch):
  """A game with so few trajectories that every group of two can be listed."""
  monkeypatch.setitem(games.GAMES, "tiny", games.key_and_door()._replace(name="tiny", turns=3, best=0.25))
  return "tiny"


def every_group_of_two(game: str, theta: np.ndarray) -> tuple[draws_lib.Draws, np.ndarray]:
  """Returns all ordered groups of two, padded to whole pieces, and their probabilities."""
  world = worlds.played(game).world
  p = policy.probability(world, theta)
  rows = np.array(list(itertools.product(range(len(p)), repeat=2)))
  rows = np.concatenate([rows, np.zeros((-len(rows) % measure.CHUNK, 2), int)])
  weight = p[rows].prod(1) * (np.arange(len(rows)) < len(p) ** 2)
  return draws_lib.Draws(game, theta, rows, draws_lib._batch(world, theta, rows), 2.0), weight


@pytest.mark.parametrize("point", [points.gigpo(G=2), points.TRAJECTORY._replace(G=2)], ids=["gigpo", "rloo"])
def test_samples_agree_with_every_group_there_is(tiny, point):
  source = Source(tiny, 0, 2, Size(1, 4000))
  drawn = draws_lib.draw(source)
  every, weight = every_group_of_two(tiny, drawn.theta)
  found = measure.gradients(point, every)
  mean, goal = weight @ found, draws_lib.target(source, "return", 1.0, 0.0)
  scale = mean @ goal / (goal @ goal)
  bias2 = ((mean - scale * goal) ** 2).sum() / (scale**2 * goal @ goal)
  variance = (weight @ (found**2).sum(1) - mean @ mean) * drawn.tokens / (scale**2 * goal @ goal)
  (e,) = measure.estimates(point, tiny, source.size)
  assert abs(e.scale - scale) < 4 * e.scale_error < 0.2 * scale
  assert abs(e.variance - variance) < 4 * e.variance_error < 0.4 * variance
  assert abs(e.bias2 - bias2) < 4 * e.bias2_error
  assert (bias2 > 1e-4) == (point.advantage["fn"] == "gigpo")


def test_the_error_of_no_bias_is_what_samples_scatter_by():
  rng, D = np.random.default_rng(0), 6
  goal, found = np.full(D, 10.0), []
  for _ in range(300):
    control = rng.normal(size=(1, 200, D))
    noise = rng.normal(size=(200, D)) * np.arange(1, D + 1)
    found.append(measure.statistics(goal + control[0] + noise, control, np.zeros((1, D)), goal, 1.0))
  bias2, null = np.array([(e.bias2, e.bias2_null) for e in found]).T
  assert abs(bias2.mean()) < 3 * bias2.std() / 300**0.5
  np.testing.assert_allclose(null.mean(), bias2.std(), rtol=0.2)
  scale = np.array([(e.scale, e.scale_error) for e in found])
  np.testing.assert_allclose(scale[:, 1].mean(), scale[:, 0].std(), rtol=0.2)


@each_game
def test_turns_as_rows_are_the_form_rows_of_trajectories(game):
  draws = draws_lib.draw(Source(game, 0, points.G, Size(1, 100)))
  whole = measure.gradients(points.gigpo(form="rows"), draws)
  np.testing.assert_allclose(
    measure.gradients(points.gigpo(form="rows", copies=0.0), draws), whole, atol=1e-12
  )
  assert np.abs(measure.gradients(points.gigpo(form="rows", copies=0.5), draws) - whole).max() > 0.1


def test_copies_are_drawn_once_from_what_was_played():
  draws = draws_lib.draw(Source("grid", 0, points.G, Size(1, 100)))
  batch, *_ = draws_lib.copied(draws, 0.95, 0.5)
  played = worlds.played("grid").world.turns.count[draws.rows].sum(1)
  np.testing.assert_array_equal(batch.valid[:, 0].sum(1), played + np.round(played / 2))


def last_turns_for_all(group, **knobs):
  """The advantage of a trajectory's last token, on all of its tokens."""
  own = advantage_of["turn_return"](group, **knobs)
  last = group.mask.sum(1).astype(int) - 1
  return own[np.arange(len(last)), last][:, None] * group.mask


def discounted_twice(group, *, gamma, **knobs):
  return advantage_of["turn_return"](group, gamma=0.9 * gamma, **knobs)


def divided_by_its_length(group):
  return advantage_of["leave_one_out"](group) / group.mask.sum(1)


advantage_of = {name: getattr(advantage, name) for name in ("turn_return", "leave_one_out")}
# With one reward at the end and γ 1, the last turn's return is the trajectory's, on which nothing is wrong.
PLANTED = (
  (claims.returns_are_unbiased, "turn_return", last_turns_for_all, "holds only if grid or repair"),
  (claims.returns_are_unbiased, "turn_return", discounted_twice, "fails"),
  (claims.trajectory_is_unbiased, "leave_one_out", divided_by_its_length, "fails"),
)


@pytest.mark.parametrize(("claim", "name", "wrong", "seen"), PLANTED)
def test_a_planted_error_is_seen_as_bias(monkeypatch, claim, name, wrong, seen):
  def planted(*args, **knobs):
    return wrong(*args, **knobs)

  planted.__module__, planted.__name__ = advantage.__name__, name
  planted.__signature__ = inspect.signature(advantage_of[name])
  monkeypatch.setattr(advantage, name, planted)
  assert claim(lambda point, game: measure.estimates(point, game, SMALL)).verdict == seen


def test_without_a_planted_error_no_bias_is_seen():
  sound = {claim for claim, *_ in PLANTED}
  for claim in sound:
    found = claim(lambda point, game: measure.estimates(point, game, SMALL))
    assert "fails" not in found.verdict and "holds" in found.verdict


def estimate(**numbers) -> measure.Estimate:
  plain = dict(zip(measure.Estimate._fields, (1, 0, 0, 0, 0, 100, 1, 10), strict=True))
  return measure.Estimate(**plain | numbers)


def test_what_can_be_told():
  quiet, loud = [estimate(variance=v) for v in (50, 60)], [estimate(variance=v) for v in (100, 121)]
  assert compare.noisier(loud, quiet) and compare.noisier(quiet, loud) is False
  assert compare.noisier(loud, [estimate(variance=v) for v in (20, 110)]) is None
  sure, unsure = (estimate(bias2=1e-4, bias2_null=null) for null in (1e-5, 1e-3))
  assert compare.unbiased([sure]) is False and compare.unbiased([unsure]) is None
  assert compare.unbiased([estimate(bias2=-1e-5, bias2_null=1e-5)]) is True
  biased = [estimate(bias2=0.01, variance=50)]
  assert compare.crossing(biased, [estimate()]) == pytest.approx(50 / 0.01)
  assert compare.crossing([estimate(variance=200)], [estimate()]) == 0
  assert biased[0].mse() == pytest.approx(0.01 + 50 / 160)


def test_verdicts_say_what_cannot_be_told():
  assert verdict({"a": None, "b": None}) == "cannot be told"
  assert verdict({"a": True, "b": None, "c": False}) == "holds in a; fails in c; cannot be told in b"


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
  some = points.all_points()[:8]
  monkeypatch.setattr(lab, "all_points", lambda: some)
  lab.main(["--fast", f"--out={tmp_path}"])
  files = {name: (tmp_path / name).read_bytes() for name in ("points.jsonl", "results.json", "tables.md")}
  assert files["tables.md"].count(b"\n| ") > 200 and (tmp_path / "anchors.png").stat().st_size > 10_000
  lines = files["points.jsonl"].splitlines(keepends=True)
  (tmp_path / "points.jsonl").write_bytes(b"".join(lines[:-3]) + lines[-3][:50])
  lab.main(["--fast", f"--out={tmp_path}"])
  assert {name: (tmp_path / name).read_bytes() for name in files} == files
  with pytest.raises(ValueError, match="another size: choose another --out"):
    lab.store.finder(tmp_path / "points.jsonl", FAST._replace(groups=1), measure.estimates, measure.Estimate)


def test_the_page_has_the_verdicts_of_the_committed_results():
  results = json.loads((ROOT / "docs" / "results" / "turns_lab" / "results.json").read_text())
  page = (ROOT / "docs" / "turns_lab.md").read_text()
  assert [claim["name"] for claim in results["claims"]] == [
    claim(lambda point, game: [estimate(), estimate()]).name for claim in claims.ALL
  ]
  for claim in results["claims"]:
    cells = (claim["text"], claim["source"], claim["rule"], claim["verdict"])
    assert "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" in page
