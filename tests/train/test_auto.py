"""What is left open of mesh, slots, pieces, chunk and remat: closed, legal, within memory, and as asked."""

import json
import math

import jax
import pytest

from grpojax.config import check, commandline
from grpojax.config.overrides import changed
from grpojax.learner import rows
from grpojax.recipes import base
from grpojax.runtime import chips, sharding
from grpojax.tools.podcheck import abstract, known
from grpojax.train import auto, footprint
from grpojax.train.auto import Machine, keys, update
from grpojax.train.auto.mesh import candidates

GIB, SLOW = 2**30, pytest.mark.slow
CLOSED = {  # another value than what is chosen, for every key that may be open
  "mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2, "mesh.expert": 1, "mesh.context": 2,
  "mesh.rules.embed": "", "mesh.sampler.tensor": 0, "mesh.sampler.expert": 1, "rollout.slots": 96,
  "microbatches": 5, "logprob_chunk": 77, "remat": "none",
}  # fmt: skip


def ordinary(tmp_path, model="Qwen2.5-1.5B", **changes):
  """The scale `local`, of which a user sets the model alone."""
  config = base.get_config("local")
  config.update_from_flattened_dict(changes)
  config.model.path = str(known.folder(model, tmp_path))
  return config


def machine(devices=8, memory=chips.TPUS["v5e"].memory, attention="splash", chip="v5e"):
  """Devices of this machine in the place of others."""
  return Machine(jax.devices()[:devices], memory, chips.TPUS[chip], attention)


def chosen(config, where):
  """The config as it is run, and the sizes of its programs."""
  check.check(config, len(where.devices))
  config = auto.choose(config, where, abstract.Tokenizer())
  mesh = sharding.make_mesh(config.mesh, where.devices)
  model = auto.build_model(config, where, abstract.Tokenizer(), mesh)
  return config, footprint.sizes(config, model, mesh)


@pytest.mark.parametrize(
  ("model", "devices", "gib"),
  [
    ("Qwen2.5-0.5B", 1, 80),
    ("gemma-3-1b", 8, 16),
    *(
      pytest.param(model, *size, marks=SLOW)
      for model in ("Qwen2.5-0.5B", "gemma-3-1b")
      for size in ((1, 141), (4, 32), (8, 96))
    ),
    pytest.param("Qwen2.5-7B", 8, 96, marks=SLOW),  # 122 GB of state and gradients
  ],
)
def test_everything_is_closed_and_fits_with_what_the_compiler_adds(model, devices, gib, tmp_path):
  where = machine(devices, gib * GIB)
  config, sizes = chosen(ordinary(tmp_path, model), where)
  assert not auto.open_keys(config)
  assert all(phase.most <= where.memory for phase in footprint.phases(sizes))
  assert sizes.mesh.size == devices and config.rollout.slots > 0


@pytest.mark.parametrize(
  "key", [k if k in ("mesh.context", "rollout.slots") else pytest.param(k, marks=SLOW) for k in keys.OPEN]
)
def test_what_is_asked_for_stays(key, tmp_path):
  assert set(CLOSED) == set(keys.OPEN)
  config, _ = chosen(ordinary(tmp_path, **{key: CLOSED[key]}), machine(memory=96 * GIB))
  flat = keys.flatten(config.to_dict())
  assert flat[key] == CLOSED[key] and not auto.open_keys(config)


def test_a_config_without_open_keys_is_left_alone(tmp_path):
  config = ordinary(tmp_path, **CLOSED)
  assert auto.choose(config, machine(), abstract.Tokenizer()) is config


@SLOW
@pytest.mark.parametrize("rows_", ["packed", "single"])
def test_less_memory_has_more_pieces_and_fewer_slots(rows_, tmp_path):
  sizes = [chosen(ordinary(tmp_path, rows=rows_), machine(memory=gib * GIB))[1] for gib in (96, 16, 7)]
  assert sizes[0].pieces <= sizes[1].pieces <= sizes[2].pieces and sizes[0].pieces < sizes[2].pieces
  assert sizes[0].slots >= sizes[1].slots >= sizes[2].slots and sizes[0].slots > sizes[2].slots


def test_what_fits_nowhere_is_closed_all_the_same(tmp_path):
  """The run says what is missing, by keys that it has."""
  config, sizes = chosen(ordinary(tmp_path, "Qwen2.5-7B"), machine(memory=GIB))
  assert config.remat == "full" and config.logprob_chunk == 128 and sizes.slots == 8  # one a shard
  assert sizes.packed.rows == 1


def test_devices_beyond_the_prompts_of_an_update_share_rows_which_are_whole(tmp_path):
  _, sizes = chosen(ordinary(tmp_path, **{"rollout.prompts": 16}), machine(memory=96 * GIB))
  assert sharding.batch_shards(sizes.mesh) * sizes.mesh.shape["context"] == 8
  assert 4 % sharding.batch_shards(sizes.mesh) == 0  # prompts of one update
  assert sizes.packed.rows % sizes.mesh.shape["context"] == 0
  assert sharding.column_shards(sizes.mesh, sizes.packed.shards * sizes.packed.rows) == 1


