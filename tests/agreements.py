"""A program for two processes with two devices each: what they agree on, and who reads what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from grpojax.runtime import data_shards, processes, sharding

ROWS = np.arange(8) * 10.0


def mesh(order=(0, 1, 2, 3), **sizes):
  shape = [sizes.get(axis, 1) for axis in sharding.AXES]
  devices = np.array(jax.devices())[list(order)].reshape(shape)
  return Mesh(devices, sharding.AXES, axis_types=(AxisType.Auto,) * len(shape))


def shares_of_two(where, me):
  shards = data_shards.of(where)
  assert shards == data_shards.ProcessShards(me, (0, 1))
  mine = shards.local(ROWS)
  np.testing.assert_array_equal(mine, ROWS[4 * me : 4 * me + 4])
  np.testing.assert_array_equal(shards.gather({"x": mine})["x"], ROWS)
  assert shards.sum(me + 1) == 3 and shards.broadcast_from_owner(mine) is mine
  assert shards.sum_each({"both": np.int64(me), f"of {me}": 2, "zero": 0}) == {
    "both": 1, "of 0": 2, "of 1": 2, "zero": 0,
  }  # fmt: skip
  unequal = shards.gather_unequal({"x": mine[: 3 * me], "rows": mine[: 3 * me, None]})
  np.testing.assert_array_equal(unequal["x"], ROWS[4:7])
  assert unequal["rows"].shape == (3, 1)
  on_mesh = sharding.to_device(where, mine)
  assert on_mesh.shape == (8,)
  np.testing.assert_array_equal(sharding.to_host(on_mesh), mine)
  owner, row = np.array([1, 0, 1, 1, 0, 1]), np.array([3, 2, 0, 1, 1, 3])  # one twice, one share more often
  dealt = shards.redistribute({"x": mine, "none": None}, owner, row)
  np.testing.assert_array_equal(dealt["x"], np.split(ROWS[owner * 4 + row], 2)[me])


def one_share_for_both(where, me):
  shards = data_shards.of(where)
  assert shards == data_shards.ProcessShards(0, (0,))
  np.testing.assert_array_equal(shards.local(ROWS), ROWS)
  np.testing.assert_array_equal(shards.gather(ROWS), ROWS)
  assert shards.sum(3) == 3 and shards.sum_each({"both": 1 + me}) == {"both": 1}
  assert shards.broadcast_from_owner(np.array([me])).tolist() == [0]
  np.testing.assert_array_equal(sharding.to_host(sharding.to_device(where, ROWS)), ROWS)


def agreements(me):
  assert processes.any_process(me == 1) and not processes.any_process(False)
  assert processes.broadcast(np.array([me])).tolist() == [0]
  assert processes.gather_texts(f"é{me}" * (me + 1)) == ["é0", "é1é1"]
  processes.assert_equal(lambda: {"seed": 1})
  with pytest.raises(ValueError, match="seed is 0 on process 0 and 1 on process 1"):
    processes.assert_equal(lambda: {"seed": me})
  with pytest.raises(ValueError, match=r"^process 0 says no$"):  # on both
    processes.on_process_0(lambda: (_ for _ in ()).throw(ValueError(f"process {me} says no")))


def everywhere(where):
  put = sharding.everywhere(where, {"key": jax.random.key(3), "half": 0.5, "unknown": np.float32(np.nan)})
  assert all(x.sharding.is_fully_replicated and len(x.devices()) == 4 for x in put.values())
  assert put["half"].dtype == np.float32 and np.isnan(np.asarray(put["unknown"]))
  assert (np.asarray(jax.random.key_data(put["key"])) == jax.random.key_data(jax.random.key(3))).all()


def agree_beside_a_program_on_some_devices(me):
  """Whose collectives go on while the processes gather: over the last device of each."""
  some = Mesh(np.array(jax.devices()).reshape(2, 2)[:, 1], ("some",))
  rows, whole = (NamedSharding(some, PartitionSpec(*axes)) for axes in (["some"], []))

  def step(_, x):
    everything = jax.lax.with_sharding_constraint(x, whole)
    return jax.lax.with_sharding_constraint(jnp.sin(everything @ everything.T @ everything), rows)

  long = jax.jit(lambda x: jax.lax.fori_loop(0, 100, step, x))
  begin = jax.make_array_from_process_local_data(rows, np.full((4, 64), 1 + me, np.float32))
  expected = sharding.to_host(long(begin))
  for _ in range(3):
    ended = long(begin)
    for i in range(4):
      assert processes.allgather(np.full(2, 10 * me + i)).tolist() == [[i, i], [10 + i, 10 + i]]
    np.testing.assert_array_equal(sharding.to_host(ended), expected)
  exact = np.array([-0.0, np.nan, 2.0**60 + 256])
  assert processes.allgather(exact).tobytes() == exact.tobytes() * 2
  assert processes.allgather(np.zeros((0, 3), bool)).shape == (2, 0, 3)


if __name__ == "__main__":
  jax.config.update("jax_num_cpu_devices", 2)
  processes.initialize({}, heartbeat=10)
  process = jax.process_index()
  shares_of_two(mesh(data=4), process)
  shares_of_two(mesh(fsdp=2, tensor=2), process)
  shares_of_two(mesh(order=(0, 2, 1, 3), data=4), process)  # shards of the two by turns
  one_share_for_both(mesh(tensor=4), process)
  one_share_for_both(mesh(order=(0, 2, 1, 3), data=2, context=2), process)  # half of each shard
  agreements(process)
  everywhere(mesh(data=4))
  agree_beside_a_program_on_some_devices(process)
  print("agreed")
