"""Whole jobs whose rows are trajectories: they train, resume to the same numbers, or refuse in a sentence."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from test_train import comparable, final_tree, start, tiny
from turn_toys import Scripted

from grpojax import train
from grpojax.config import check, schema
from grpojax.recipes import base
from grpojax.rollout import sampler, turns
from grpojax.rollout.envs.interface import Turn
from grpojax.rollout.envs.pool import Pool
from grpojax.tools.evaluate import benchmark
from grpojax.tools.podcheck import check as podcheck
from grpojax.train import programs as programs_lib
from grpojax.train import setup

pytestmark = pytest.mark.usefixtures("quick_jobs")


def parity(example, seed, actions):
  """Pays for about every second action, three times; what it says depends on the seed."""
  n = len(actions)
  pays = n > 0 and sum(map(ord, actions[-1])) % 2 == 1
  return Turn(f"{(seed + n) % 4}", reward=float(pays), done=n == 3, anchor=(seed + n) % 4)


@pytest.fixture
def scripted(monkeypatch):
  monkeypatch.setattr(programs_lib, "Pool", lambda *args, **knobs: Scripted(parity, delay=1))


def playing(cache, recipe="gigpo", **changes):
  c = tiny(cache, recipe, **changes)
  c.reward = ConfigDict()
  c.env.update(name="frozen_lake", turns=4, action_tokens=5, observation_tokens=8, success=2.0)
  c.rollout.update(max_tokens=48, slots=6, segment=4)
  return c


def test_a_job_plays_learns_and_goes_on_as_if_it_had_not_stopped(cache, tmp_path, scripted):
  whole = start(playing(cache), tmp_path / "whole")
  steps = [record for record in whole if record["kind"] == "train"]
  assert len(steps) == 2
  for record in steps:
    assert record["turns/mean"] == 3 and record["turns/ended/done"] == 1
    assert 0 < record["accuracy"] < 1 and 0 < record["reward"] < 3
    assert record["rollout/computed_ratio"] <= 1.05
    assert record["sampling/sampling_logp_difference/max"] < 1e-4  # the learner replays what was sampled
    assert record["advantage/max"] > 0 > record["advantage/min"]
    assert (
      record["num_tokens"]
      == record["rollout/sampled_tokens"]
      == pytest.approx(16 * 3 * record["turns/tokens"])
    )
    assert record["environment/steps"] == 16 * 4 and record["environment/failures"] == 0
  (before, after) = (record for record in whole if record["kind"] == "eval")
  assert before["eval/turns"] == after["eval/turns"] == 3 and "eval/return" in after
  assert not {"eval/answered", "eval/maj@4"} & after.keys()  # a trajectory states no answer

  start(playing(cache, steps=1), tmp_path / "parts")
  parts = start(playing(cache), tmp_path / "parts")
  timed = ("environment/seconds", "environment/idle_seconds")
  without = lambda records: [{k: v for k, v in r.items() if k not in timed} for r in comparable(records)]
  kept = [r for r in without(whole) if r["kind"] == "train"]
  assert [r for r in without(parts) if r["kind"] == "train"] == kept
  a, b = (final_tree(playing(cache), tmp_path / name)[0] for name in ("whole", "parts"))
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0, 1])
def test_a_job_imitates_a_planner_and_plays_frozen_lake_in_processes_of_its_own(
  cache, tmp_path, memory, monkeypatch
):
  pools = []
  kept = lambda *args, **how: pools.append(Pool(*args, **how)) or pools[-1]
  monkeypatch.setattr(programs_lib, "Pool", kept)
  c = playing(cache, steps=1)
  c.env.knobs = ConfigDict(dict(size=4))
  c.env.update(turns=5, action_tokens=6, observation_tokens=24, memory=memory)
  c.rollout.update(max_tokens=160)
  common = {key: c.data[key] for key in schema.DATA_KEYS if key in c.data}
  sizes = dict(train=40, validation=4, test=8, wrong=0.2, version_seed=0)
  task = dict(task="grpojax.rollout.envs.rows:Tasks", environment="frozen_lake", knobs=dict(c.env.knobs))
  c.data = ConfigDict(common | task | sizes)
  c.cold_start.update(steps=60, batch_size=16)
  c.cache_dir = str(tmp_path / "cache")  # where no cold start lies yet
  found = start(c, tmp_path / "run")
  loss = [record["loss"] for record in found if record["kind"] == "cold_start"]
  (record,) = (record for record in found if record["kind"] == "train")
  assert loss[-1] < 1.5 and loss[-1] < loss[0]  # of bytes, of which there are 256
  assert pools and all(pool._server is None for pool in pools)  # the job has ended
  assert record["turns/mean"] > 1 and record["turns/invalid"] < 0.5 and record["environment/failures"] == 0
  assert (record["rollout/computed_ratio"] > 1.05) is bool(memory)
  assert record["sampling/sampling_logp_difference/max"] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
  "changes",
  [
    dict(rows="single", microbatches=1),
    dict(lora=dict(rank=2)),
    dict(dynamic_sampling=dict(enabled=True)),
    dict(rollout=dict(weights="int8")),
    dict(env=dict(memory=1)),
    dict(env=dict(memory=2), rows="single", microbatches=1),
  ],
  ids=str,
)
def test_rows_adapters_dynamic_sampling_int8_and_contexts_work(cache, tmp_path, scripted, changes):
  c = playing(cache, steps=1)
  c.update(changes)
  (record,) = (r for r in start(c, tmp_path) if r["kind"] == "train")
  bound = 0.2 if c.rollout.weights == "int8" else 1e-4
  assert record["turns/mean"] == 3 and record["sampling/sampling_logp_difference/max"] < bound


@pytest.mark.parametrize(
  ("changes", "sentence"),
  [
    (dict(env=dict(name="frozen_lak")), "config.env: the environment 'frozen_lak' is none of"),
    (dict(env=dict(knobs=dict(sise=3))), "config.env: the environment 'frozen_lake' has no sise"),
    (
      dict(reward=dict(accuracy=dict(fn="rules:integer_answer"))),
      "config.reward.accuracy grades completions",
    ),
    (
      dict(staleness=1, rollout=dict(in_flight=8), objective=dict(shape=dict(bypass=dict(fn="bypass")))),
      "config.rollout.in_flight = 8 takes up newer policies in the middle of single turns",
    ),
    (dict(adaptive_group=dict(stop="balanced")), "config.adaptive_group.stop = 'balanced' joins groups"),
    (dict(process=dict(scorer="a:b")), "config.process.scorer = 'a:b' scores the steps of one completion"),
    (
      dict(routing_replay="R3"),
      "config.routing_replay = 'R3' replays what the sampler of single turns records",
    ),
    (
      dict(difficulty=dict(kind="beta")),
      "config.difficulty.kind = 'beta' compares a prompt's last completions",
    ),
    (
      dict(rollout=dict(kv_cache="int8")),
      "config.rollout.kv_cache = 'int8' is of the sampler of single turns",
    ),
    (dict(rollout=dict(top_k=8)), "config.rollout.top_k = 8 records what it kept"),
    (dict(interruption=dict(think_tokens=8)), "config.interruption.think_tokens = 8 cuts the thinking"),
    (dict(data=dict(chat=False)), "config.data.chat = False has no turns"),
    (dict(env=dict(action_tokens=99)), "config.rollout.max_tokens = 48, the budget of a trajectory, is less"),
  ],
)
def test_what_trajectories_are_not_for_is_refused_in_a_sentence(cache, changes, sentence):
  c = playing(cache)
  check.check(c, devices=1)
  with c.unlocked():
    c.update(changes)
  with pytest.raises(ValueError, match=sentence):
    check.check(c, devices=1)


def test_a_slot_has_room_for_the_longest_context_by_hand():
  c = base.get_config("tiny")
  c.env.update(name="frozen_lake", turns=5, action_tokens=6, observation_tokens=10)
  c.rollout.max_tokens = 400
  spec = sampler.build.rollout_spec(c)
  for memory, room in (0, 400), (1, 6 + 10 + 3 + 6), (9, 4 * (6 + 10 + 3) + 6):
    c.env.memory = memory
    assert turns.build.context_tokens(c, spec, between=3) == room
    assert turns.build.budgets(c, spec, between=3).context_tokens == room


def test_a_template_without_a_second_turn_is_refused_before_anything_compiles(cache, tmp_path, monkeypatch):
  c = playing(cache)
  c.env.turns = 7  # programs of its own
  tokenizer = setup.text.load_tokenizer()
  tokenizer.chat_template = "{{ messages[0].content }}"
  monkeypatch.setattr(setup.text, "load_tokenizer", lambda *args: tokenizer)
  with pytest.raises(ValueError, match=r"config.env.name: the chat template of .* does not show an answer"):
    train.prepare(c, tmp_path)


def test_commands_that_know_no_turns_refuse_in_a_sentence(cache, tmp_path):
  c = playing(cache)
  with pytest.raises(ValueError, match="'frozen_lake': this command asks questions of one turn"):
    benchmark.prepare(c, "", [], None)
  with pytest.raises(ValueError, match="'frozen_lake': the programs of environments are not checked"):
    podcheck.check(c, None, tmp_path)
