"""Credit for turns: the stored cases, whose numbers another program computed, and what holds of any turns.

tests/data/turn_cases.json has whole trajectories as rows; some cases of variants_cases.json have turns as
rows.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from objective_cases import LOSSES, assert_float32, assert_float64, given
from objective_toys import bound, random_batch

from grpojax import objective as lib
from grpojax.objective import advantage, aggregate
from grpojax.rollout import anchors
from grpojax.types import Batch, Turns

CASES = {
  case["name"]: case
  for case in json.loads((Path(__file__).parents[1] / "data" / "turn_cases.json").read_text())
}
SHARED = "denominator_shared_by_a_trajectory"
ROWS_ARE_TURNS = [name for name, case in LOSSES.items() if case["hyper"]["adv"]["kind"] == "gigpo"]
AGGREGATE = {
  "token-mean": "token_mean",
  "turn-mean-token-mean": "turn_mean",
  "seq-mean-token-mean": "sequence_mean",
  "traj-mean-token-mean": "sequence_mean",  # a trajectory is one row
  "traj-mean-turn-mean-token-mean": "trajectory_turn_mean",
}


P, G, T, U = 2, 4, 12, 4  # all cases are padded to one shape, so that few programs are made


def batch_of(case: dict) -> Batch:
  """A case's arrays [B][T] as a Batch [P, G, T]; the rows of the padding are not valid."""
  extra = case["extra"]
  rows, turns = len(case["mask"]), len(extra["turn_reward"][0])
  row, token, turn = (lambda x, n=n, fill=0: _filled(case, x, n, fill) for n in ((), (T,), (U,)))
  return Batch(
    mask=token(case["mask"]) * 1.0,
    reward=row(case["rewards"]) * 1.0,
    accuracy=row(case["rewards"]) * 1.0,
    valid=row(np.ones(rows, bool) if case["valid"] is None else case["valid"]),
    ended=row(np.ones(rows, bool)),
    old_logp=token(case["logp_old"]),
    turns=Turns(
      index=token(extra["turn"], fill=-1),
      count=row(extra["n_turns"]),
      reward=turn(extra["turn_reward"]) * 1.0,
      anchor=turn(extra["anchor"]),
      invalid=turn(extra.get("invalid_action", np.zeros((rows, turns)))) > 0,
    ),
    extra={"given": token(case.get("advantages", case["mask"])) * 1.0},
  )


def _filled(case: dict, x, columns: tuple, fill):
  x = np.reshape(x, (-1, case["group_size"], *np.shape(x)[1:]))
  return np.pad(x, [(0, n - m) for n, m in zip((P, G, *columns), x.shape, strict=True)], constant_values=fill)


def as_one_trajectory(case: dict) -> dict:
  """A history that was rewritten: the two rows of its trajectory, end to end."""
  joined = {
    key: [[*case[key][0], *case[key][1]]]
    for key in ("mask", "logp", "logp_old", "advantages", "expected_advantages", "expected_grad_logp")
  }
  extra = dict(
    turn=[[0, 0, 0, 1, -1, 2, -1, -1, -1, -1]], n_turns=[3], turn_reward=[[0] * 3], anchor=[[0] * 3]
  )
  return case | joined | dict(rewards=[0], group_size=1, extra=extra)


def objective_of(case: dict) -> lib.Objective:
  hyper = case["hyper"]
  adv, clip = dict(hyper["adv"]), hyper["clip"]
  kind = adv.pop("kind")
  if "mode" in adv:
    adv["std"] = adv.pop("mode") == "mean_std_norm"
  if kind in ("given", "dr_grpo"):
    chosen = dict(fn="center")
  else:
    chosen = dict(fn=kind, **adv)
  surrogate = dict(fn=dict(ratio="linear", reinforce="reinforce").get(clip["kind"]))
  if clip["kind"] == "ppo":
    surrogate = dict(fn="ppo_clip", low=clip["eps_low"], high=clip["eps_high"])
  config = dict(
    advantage=chosen,
    rescale=dict(fn="identity"),
    ratio=dict(fn="token"),
    surrogate=surrogate,
    aggregate=dict(fn=AGGREGATE[hyper["agg"]["kind"]]),
  )
  built = lib.build(config)
  return built._replace(advantage=Partial(given)) if kind == "given" else built


