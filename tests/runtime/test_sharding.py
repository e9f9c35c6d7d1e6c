"""The mesh, its slices, the rules, and the table that is printed of them."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from ml_collections import ConfigDict

from grpojax import models
from grpojax.recipes import base
from grpojax.runtime import sharding
from grpojax.train import print_sharding


def config(**sizes) -> ConfigDict:
  return ConfigDict(dict.fromkeys((*sharding.AXES, "slices"), 1) | sizes)


def device(number: int, of_slice: int):
  """What mesh_utils looks at."""
  return SimpleNamespace(id=number, slice_index=of_slice, process_index=0, platform="cpu", device_kind="none")


def test_the_recipes_table_is_the_codes_own():
  assert base.get_config().mesh.rules.to_dict() == sharding.RULES
  sharding.check_rules(sharding.RULES)


@pytest.mark.parametrize("sizes", [dict(data=4, tensor=2), dict(data=2, fsdp=4), dict(data=2, context=4)])
def test_only_data_crosses_between_slices(sizes):
  devices = [device(i, i // 4) for i in range(8)][::-1]
  grid = sharding.arranged(sharding.mesh_sizes(config(**sizes), 8), 2, devices)
  names = np.vectorize(lambda d: d.slice_index)(grid)
  assert names.shape == tuple(sizes.get(axis, 1) for axis in sharding.AXES)
  half = sizes["data"] // 2
  assert (names[:half] == 0).all() and (names[half:] == 1).all()
  assert len({d.id for d in grid.flat}) == 8


@pytest.mark.parametrize(("asked", "of"), [(1, 2), (2, 1), (2, 4)])
def test_a_wrong_number_of_slices_is_refused(asked, of):
  devices = [device(i, i % of) for i in range(8)]
  with pytest.raises(ValueError, match=rf"config.mesh.slices = {asked}, .* {of} slice"):
    sharding.arranged(sharding.mesh_sizes(config(data=8, slices=asked), 8), asked, devices)


def test_a_dimension_is_cut_over_as_many_axes_as_divide_it():
  mesh = sharding.make_mesh(config(fsdp=2, context=4))
  cut = lambda size, rule: sharding.partition(mesh, ["embed"], (size,), sharding.RULES | dict(embed=rule))
  assert cut(16, "fsdp,context") == PartitionSpec(("fsdp", "context"))
  assert cut(6, "fsdp,context") == PartitionSpec("fsdp")
  assert cut(3, "fsdp,context") == cut(16, "") == cut(16, "elsewhere") == PartitionSpec(None)


@pytest.mark.parametrize("experts", [0, 4])
def test_the_table_says_what_every_device_holds(experts):
  """Against the shards of real arrays; kv heads that do not divide are whole."""
  c = base.get_config("tiny").model
  c.num_experts, c.num_key_value_heads = experts, 1
  rules = sharding.RULES
  mesh = sharding.make_mesh(config(fsdp=2, context=2, **dict(expert=2) if experts else dict(tensor=2)))
  model = models.build(c, 64, mesh, rules)
  where = sharding.param_shardings(mesh, model.axes, model.shapes, rules)
  put = lambda s, place: jax.device_put(np.zeros(s.shape, s.dtype), place)
  params = jax.tree.map(put, model.shapes, where)
  lines = print_sharding.table(model, mesh)
  held = [sum(s.data.nbytes for s in x.addressable_shards if s.device == mesh.devices.flat[0])
          for x in jax.tree.leaves(params)]  # fmt: skip
  assert [int(line.split()[-1].replace(",", "")) for line in lines[1:]] == [*held, sum(held)]
  assert lines[-1].startswith("total")
  assert "(-, fsdp x context, -, -)" in next(line for line in lines if line.startswith("layers.v "))


def test_the_table_is_printed_on_request(capsys):
  c = base.get_config("tiny")
  c.lora.rank = 2
  print_sharding.show(c)
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].startswith("8 cpu device(s): data 8 x fsdp 1")
  assert any(line.startswith("adapters.layers.q.a ") for line in lines)
  assert lines[-1].startswith("optimiser state: ")
  c.mesh.sampler.tensor = 4
  print_sharding.show(c)
  assert "data 2 x fsdp 1 x tensor 4 x" in capsys.readouterr().out.splitlines()[-1]
