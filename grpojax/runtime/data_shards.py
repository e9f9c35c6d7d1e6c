"""Which process reads, samples and grades which prompts, and how what they find is put together.

A process reads the prompts of the batch's shards that its devices hold.  Where a shard is cut over several
processes (`tensor` or `context` is wider than one), all of these read the same, and the first of them, which
leads, is believed: a verdict may depend on a clock.  What is
`collective` here must be called by all processes.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from grpojax.runtime import sharding


class ProcessShards(NamedTuple):
  """The shares that every batch is read in, here of one process alone."""

  rank: int = 0  # of this process's share
  owners: tuple[int, ...] = (0,)  # of each share the process that speaks for it

  @property
  def count(self) -> int:
    return len(self.owners)

  def local(self, rows: Sequence) -> np.ndarray:
    """This process's part of what all processes know."""
    return np.array_split(rows, self.count)[self.rank]

  def gather(self, tree):
    """Collective: host arrays of all shares, joined by their first axis."""
    if jax.process_count() == 1:
      return tree
    return jax.tree.map(lambda x: np.concatenate(self._of_owners(x)), tree)

  def sum(self, x: float) -> float:
    """Collective: the sum over shares."""
    if jax.process_count() == 1:
      return x
    return self._of_owners(np.array(x)).sum().item()

  def broadcast_from_owner(self, tree):
    """Collective: what the process that leads this share has."""
    if self.count == jax.process_count():
      return tree
    return jax.tree.map(lambda x: self._of_owners(x)[self.rank], tree)

  def redistribute(self, tree, owner: np.ndarray, row: np.ndarray):
    """Collective: row `row[i]` of share `owner[i]`'s host arrays, for every i, dealt out into shares anew.

    A row of each process travels at a time, so that no host or device ever holds all of them.
    """
    mine = self.local(np.arange(len(owner)))
    sends = [np.flatnonzero(owner == share) for share in range(self.count)]
    got = jax.tree.map(lambda x: np.empty((len(mine), *x.shape[1:]), x.dtype), tree)
    for turn in range(max(map(len, sends))):
      sent = row[sends[self.rank][turn]] if turn < len(sends[self.rank]) else 0
      seen = jax.tree.map(lambda x, sent=sent: self._of_owners(x[sent]), tree)
      for share, numbers in enumerate(sends):
        at = numbers[turn] - mine[0] if turn < len(numbers) else -1
        if 0 <= at < len(mine):
          for new, of_all in zip(jax.tree.leaves(got), jax.tree.leaves(seen), strict=True):
            new[at] = of_all[share]
    return got

  def _of_owners(self, x: np.ndarray) -> np.ndarray:
    return multihost_utils.process_allgather(x)[list(self.owners)]


SINGLE_PROCESS = ProcessShards()


@functools.cache
def of(mesh: Mesh) -> ProcessShards:
  """ValueError if this mesh lets the processes read no equal shares."""
  process = np.vectorize(lambda device: device.process_index)(mesh.devices)
  batch = [mesh.axis_names.index(axis) for axis in sharding.batch_axes(mesh)]
  shards = np.moveaxis(process, batch, range(len(batch))).reshape(sharding.batch_shards(mesh), -1)
  return among(shards, jax.process_index(), jax.process_count())


def check_sampler(mesh: Mesh, sampler: Mesh) -> None:
  """ValueError where a process would sample other prompts than it learns from."""
  if of(sampler) != of(mesh):
    raise ValueError(
      "config.mesh.sampler cuts the batch over the processes in another way than config.mesh does, and each"
      " learns from what it samples; lower config.mesh.sampler.tensor * .expert to the devices of a process."
    )


def among(shards: np.ndarray, own: int, processes: int) -> ProcessShards:
  """shards [batch shards, devices of each], of processes -> what process `own` reads."""
  held = [frozenset(np.flatnonzero((shards == process).any(1)).tolist()) for process in range(processes)]
  shares = sorted(set(held), key=lambda share: min(share, default=-1))
  sizes = sorted(len(share) for share in shares)
  if sizes[0] != sizes[-1] or sum(sizes) != len(shards):
    raise ValueError(
      f"config.mesh gives each of the {processes} processes {sizes[0]} to {sizes[-1]} of the batch's"
      f" {len(shards)} shards, some perhaps in part; use all devices, and let config.mesh.tensor *"
      " config.mesh.context divide those of a process, or be a multiple of them."
    )
  return ProcessShards(shares.index(held[own]), tuple(held.index(share) for share in shares))
