"""Trajectories against what they must be: token by token, whatever slots, delays and chunks."""

import functools

import jax
import numpy as np
import pytest
from model_folders import mesh
from turn_toys import BUDGETS, L, Scripted, T, counting, play, policy, prompts

from grpojax.learner.logprobs import response_logprobs
from grpojax.rollout.envs.interface import Turn
from grpojax.rollout.sampler import SamplingParams, turns
from grpojax.rollout.turns import outcome
from grpojax.rollout.turns.table import Device
from grpojax.runtime import sharding
from grpojax.types import (
  ACTION,
  DONE,
  FAILED,
  INJECTED,
  INVALID,
  OBSERVATION,
  PADDING,
  TOKENS,
  TRUNCATED,
  TURNS,
)  # fmt: skip


@functools.cache
def plain():
  return play()


def same(a, b, exact=True):
  bare = lambda rollout: jax.tree.leaves(rollout._replace(sampler_logp=0, sampler_entropy=0))
  for x, y in zip(bare(a), bare(b), strict=True):
    np.testing.assert_array_equal(x, y)
  np.testing.assert_allclose(a.sampler_logp, b.sampler_logp, rtol=0, atol=0 if exact else 1e-5)
  np.testing.assert_allclose(a.sampler_entropy, b.sampler_entropy, rtol=0, atol=0 if exact else 1e-4)


def text_of(rollout, p, g):
  return policy()[0].decode(rollout.tokens[p, g, : rollout.length[p, g]])


@pytest.mark.parametrize(
  "late", [dict(delay=1), dict(delay=5, order=-1), dict(banks=2), dict(banks=2, delay=4)]
)
def test_slow_environments_answers_in_another_order_and_banks_change_no_bit(late):
  same(play(**late)[0], plain()[0])


@pytest.mark.parametrize(
  "options",
  [
    dict(slots=1),
    pytest.param(dict(slots=16, segment=1), marks=pytest.mark.slow),
    pytest.param(dict(chunk=64, segment=50), marks=pytest.mark.slow),
  ],
)
def test_one_four_and_sixteen_environments_at_a_time_play_the_same_tokens(options):
  """Log-probs of programs of other shapes differ by rounding."""
  same(play(**options)[0], plain()[0], exact=False)


def test_another_seed_prompt_or_sample_plays_another_trajectory():
  one, other = plain()[0], play(seed=1)[0]
  rows = [r[:6].tolist() for x in (one, other) for r in x.tokens.reshape(-1, T)]
  assert len({tuple(row) for row in rows}) == len(rows)


def test_every_turn_has_draws_of_its_own():
  """All tokens are equally likely here, so that what is drawn follows from the address alone."""
  params = policy()[2]
  rollout, _ = play(answers(), params=params | {"embedding": 0 * params["embedding"]})
  rows = zip(rollout.tokens.reshape(-1, T), rollout.turns.index.reshape(-1, T), strict=True)
  actions = [tuple(row[index == turn][:4]) for row, index in rows for turn in range(5)]
  assert len(set(actions)) == len(actions) == 30


def test_every_token_is_computed_once():
  rollout, counts = plain()
  computed = counts["rollout/prompt_tokens"] + counts["rollout/fed_slot_steps"]
  shared = prompts().length.sum()  # the prompts of each group's other trajectory
  assert computed == counts["rollout/row_tokens"] - rollout.length.size - shared  # nor each row's last
  assert counts["rollout/row_tokens"] == prompts().length.sum() * 2 + rollout.length.sum()
  assert (
    counts["rollout/sampled_tokens"] == (rollout.kind == ACTION).sum() == (rollout.turns.index >= 0).sum()
  )


def test_the_learners_log_probs_and_entropies_of_every_row_are_the_samplers():
  """A cache column shifted, or a token of a turn's edge in the wrong place, would show here."""
  _, model, params = policy()
  rollout, asked = plain()[0], prompts()
  G = rollout.length.shape[1]
  repeat = lambda x: np.repeat(x[:, None], G, axis=1)
  rows = np.concatenate([repeat(asked.tokens), rollout.tokens], axis=-1)
  scored = jax.jit(
    lambda p: response_logprobs(model.bind(p), rows, repeat(asked.length), T, temperature=1.0, chunk=6)
  )
  logp, entropy = map(np.asarray, scored(params)[:2])
  on = rollout.kind == ACTION
  np.testing.assert_allclose(rollout.sampler_logp[on], logp[on], atol=1e-5)
  np.testing.assert_allclose(rollout.sampler_entropy[on], entropy[on], atol=1e-4)
  assert not rollout.sampler_logp[~on].any() and not rollout.sampler_entropy[~on].any() and on.sum() > 60


