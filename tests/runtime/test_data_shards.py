"""Who reads which prompts, by the mesh; and two processes that put together what they have."""

import numpy as np
import pytest
import subprocesses

from grpojax.runtime import data_shards


@pytest.mark.slow
def test_two_processes_agree():
  for ended in subprocesses.ended(subprocesses.start([["tests/agreements.py"]] * 2), timeout=60):
    assert ended.code == 0 and "agreed" in ended.out, ended.err


@pytest.mark.parametrize(
  ("shards", "rank", "leads"),
  [
    ([[1], [0], [2], [3]], 1, (1, 0, 2, 3)),  # of process 0 of four
    ([[0], [1], [2], [3], [0], [1], [2], [3]], 0, (0, 1, 2, 3)),
    ([[2, 3], [1, 0]], 1, (2, 0)),  # a shard over two processes
    ([[2, 3, 2, 3], [1, 0, 1, 0], [2, 3, 2, 3], [0, 1, 0, 1]], 1, (2, 0)),
    ([[0, 1, 2, 3]], 0, (0,)),
  ],
)
def test_who_holds_the_same_shards_reads_the_same(shards, rank, leads):
  assert data_shards.among(np.array(shards), 0, 4) == data_shards.ProcessShards(rank, leads)


@pytest.mark.parametrize(
  "shards", [[[0], [1], [2]], [[0], [0], [1], [2], [3]], [[0, 1], [1, 2], [2, 3], [3, 0]]]
)
def test_a_mesh_whose_processes_read_no_equal_shares_is_refused(shards):
  with pytest.raises(ValueError, match=r"config\.mesh gives each of the 4 processes"):
    data_shards.among(np.array(shards), 0, 4)