@jax.jit
def run(objective, logp, batch):
  batch = lib.prepare(objective, batch)
  loss, grad = jax.value_and_grad(lambda x: lib.loss(objective, x, batch)[0])(logp)
  return loss, grad, batch.advantage


def solve(case: dict):
  """Loss, gradient by log π and advantages, [B, T] as in the case."""
  loss, *arrays = run(objective_of(case), _filled(case, case["logp"], (T,), 0), batch_of(case))
  groups, tokens = len(case["mask"]) // case["group_size"], len(case["mask"][0])
  cut = lambda x: np.asarray(x)[:groups, : case["group_size"], :tokens].reshape(-1, tokens)
  return loss, *map(cut, arrays)


@pytest.mark.parametrize("name", CASES)
def test_a_case_holds_in_float64(name):
  case = as_one_trajectory(CASES[name]) if name == SHARED else CASES[name]
  with jax.enable_x64(True):
    loss, grad, adv = solve(case)
  np.testing.assert_allclose(adv, case["expected_advantages"], atol=1e-10, rtol=1e-10)
  assert_float64(case, loss, grad)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_case_holds_in_float32(name):
  case = as_one_trajectory(CASES[name]) if name == SHARED else CASES[name]
  loss, grad, adv = solve(case)
  assert adv.dtype == np.float32
  np.testing.assert_allclose(adv, case["expected_advantages"], atol=1e-5, rtol=1e-5)
  assert_float32(case, loss, grad)


@pytest.mark.parametrize("name", ROWS_ARE_TURNS)
def test_a_case_whose_rows_are_turns_has_the_advantages_of_its_trajectories(name):
  case = LOSSES[name]
  extra, adv = case["extra"], dict(case["hyper"]["adv"])
  row = np.unique(extra["traj_id"], return_inverse=True)[1]
  turn = np.array([(row[:i] == row[i]).sum() for i in range(len(row))])
  words = [json.dumps(anchor) for anchor in extra["anchor"]]

  def placed(x):
    out = np.zeros((row.max() + 1, turn.max() + 1), np.asarray(x).dtype)
    out[row, turn] = x
    return out

  count, number = np.bincount(row), np.arange(turn.max() + 1)
  on = number < count[:, None]
  group = Batch(
    mask=on * 1.0, reward=placed(case["rewards"])[:, 0], accuracy=None, valid=count > 0, ended=None,
    turns=Turns(
      index=np.where(on, number, -1), count=count, reward=placed(extra["step_rewards"]),
      anchor=placed([words.index(word) for word in words]), invalid=on & False,
    ),
  )  # fmt: skip
  knobs = {key: adv[key] for key in ("gamma", "omega", "eps", "ddof")}
  knobs |= dict(form=adv["episode_stats"], std=adv["mode"] == "mean_std_norm")
  with jax.enable_x64(True):
    got = advantage.gigpo(group, **knobs)
  np.testing.assert_allclose(got[row, turn], np.asarray(case["expected_advantages"])[:, 0], atol=1e-10)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("essa")])
def test_anchors_are_fingerprints_of_the_validators_answers(name):
  extra = CASES[name]["extra"]
  key = lambda kind, *words: anchors.error_anchor(*words) if kind == "write" else (kind, *words)
  keys = [[("prompt", 0), *(key(*answer) for answer in row[:-1])] for row in extra["responses"]]
  for got, want in zip(keys, extra["expected_anchor_keys"], strict=True):
    assert list(map(list, got)) == want
  numbers = anchors.ids([key for row in keys for key in row]).reshape(len(keys), -1)
  same = lambda x: np.ravel(x)[:, None] == np.ravel(x)[None]
  np.testing.assert_array_equal(same(numbers), same(extra["anchor"]))