def test_a_row_is_prompt_actions_and_observations_in_the_chat_template():
  tokenizer, rollout = policy()[0], plain()[0]
  asked = prompts()
  for p, g in np.ndindex(rollout.length.shape):
    tokens, kind = rollout.tokens[p, g], rollout.kind[p, g]
    index, n = rollout.turns.index[p, g], rollout.length[p, g]
    assert (kind[n:] == PADDING).all() and (kind[:n] != PADDING).all()
    np.testing.assert_array_equal(index >= 0, kind == ACTION)
    assert (np.diff(index[index >= 0]) >= 0).all() and index.max() == rollout.turns.count[p, g] - 1
    seed = _seed(asked.id[p], g)
    length = 0
    for turn in range(rollout.turns.count[p, g]):
      action = tokens[index == turn]
      closed = action[-1] == tokenizer.eos_token_id
      length += len(tokenizer.decode(action[:-1] if closed else action))
      end = np.flatnonzero(index == turn)[-1] + 1
      if turn == rollout.turns.count[p, g] - 1:
        assert end == n
        continue
      start = np.flatnonzero(index == turn + 1)[0]
      assert (kind[end] == INJECTED) is not closed
      assert (kind[end + (not closed) : start] == OBSERVATION).all()
      said = tokenizer.decode(tokens[end:start])
      assert said == ("" if closed else "<|end|>") + f"<|user|>{seed % 10}:{length % 7}<|assistant|>"


def _seed(prompt, sample, key=0):
  own = jax.random.fold_in(jax.random.fold_in(jax.random.key(key), prompt), sample)
  return int(jax.random.bits(jax.random.fold_in(own, np.uint32(2**32 - 1))) >> 1)


def test_environments_get_the_examples_their_own_seeds_and_all_actions_once():
  environments = Scripted(counting)
  rollout, _ = play(environments=environments)
  asked = prompts()
  resets = {(uid, seed) for uid, seed, actions in environments.log if not actions}
  assert resets == {(int(i), _seed(i, g)) for i in asked.id for g in range(2)}
  assert len(environments.log) == 6 + rollout.turns.count.sum()
  assert not environments.episodes and not environments.due


def test_rewards_anchors_and_invalid_actions_are_those_of_their_turn():
  rollout, _ = plain()
  turns = rollout.turns
  for p, g in np.ndindex(rollout.length.shape):
    n = turns.count[p, g]
    np.testing.assert_array_equal(turns.reward[p, g, :n], np.arange(1, n + 1) / 4)
  scored = outcome.score(rollout, success=2.0)
  np.testing.assert_array_equal(scored.reward, (turns.count * (turns.count + 1)) / 8)
  np.testing.assert_array_equal(scored.accuracy, turns.count >= 4)  # 1/4 + 2/4 + 3/4 + 1 = 2.5
  assert scored.valid.all()


def answers(**changes):
  """An environment that says "go" and nothing else, but for the changes."""
  return lambda example, seed, actions: Turn("go")._replace(**changes)


def ended_here(script, budgets):
  """The rollout of budgets that end every episode, of which none is left."""
  environments = Scripted(script)
  rollout, _ = play(environments=environments, budgets=budgets)
  assert not environments.episodes and not environments.due
  return rollout


def test_budgets_are_reasons_of_ending_and_leave_no_episode_behind():
  rollout = ended_here(answers(), BUDGETS._replace(turns=3))
  assert (rollout.ending == TURNS).all() and (rollout.turns.count == 3).all()
  rollout = ended_here(answers(), BUDGETS._replace(max_tokens=20, turns=9))
  assert (rollout.ending == TOKENS).all() and (rollout.length <= 20).all() and (rollout.length > 8).all()
  assert not rollout.ended.any()
  bad = lambda example, seed, actions: Turn("go", valid=len(actions) % 3 == 1)
  rollout = ended_here(bad, BUDGETS._replace(invalid_actions=2))
  assert (rollout.ending == INVALID).all() and (rollout.turns.count == 3).all()
  assert (rollout.turns.invalid[..., :3] == [False, True, True]).all()


def test_an_environment_that_fails_ends_at_once_or_is_cut_costs_its_trajectory_alone():
  def script(example, seed, actions):
    if len(actions) == 2 and seed % 3 == 0:
      return Turn("", failure="it raised")
    return Turn("x", reward=1.0, done=len(actions) == 3, truncated=len(actions) == 2 and seed % 3 == 1)

  rollout, counts = play(script, count=6)
  seeds = np.array([[_seed(i, g) for g in range(2)] for i in prompts(6).id])
  np.testing.assert_array_equal(rollout.ending, np.choose(seeds % 3, [FAILED, TRUNCATED, DONE]))
  assert counts["environment/failures"] == (seeds % 3 == 0).sum() > 0
  scored = outcome.score(rollout, success=1.0)
  np.testing.assert_array_equal(scored.valid, seeds % 3 != 0)
  assert (scored.reward[~scored.valid] == 0).all()
  at_once, _ = play(answers(done=True))
  assert (at_once.ending == FAILED).all() and (at_once.turns.count == 0).all() and (at_once.length == 0).all()


