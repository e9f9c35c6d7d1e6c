"""A sampler on devices of its own: the numbers of the run whose devices do both, whatever is in flight."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
import test_staleness
from ml_collections import ConfigDict

from grpojax import train
from grpojax.rollout.sampler import weights
from grpojax.runtime import sharding

pytestmark = pytest.mark.usefixtures("quick_jobs")
SLOW = pytest.mark.slow


def config(cache, apart, **changes):
  """GRPO at `tiny` on four devices, which sample too, or beside four that sample."""
  c = test_staleness.tiny(cache)
  c.rollout.prompts = 8
  c.mesh.update(data=4, rollout_devices=4 if apart else 0)
  c.reward.accuracy = dict(fn="test_staleness:short")
  c.update_from_flattened_dict(dict(steps=3) | changes)
  return c


def numbers(records):
  """What does not depend on a clock, or on who held what."""
  by_clock = ("time/", "tokens_per_second/", "memory/", "wall")
  return [{k: v for k, v in r.items() if not k.startswith(by_clock)} for r in records]


@pytest.mark.parametrize(
  "changes",
  [
    pytest.param(dict(staleness=0), marks=SLOW),
    dict(staleness=2),
    pytest.param({"staleness": 1, "lora.rank": 2, "rollout.weights": "int8"}, marks=SLOW),
    pytest.param({"staleness": 1, "mesh.data": 1, "mesh.fsdp": 4, "mesh.sampler.tensor": 2}, marks=SLOW),
    pytest.param({"staleness": 1, "rollout.slots": 0}, marks=SLOW),
  ],
)
def test_the_numbers_are_those_of_devices_that_do_both(cache, tmp_path, changes):
  records = [
    test_staleness.start(config(cache, apart, **changes), tmp_path / f"{apart}") for apart in (True, False)
  ]
  assert numbers(records[0]) == numbers(records[1])
  assert len(records[0]) == 3 and all(r["grad_norm"] > 0 for r in records[0])


@SLOW
def test_stopped_and_resumed_is_bit_equal_to_unbroken_and_may_change_its_devices(cache, tmp_path):
  at = lambda steps, apart: config(cache, apart, steps=steps, staleness=2)
  whole = test_staleness.start(at(5, True), tmp_path / "whole")
  test_staleness.start(at(2, True), tmp_path / "cut")
  test_staleness.start(at(3, False), tmp_path / "cut")  # all devices do both for one step
  assert numbers(test_staleness.start(at(5, True), tmp_path / "cut")) == numbers(whole)


def test_the_sampler_has_the_last_devices_of_every_process_and_its_own_copy(cache, tmp_path):
  job = train.prepare(config(cache, True), tmp_path)
  assert [d.id for d in job.mesh.devices.flat] == [0, 1, 2, 3]
  own = weights.build_sync(job.config, "rollout", job.model, job.mesh, "full")
  params = job.model.init(jax.random.key(0))
  params = jax.device_put(params, weights.policy_shardings(job.model, job.mesh))
  sent = own.send(own.sync(params))
  assert all({d.id for d in x.devices()} == {4, 5, 6, 7} for x in jax.tree.leaves(sent))
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(sent), jax.device_get(params))


def devices(*of_process):
  """Fake devices of so many processes."""
  return [SimpleNamespace(process_index=p, id=(p, i)) for p, n in enumerate(of_process) for i in range(n)]


@pytest.mark.parametrize(
  ("alone", "of", "expected"),
  [(0, (2, 2), []), (2, (2, 2), [(0, 1), (1, 1)]), (4, (3, 3), [(0, 1), (0, 2), (1, 1), (1, 2)])],
)
def test_every_process_gives_as_many(alone, of, expected):
  found = sharding.rollout_devices(ConfigDict(dict(rollout_devices=alone)), devices(*of))
  assert [device.id for device in found] == expected


@pytest.mark.parametrize(
  ("alone", "of", "sentence"),
  [
    (3, (2, 2), "config.mesh.rollout_devices = 3 must be as many of each of the 2 processes"),
    (4, (2, 2), "leaves none that learns"),
    (4, (3, 2), "leave each one that learns"),
  ],
)
def test_what_cannot_be_divided_is_refused(alone, of, sentence):
  with pytest.raises(ValueError, match=sentence):
    sharding.rollout_devices(ConfigDict(dict(rollout_devices=alone)), devices(*of))


def test_prompts_must_divide_over_the_samplers_shards_before_anything_compiles(cache, tmp_path):
  with pytest.raises(ValueError, match=r"config.rollout.prompts = 8 must be divisible by the 6 shards"):
    train.prepare(config(cache, True, **{"mesh.data": 2, "mesh.rollout_devices": 6}), tmp_path)
