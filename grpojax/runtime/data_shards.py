"""Shards of the batch's prompts: the part that each process reads, samples and grades, and collectives.

A process reads the prompts of the batch's shards that its devices hold.  Where a shard is cut over several
processes (`tensor` or `context` is wider than one), all of these read the same prompts, and the first of
them, the owner, decides: a verdict may depend on a clock.  All processes must call a function that is
marked "Collective:".
"""

import functools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from grpojax.runtime import processes, sharding


class ProcessShards(NamedTuple):
  """The shards that every batch is read in; the defaults are those of a single process."""

  rank: int = 0  # of this process's shard
  owners: tuple[int, ...] = (0,)  # of each shard, the process whose values count

  @property
  def count(self) -> int:
    return len(self.owners)

  def local(self, rows: Sequence) -> np.ndarray:
    """Returns this process's part of rows that all processes have."""
    return np.array_split(rows, self.count)[self.rank]

  def gather(self, tree):
    """Collective: returns the host arrays of all shards, joined by their first axis."""
    if jax.process_count() == 1:
      return tree
    return jax.tree.map(lambda x: np.concatenate(self._of_owners(x)), tree)

  def gather_unequal(self, tree):
    """Collective: as `gather`, of shards that may have unequally many rows."""
    if jax.process_count() == 1:
      return tree
    of_all = processes.allgather_unequal(tree)
    return jax.tree.map(lambda *x: np.concatenate(x), *(of_all[owner] for owner in self.owners))

  def sum(self, x: float) -> float:
    """Collective: returns the sum over shards."""
    if jax.process_count() == 1:
      return x
    return self._of_owners(np.array(x)).sum().item()

  def sum_each(self, counts: Mapping[str, float]) -> dict[str, float]:
    """Collective: returns each count, summed over shards; one that a shard lacks is 0 there."""
    if jax.process_count() == 1:
      return dict(counts)
    of_all, total = processes.gather_texts(json.dumps(counts, default=lambda n: n.item())), Counter()
    for owner in self.owners:
      total.update(json.loads(of_all[owner]))
    return dict(total)

  def broadcast_from_owner(self, tree):
    """Collective: returns the tree of this shard's owner."""
    if self.count == jax.process_count():
      return tree
    return jax.tree.map(lambda x: self._of_owners(x)[self.rank], tree)

  def redistribute(self, tree, owner: np.ndarray, row: np.ndarray):
    """Collective: sends row `row[i]` of shard `owner[i]`'s host arrays, for every i, to its new shard.

    One row of each process travels at a time, so that no host or device ever holds all rows.
    """
    mine = self.local(np.arange(len(owner)))
    sends = [np.flatnonzero(owner == shard) for shard in range(self.count)]
    got = jax.tree.map(lambda x: np.empty((len(mine), *x.shape[1:]), x.dtype), tree)
    for turn in range(max(map(len, sends))):
      sent = row[sends[self.rank][turn]] if turn < len(sends[self.rank]) else 0
      seen = jax.tree.map(lambda x, sent=sent: self._of_owners(x[sent]), tree)
      for shard, numbers in enumerate(sends):
        at = numbers[turn] - mine[0] if turn < len(numbers) else -1
        if 0 <= at < len(mine):
          for new, of_all in zip(jax.tree.leaves(got), jax.tree.leaves(seen), strict=True):
            new[at] = of_all[shard]
    return got

  def _of_owners(self, x: np.ndarray) -> np.ndarray:
    return processes.allgather(x)[list(self.owners)]


SINGLE_PROCESS = ProcessShards()


@functools.cache
def of(mesh: Mesh) -> ProcessShards:
  """Returns this process's shard of the mesh.  Raises ValueError if processes would read unequal shards."""
  return among(_processes(mesh), jax.process_index(), jax.process_count())


def places(mesh: Mesh, rows: int) -> np.ndarray:
  """Returns the rows of a global array of so many that each of `ProcessShards` has, [count, rows / count]."""
  shards = _processes(mesh)
  each = np.arange(rows).reshape(len(shards), -1)
  return np.stack([each[sorted(part)].ravel() for part in _parts(shards, jax.process_count())[1]])


def check_sampler(mesh: Mesh, sampler: Mesh) -> None:
  """Raises ValueError where a process would sample other prompts than it learns from."""
  learns, samples = _processes(mesh), _processes(sampler)
  number = int(learns.max()) + 1
  if of_all(samples, number) != of_all(learns, number):
    raise ValueError(
      "config.mesh.sampler cuts the batch over the processes in another way than config.mesh does, and each"
      " learns from what it samples; lower config.mesh.sampler.tensor * .expert to the devices of a process."
    )


def _processes(mesh: Mesh) -> np.ndarray:
  """Returns the process of every device, [batch shards, devices of each]."""
  batch = [mesh.axis_names.index(axis) for axis in sharding.batch_axes(mesh)]
  process = np.moveaxis(sharding.processes_of(mesh), batch, range(len(batch)))
  return process.reshape(sharding.batch_shards(mesh), -1)


def among(shards: np.ndarray, own: int, number: int) -> ProcessShards:
  """Returns the shard that process `own` of so many reads.

  `shards` [batch shards, devices of each] holds processes.
  """
  return of_all(shards, number)[own]


def of_all(shards: np.ndarray, number: int) -> list[ProcessShards]:
  """Returns the shard that each process reads.  Raises ValueError if they would read unequal ones."""
  held, parts = _parts(shards, number)
  sizes = sorted(len(part) for part in parts)
  if sizes[0] != sizes[-1] or sum(sizes) != len(shards):
    raise ValueError(
      f"config.mesh gives each of the {number} processes {sizes[0]} to {sizes[-1]} of the batch's"
      f" {len(shards)} shards, some perhaps in part; use all devices, and let config.mesh.tensor *"
      " config.mesh.context divide those of a process, or be a multiple of them."
    )
  owners = tuple(held.index(part) for part in parts)
  return [ProcessShards(parts.index(part), owners) for part in held]


def _parts(shards: np.ndarray, number: int) -> tuple[list[frozenset], list[frozenset]]:
  """Returns the batch's shards that each of so many processes has, and which of these differ, in order."""
  held = [frozenset(np.flatnonzero((shards == process).any(1)).tolist()) for process in range(number)]
  return held, sorted(set(held), key=lambda part: min(part, default=-1))