CREDIT = (advantage.turn_return, advantage.gigpo, advantage.hgpo)


def one_group(seed: int, G: int = 5) -> Batch:
  batch, _ = random_batch(seed, G=G, T=9)
  return jax.tree.map(lambda x: jnp.asarray(x[2]), batch)


@pytest.mark.parametrize("fn", CREDIT)
def test_credit_moves_with_the_rows_and_the_names_of_anchors_do_not_matter(fn):
  group, order = one_group(3), np.array([3, 0, 4, 2, 1])
  shuffled = jax.tree.map(lambda x: x[order], group)
  renamed = group._replace(turns=group.turns._replace(anchor=7 - 3 * group.turns.anchor))
  np.testing.assert_allclose(bound(fn)(shuffled), bound(fn)(group)[order], atol=1e-5)
  np.testing.assert_allclose(bound(fn)(renamed), bound(fn)(group), atol=1e-6)


@pytest.mark.parametrize("fn", CREDIT)
def test_turns_that_were_not_played_and_a_longer_budget_change_nothing(fn):
  group = one_group(4)
  turns, U = group.turns, group.turns.reward.shape[1]
  junk = np.arange(U)[None] >= turns.count[:, None]
  longer = lambda x, fill: jnp.pad(jnp.where(junk, fill, x), ((0, 0), (0, 2)), constant_values=fill)
  other = turns._replace(
    reward=longer(turns.reward, 99.0), anchor=longer(turns.anchor, 5), invalid=longer(turns.invalid, True)
  )
  np.testing.assert_allclose(bound(fn)(group._replace(turns=other)), bound(fn)(group), atol=1e-6)


@pytest.mark.parametrize("fn", CREDIT)
def test_every_token_of_a_turn_has_its_advantage_wherever_it_stands(fn):
  """The advantage of the last turn for all of them, or a mask off by one, would show here."""
  group = one_group(5)
  got, index = np.asarray(bound(fn)(group)), np.asarray(group.turns.index)
  assert np.abs(got[index >= 0]).max() > 0
  np.testing.assert_array_equal(got[index < 0], 0)
  for row, own in zip(got, index, strict=True):
    for turn in set(own[own >= 0]):
      assert len(set(row[own == turn])) == 1
  spread = jnp.asarray(np.roll(index, 1, axis=1))
  moved = bound(fn)(group._replace(turns=group.turns._replace(index=spread)))
  np.testing.assert_array_equal(moved, np.roll(got, 1, axis=1))


def test_hgpo_without_history_is_gigpos_step():
  group = one_group(6)
  step = advantage.gigpo(group, omega=1.0) - advantage.gigpo(group, omega=0.0)
  np.testing.assert_allclose(advantage.hgpo(group, history=0, std=False, eps=0.0), step, atol=1e-5)


def test_one_turn_of_a_completion_is_what_a_completion_is():
  batch, _ = random_batch(7)
  plain = batch._replace(turns=None)
  one = Turns(
    index=np.where(batch.mask > 0, 0, -1), count=np.ones(batch.valid.shape, int),
    reward=batch.reward[..., None], anchor=np.zeros((*batch.valid.shape, 1), int),
    invalid=np.zeros((*batch.valid.shape, 1), bool),
  )  # fmt: skip
  said = batch._replace(turns=one)
  for fn in CREDIT:
    got, want = (jax.jit(jax.vmap(fn))(x) for x in (said, plain))
    np.testing.assert_allclose(got, np.where(batch.mask > 0, want[..., None], 0), atol=1e-6)
  for fn in (aggregate.turn_mean, aggregate.trajectory_turn_mean):
    np.testing.assert_allclose(fn(said), fn(plain), atol=1e-7)
    np.testing.assert_allclose(fn(plain), aggregate.sequence_mean(plain), atol=1e-7)