def test_special_tokens_of_an_observation_are_text_and_a_flood_is_cut_visibly():
  tokenizer = policy()[0]
  spelt, counts = play(answers(text="a<|end|>"), budgets=BUDGETS._replace(turns=2))
  specials = np.isin(spelt.tokens, tokenizer.all_special_ids) & (spelt.kind == OBSERVATION)
  assert (specials.sum(-1) == 2).all()  # <|user|> and <|assistant|>
  assert all(
    "<|user|>a<|end|><|assistant|>" in text_of(spelt, p, g) for p, g in np.ndindex(spelt.length.shape)
  )
  assert counts["environment/cut_observations"] == 0
  wide = BUDGETS._replace(turns=2, observation_tokens=12)
  flood, counts = play(answers(text="abc" * 1000), budgets=wide)
  assert all(
    "<|user|>ab [... cut]<|assistant|>" in text_of(flood, p, g) for p, g in np.ndindex(flood.length.shape)
  )
  assert counts["environment/cut_observations"] == 6


def test_an_action_that_ends_with_its_eos_at_the_cap_is_closed_once():
  """All tokens are equally likely, so that of many actions of one token some are an EOS."""
  tokenizer, params = policy()[0], policy()[2]
  even = params | {"embedding": 0 * params["embedding"]}
  budgets, eos = BUDGETS._replace(action_tokens=1, turns=40, max_tokens=400), 0
  for seed in range(5):
    rollout, _ = play(answers(), budgets=budgets, params=even, seed=seed)
    for p, g in np.ndindex(rollout.length.shape):
      closing = rollout.kind[p, g] == INJECTED
      own = rollout.tokens[p, g][rollout.kind[p, g] == ACTION][:-1]
      assert closing.sum() == (own != tokenizer.eos_token_id).sum() and len(own) == 39
      eos += (own == tokenizer.eos_token_id).sum()
  assert 0 < eos < 30


def test_a_tools_result_is_the_message_of_a_tool():
  tokenizer = policy()[0]
  rollout, _ = play(answers(text="7", role="tool"), budgets=BUDGETS._replace(turns=2))
  for p, g in np.ndindex(rollout.length.shape):
    said = tokenizer.decode(rollout.tokens[p, g][rollout.kind[p, g] == OBSERVATION])
    assert said == "<|user|><tool_response>\n7\n</tool_response><|assistant|>"


def test_forty_turns_are_computed_once():
  budgets = BUDGETS._replace(turns=40, max_tokens=600, action_tokens=4)
  rollout, counts = play(answers(), budgets=budgets, count=1)
  assert (rollout.turns.count == 40).all()
  computed = counts["rollout/prompt_tokens"] + counts["rollout/fed_slot_steps"]
  assert computed <= 1.05 * counts["rollout/row_tokens"]


def test_metrics_of_turns_are_those_of_a_hand_count():
  script = lambda example, seed, actions: Turn(
    "go",
    reward=float(seed % 2),
    done=len(actions) == 2,
    anchor=0 if len(actions) == 0 else seed,
    valid=bool(seed % 2),
  )
  rollout, _ = play(script)
  found = outcome.describe(rollout.turns, rollout.ending)
  odd = np.array([[_seed(i, g) % 2 for g in range(2)] for i in prompts().id])
  assert found["turns/mean"] == 2 and found["turns/ended/done"] == 1 and found["turns/mates"] == 0.5
  assert found["turns/mates/1"] == 1 and found["turns/mates/2"] == 0
  assert found["turns/invalid"] == pytest.approx(1 - odd.mean())
  assert found["turns/contrast/1"] == pytest.approx((odd[:, 0] != odd[:, 1]).mean())
  told = outcome.told(policy()[0], rollout)
  assert [len(rows) for rows in told] == [2, 2] and told[0][1]["seen"].startswith("go")
  assert told[0][1]["ending"] == "done"


@pytest.mark.slow
def test_eight_devices_play_the_tokens_of_one():
  tokenizer, model, _ = policy()
  on = mesh(data=8)
  rows, everywhere = sharding.batch_sharding(on), sharding.replicated(on)
  empty, read, begin, act = turns.build(
    model, slots=16, readers=8, columns=L + T, prompt_columns=L, action_tokens=BUDGETS.action_tokens,
    sampling=SamplingParams(), eos_ids=(tokenizer.eos_token_id,), shards=8,
  )  # fmt: skip
  slots = turns.Slots(sharding.kv_sharding(on, model.spec.num_key_value_heads), *[rows] * 8)
  programs = (
    jax.jit(empty, out_shardings=slots),
    jax.jit(read, in_shardings=(everywhere, slots, rows), out_shardings=(slots, rows)),
    jax.jit(begin, in_shardings=(everywhere, slots, rows, everywhere, rows), out_shardings=slots),
    jax.jit(
      act,
      in_shardings=(everywhere, slots, everywhere, rows),
      out_shardings=(slots, everywhere, everywhere),
    ),
  )
  put, replicate = functools.partial(sharding.to_device, on), functools.partial(sharding.everywhere, on)
  same(play(device=Device(*programs, 16, 7, 8, 3, put, replicate, 8))[0], plain()[0], exact=False)
