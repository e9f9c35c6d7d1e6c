"""Forced interruption: where thinking is cut, what is injected, what stays as it was, what is trained on."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from grpojax import models, train
from grpojax.config import check
from grpojax.data import text
from grpojax.learner import batching, logprobs
from grpojax.recipes import base, grpo
from grpojax.rollout import sampler
from grpojax.rollout.sampler import interruption
from grpojax.rollout.sampler.interruption import Interruption
from grpojax.rollout.sampler.token_sampling import SamplingParams
from grpojax.runtime import metrics
from grpojax.types import ACTION, INJECTED, PADDING

V, P, G, L, T = 12, 4, 6, 6, 16
EOS = (3,)
CUT = Interruption(think_tokens=6, tokens=(7, 8, 9), closing=(5,))
PAIR = CUT._replace(closing=(5, 6))
SAMPLING = SamplingParams(top_k=11, top_p=0.99)


@pytest.fixture(scope="module")
def policy():
  model = models.build(base.get_config("tiny").model, V)
  return model, model.init(jax.random.key(0))


def prompts():
  tokens = np.random.default_rng(0).integers(4, V, (P, L)).astype(np.int32)
  return tokens, np.full(P, L, np.int32), np.arange(P, dtype=np.int32)


def static(policy, cut):
  model, params = policy
  how = dict(group_size=G, max_tokens=T, sampling=SAMPLING, eos_ids=EOS, record_kept=True)
  prefill, decode = map(jax.jit, sampler.static_batch.build(model, interruption=cut, **how))
  tokens, length, ids = prompts()
  rollout = decode(params, prefill(params, tokens, length), jax.random.key(0), ids)
  rollout = jax.tree.map(np.asarray, rollout)
  return interruption.label(cut, rollout) if cut else rollout


def slots(policy, cut):
  model, params = policy
  how = dict(group_size=G, max_tokens=T, sampling=SAMPLING, eos_ids=EOS, record_kept=True)
  begin, _, advance = map(
    jax.jit, sampler.continuous.build(model, interruption=cut, slots=5, prefill_chunk=8, **how)
  )
  state = begin(params, *prompts(), jax.random.key(0))
  _, rollout, _ = advance(params, *state, np.int32(10**6))
  return interruption.label(cut, jax.tree.map(np.asarray, rollout))


@pytest.mark.parametrize(
  "cut",
  [
    pytest.param(CUT, id="one"),
    pytest.param(PAIR, id="pair", marks=pytest.mark.slow),
    pytest.param(CUT._replace(closing=()), id="always", marks=pytest.mark.slow),
  ],
)
def test_who_still_thinks_is_cut_and_all_others_are_as_without(policy, cut):
  free, found = static(policy, None), static(policy, cut)
  rounded = {name: getattr(found, name) for name in ("sampler_logp", "sampler_entropy")}  # as programs fuse
  other = slots(policy, cut)._replace(**rounded)
  jax.tree.map(np.testing.assert_array_equal, found, other)
  B, n = cut.think_tokens, len(cut.tokens)
  seen = set()
  for at in np.ndindex(P, G):
    before, length = free.tokens[at][:B].tolist(), found.length[at]
    m = len(cut.closing)
    closed = m > 0 and any(tuple(before[i : i + m]) == cut.closing for i in range(B - m + 1))
    thinks = free.length[at] > B and not closed
    seen.add((thinks, closed))
    assert found.tokens[at][:B].tolist() == before
    if not thinks:
      for x, y in zip(free, found._replace(kind=None), strict=True):
        np.testing.assert_array_equal(None if x is None else x[at], None if y is None else y[at])
      assert (found.kind[at] == np.where(np.arange(T) < length, ACTION, PADDING)).all()
      continue
    assert tuple(found.tokens[at][B : B + n]) == cut.tokens
    assert length > B + n and (length == T or found.tokens[at][length - 1] in EOS)
    kinds = [ACTION] * B + [INJECTED] * n + [ACTION] * (length - B - n) + [PADDING] * (T - length)
    assert found.kind[at].tolist() == kinds
    assert (found.sampler_logp[at][B : B + n] == 0).all()
    assert (found.kept[at][B : B + n] == -1).all() and (found.kept[at][:B] >= 0).any(-1).all()
  assert (True, False) in seen and (not cut.closing or (False, True) in seen)


def test_the_answer_is_drawn_behind_what_was_injected(policy):
  """The learner's log-probs of the row as it is are the sampler's, on every token that is trained on."""
  model, params = policy
  found = static(policy, CUT)
  tokens, length, _ = prompts()
  rows = np.concatenate([np.repeat(tokens[:, None], G, 1), found.tokens], -1)
  logp = logprobs.make_logp(model, response_budget=T, temperature=1.0, chunk=8)
  got = jax.jit(lambda: logp(params, rows, np.repeat(length[:, None], G, 1), kept=found.kept)[0])()
  on = batching.action_mask(found) > 0
  assert (on == (found.kind == ACTION)).all() and (found.kind == INJECTED).any()
  np.testing.assert_allclose(np.asarray(got)[on], found.sampler_logp[on], atol=1e-5)


def test_a_policy_that_stops_keeps_its_budget_and_the_answer_gets_what_is_left(policy):
  model, params = policy
  never = dict(group_size=G, max_tokens=T, sampling=SamplingParams(), eos_ids=(V + 1,))
  prefill, decode = map(
    jax.jit, sampler.static_batch.build(model, interruption=CUT._replace(closing=()), **never)
  )
  tokens, length, ids = prompts()
  found = decode(params, prefill(params, tokens, length), jax.random.key(0), ids)
  assert (np.asarray(found.length) == T).all() and not np.asarray(found.ended).any()


def asked(**changes):
  config = grpo.get_config("tiny")
  config.interruption.update(dict(think_tokens=8, text=" = 7\n", unless="#") | changes)
  return config


@pytest.mark.parametrize(
  ("changes", "sentence"),
  [
    (dict(text=""), "config.interruption.text = '' is empty or has a token that ends"),
    (dict(text="7<|end|>"), "behind which no answer could follow"),
    (dict(think_tokens=10**6), "leave none of config.rollout.max_tokens"),
  ],
)
def test_what_leaves_no_answer_is_refused(changes, sentence):
  tokenizer = text.load_tokenizer()
  with pytest.raises(ValueError, match=sentence):
    interruption.build(asked(**changes), tokenizer, text.eos_ids(tokenizer))


def test_what_keeps_no_kinds_is_refused():
  config = asked()
  config.difficulty.kind = "beta"
  with pytest.raises(ValueError, match="nothing says what was injected"):
    check.check(config, devices=1)


def short(sample):
  return float("7" in sample.text)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
@pytest.mark.parametrize("slots", [8, 0])
def test_a_run_counts_what_it_injects_and_trains_on_none_of_it(cache, tmp_path, slots):
  config = asked()
  config.update(dict(cache_dir=str(cache), verbose=False, steps=2))
  config.rollout.slots = slots
  config.reward = ConfigDict(dict(accuracy=dict(fn=f"{__name__}:short")))
  config.mesh.data = 1
  config.eval.every = config.checkpoint.every = 100
  train.run(train.prepare(config, tmp_path))
  tokenizer = text.load_tokenizer()
  n = len(tokenizer(" = 7\n", add_special_tokens=False)["input_ids"])
  for record in (r for r in metrics.read(tmp_path) if r["kind"] == "train"):
    completions = config.rollout.prompts * config.rollout.group_size
    cut = record["interruption/share"] * completions
    assert 0 < cut <= completions and record["interruption/injected_tokens"] == pytest.approx(cut * n)
    assert record["num_tokens"] == pytest.approx(
      record["completions/mean_length"] * completions - record["interruption/injected_tokens"]
    )
    assert record["sampling/sampling_logp_difference/max"] < 1e-5 and record["accuracy"] > 0
