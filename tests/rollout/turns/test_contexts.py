"""Several contexts of a trajectory, and prompts that slots share, against trajectories that read alone."""

import functools
import itertools
import re

import jax
import numpy as np
import pytest
from test_game import same
from turn_toys import BUDGETS, L, T, play, policy, prompts

from grpojax.learner import logprobs, packing, rows
from grpojax.rollout.turns.reading import Reader
from grpojax.types import ACTION, PADDING, PROMPT, TOKENS

LONG = 400  # tokens of all contexts


@functools.cache
def remembering(memory, **options):
  budgets = BUDGETS._replace(memory=memory, max_tokens=LONG, context_tokens=T)
  return play(budgets=budgets, **options)


def turn_of(rollout, p, g, turn):
  return rollout.turns.index[p, g] == turn


def test_who_remembers_all_plays_as_who_goes_on_and_every_context_begins_anew():
  (one, counts), (many, anew) = play(), remembering(BUDGETS.turns)
  assert one.context is None
  for x, y in zip(one.turns[1:], many.turns[1:], strict=True):
    np.testing.assert_array_equal(x, y)
  for p, g in np.ndindex(one.length.shape):
    whole, n = one.tokens[p, g], many.length[p, g]
    assert many.context[p, g, :n].max() == one.turns.count[p, g] - 1
    for turn in range(one.turns.count[p, g]):
      end = np.flatnonzero(turn_of(one, p, g, turn))[-1] + 1
      own = (many.context[p, g] == turn) & (np.arange(LONG) < n)
      np.testing.assert_array_equal(many.tokens[p, g, own], whole[:end])
      acted = turn_of(many, p, g, turn)
      kind = np.where(acted, ACTION, PROMPT)
      np.testing.assert_array_equal(many.kind[p, g, own], kind[own])
      np.testing.assert_allclose(
        many.sampler_logp[p, g, acted], one.sampler_logp[p, g, turn_of(one, p, g, turn)], atol=1e-5
      )
    assert (many.kind[p, g, n:] == PADDING).all()
  assert anew["rollout/row_tokens"] == counts["rollout/row_tokens"]
  assert anew["rollout/prompt_tokens"] > 2 * counts["rollout/prompt_tokens"]


@pytest.mark.parametrize("memory", [1, 2])
def test_a_context_is_the_last_turns_in_the_tokens_that_were_sampled(memory):
  (rollout, _), tokenizer = remembering(memory), policy()[0]
  for p, g in np.ndindex(rollout.length.shape):
    tokens, there = rollout.tokens[p, g], np.arange(LONG) < rollout.length[p, g]
    actions, played = [], []
    for turn in range(rollout.turns.count[p, g]):
      acted = turn_of(rollout, p, g, turn)
      own = there & (rollout.context[p, g] == turn)
      seen = tokens[own & ~acted].tolist()
      if turn:
        known = [*itertools.chain(*played[max(0, turn - memory) :]), *actions[-1]]
        assert seen[: len(known)] == known
        played.append(actions[-1] + seen[len(known) :])
        said = tokenizer.decode(seen[len(known) :])
        assert re.fullmatch(r"(<\|end\|>)?<\|user\|>\d:\d<\|assistant\|>", said)
      actions.append(tokens[acted].tolist())
      assert (seen == []) == (turn == 0) and np.flatnonzero(own)[-1] == np.flatnonzero(acted)[-1]


@pytest.mark.parametrize("kind", ["single", "packed", pytest.param("unshared", marks=pytest.mark.slow)])
def test_the_learners_log_probs_of_every_context_are_the_samplers(kind):
  """And are others, where one context sees the next one's tokens."""
  (_, model, params), rollout, asked = policy(), remembering(2)[0], prompts()
  G = rollout.length.shape[1]
  repeat = lambda x: np.repeat(x[:, None], G, axis=1)
  tokens = np.concatenate([repeat(asked.tokens), rollout.tokens], axis=-1)
  how = dict(temperature=1.0, chunk=50)
  if kind == "single":
    layout, index = rows.single(logprobs.make_logp(model, response_budget=LONG, **how)), None
  else:
    spec = packing.PackSpec(LONG, 1, 2, L + 2 * LONG, shared=kind == "packed")
    layout = rows.packed(logprobs.make_packed_logp(model, **how), spec)
    index = packing.pack_sequences(repeat(asked.length), rollout.length, spec)
  seen = params, tokens, repeat(asked.length), None, None, index
  logp = jax.jit(lambda context: layout.logp(*seen, context)[0])
  on = rollout.kind == ACTION
  np.testing.assert_allclose(logp(rollout.context)[on], rollout.sampler_logp[on], atol=2e-5)
  assert np.abs(logp(0 * rollout.context)[on] - rollout.sampler_logp[on]).max() > 0.1


@pytest.mark.parametrize(
  ("options", "exact"),
  [
    (dict(delay=3, order=-1), True),
    pytest.param(dict(slots=1), False, marks=pytest.mark.slow),
    pytest.param(dict(slots=16, chunk=64), False, marks=pytest.mark.slow),
  ],
)
def test_contexts_change_no_draw_with_slots_delays_or_the_order_of_answers(options, exact):
  same(remembering(2, **options)[0], remembering(2)[0], exact)


def test_all_contexts_together_have_the_budget_of_a_trajectory():
  budgets = BUDGETS._replace(memory=2, max_tokens=40, context_tokens=T)
  rollout, _ = play(budgets=budgets)
  cut = rollout.ending == TOKENS
  assert cut.any() and (rollout.length <= 40).all() and (rollout.turns.count[cut] < 5).all()
  tight, _ = play(budgets=budgets._replace(max_tokens=LONG, context_tokens=20))
  assert (tight.ending == TOKENS).any()
  for p, g in np.ndindex(tight.length.shape):
    assert np.bincount(tight.context[p, g, : tight.length[p, g]]).max() <= 20


@pytest.mark.parametrize("group_size", [2, 7])
def test_a_prompt_that_slots_share_gives_the_bits_of_one_that_each_reads(group_size, monkeypatch):
  """Whoever comes later, too: there are four slots, for three prompts."""
  budgets = BUDGETS._replace(group_size=group_size)
  shared, once = play(budgets=budgets)
  monkeypatch.setattr(Reader, "_source", lambda self, slot, player: None)
  monkeypatch.setattr(Reader, "_key", lambda self, slot, player: slot)
  alone, each = play(budgets=budgets)
  same(shared, alone)
  saved = each["rollout/prompt_tokens"] - once["rollout/prompt_tokens"]
  assert saved == (group_size - 1) * prompts().length.sum()