def test_fewer_rows_than_neighbours_are_a_piece(tmp_path):
  """Two devices share one row, and each has a part of its columns."""
  few = {"rollout.prompts": 4, "updates_per_rollout": 1, "rollout.group_size": 2, "rollout.max_tokens": 16}
  _, sizes = chosen(ordinary(tmp_path, "Qwen2.5-0.5B", **few), Machine(jax.devices()[:8], GIB))
  assert sizes.mesh.shape["context"] == 2 and (sizes.pieces, sizes.packed.rows) == (1, 1)


def test_every_mesh_that_is_tried_has_all_devices(tmp_path):
  """Also where a closed `context` leaves what prompts do not divide to `tensor`."""
  for closed in ({}, {"mesh.context": 1}):
    few = ordinary(tmp_path, **{"rollout.prompts": 16} | closed)  # four an update
    for values in candidates(few, machine(), abstract.Tokenizer()):
      sizes = [values.get(f"mesh.{axis}", few.mesh[axis]) for axis in sharding.AXES]
      assert math.prod(sizes) == 8


def test_what_sparse_cores_gather_and_sum_costs_no_time(tmp_path):
  """Parameters that are cut over two axes: without SparseCores, as on v5e, nothing hides the sums."""
  cut = {"rollout.prompts": 16, "mesh.rules.embed": "fsdp,context"}
  lost = {}
  for chip in ("v5e", "v5p"):
    where = machine(memory=96 * GIB, chip=chip)
    config, sizes = chosen(ordinary(tmp_path, **cut), where)
    assert sizes.mesh.shape["context"] == 2
    lost[chip], _ = update.choose(config, config, where, sizes.model, sizes.mesh, footprint.state(sizes))
  assert lost["v5e"] > lost["v5p"] == 0


def test_experts_are_cut_over_neighbours_where_nothing_hides_gathers_of_all(tmp_path):
  for chip, expert in (("v5e", 4), ("v5p", 1)):
    where = machine(memory=96 * GIB, chip=chip)
    tried = list(candidates(ordinary(tmp_path, "Qwen3-30B-A3B"), where, abstract.Tokenizer()))
    assert {values["mesh.expert"] for values in tried} == {expert}


def test_an_update_that_waits_for_links_has_fewer_pieces(tmp_path):
  """Each gathers all parameters again."""
  where, pieces = machine(memory=96 * GIB, chip="v5p"), []
  config, sizes = chosen(ordinary(tmp_path), where)
  opened = changed(config, {"microbatches": 0, "logprob_chunk": 0})
  for link in (where.chip.link, where.chip.link / 100):
    slow = where._replace(chip=where.chip._replace(link=link))
    args = slow, sizes.model, sizes.mesh, footprint.state(sizes)
    pieces.append(update.choose(opened, config, *args)[1]["microbatches"])
  assert pieces[0] == update.FEWEST_PIECES > pieces[1]
  asked = changed(config, {"microbatches": 16, "logprob_chunk": 0})
  assert update.choose(asked, config, *args)[1]["microbatches"] == 16


def test_minus_one_takes_the_rest_and_slices_are_joined_by_data(tmp_path):
  config, _ = chosen(ordinary(tmp_path, **{"mesh.fsdp": -1}), machine())
  assert [config.mesh[axis] for axis in sharding.AXES] == [1, -1, 1, 1, 1]
  first = next(candidates(ordinary(tmp_path, **{"mesh.slices": 2}), machine(), abstract.Tokenizer()))
  assert [first[f"mesh.{axis}"] for axis in sharding.AXES] == [2, 4, 1, 1, 1]


def test_a_processor_reads_a_row_at_a_time(tmp_path):
  where = Machine(jax.devices()[:2], 8 * GIB)
  config, sizes = chosen(ordinary(tmp_path, "Qwen2.5-0.5B"), where)
  assert dict(config.mesh.items())["data"] == 2 and config.mesh.sampler.tensor == 0
  assert (config.remat, config.logprob_chunk, config.rollout.slots) == ("full", 32, 256)
  assert sizes.packed.rows == 1 and sizes.pieces == rows.most_rows(config, sizes.packed)


def test_trajectories_have_as_many_slots_as_whole_ones_fit(tmp_path):
  turns = {"env.name": "frozen_lake", "rollout.max_tokens": 8192}
  slots = []
  for tokens in (8192, 2048):
    config = ordinary(tmp_path, **turns | {"rollout.max_tokens": tokens})
    config.reward = {}
    slots.append(chosen(config, machine())[1].slots)
  assert 0 < slots[0] < slots[1]


def test_the_job_of_the_pages_is_chosen_as_they_say(tmp_path):
  """docs/pods.md has what the compiler makes of it."""
  config, _ = chosen(ordinary(tmp_path), machine())
  said = (config.microbatches, config.logprob_chunk, config.remat, config.mesh.fsdp)
  assert said == (8, 1024, "attention", 8)


def test_every_recipe_may_be_asked_at_the_scale(tmp_path):
  flags = ["--config=dapo:local", f"--config.model.path={known.folder('Qwen2.5-0.5B', tmp_path)}"]
  config = commandline.config_of([*flags, "--config.data.path=x", "--config.microbatches=3"])
  assert chosen(config, machine())[0].microbatches == 3
  assert json.dumps(config.to_dict())
