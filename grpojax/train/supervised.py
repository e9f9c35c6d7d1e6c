"""Supervised fine-tuning: updates on given answers, of cold starts and of `grpojax sft`.

SFT is REINFORCE with advantage one on somebody else's tokens, so the learner's update is used as it
is: one completion per prompt, weight 1 / tokens.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import objective as objective_lib
from grpojax.data import demonstrations, pipeline
from grpojax.learner import batching, optimizer
from grpojax.learner.packing import PackSpec
from grpojax.learner.rows import Rows
from grpojax.learner.state import State
from grpojax.learner.update import make_update
from grpojax.models import Model
from grpojax.objective import Objective
from grpojax.runtime import compiler_options, data_shards, sharding
from grpojax.runtime.compile import aot_jit
from grpojax.train import programs as programs_lib
from grpojax.types import Batch

OBJECTIVE = ConfigDict(
  dict(
    advantage=dict(fn="raw"),
    rescale=dict(fn="identity"),
    ratio=dict(fn="token"),
    surrogate=dict(fn="reinforce"),
    aggregate=dict(fn="token_mean"),
    shape={},
    select={},
    correct={},
    penalty={},
  )
)


class Demonstrations(NamedTuple):
  """Demonstrations to learn from, and how they are drawn; budgets are those of a run's `config`."""

  config: ConfigDict
  split: pipeline.Split  # rows with a `demonstration` or an `episode`
  tokenizer: object
  batch_size: int
  seed: int
  observation_tokens: int  # of an observation's or a user's text between two answers, at most
  memory: int = 0  # turns that a new context of an episode begins with; 0: all is one context
  pack: PackSpec | None = None  # how sequences share rows; None: a row each


def cosine(learning_rate: float, warmup_steps: int, steps: int) -> optax.Schedule:
  """Returns the learning rate by update: linear from 0, then a cosine to a tenth after `steps`."""
  return optax.schedules.warmup_cosine_decay_schedule(
    0.0, learning_rate, warmup_steps, max(steps, warmup_steps + 1), 0.1 * learning_rate
  )


def program(name: str, model: Model, mesh: Mesh, rows: Rows, tx, schedule: optax.Schedule) -> Callable:
  """Returns the update, compiled at its first call: (state, objective, batch, frozen) -> (state, metrics)."""
  where, everywhere = optimizer.state_shardings(model, tx, mesh), sharding.replicated(mesh)
  return aot_jit(
    name,
    make_update(rows, tx, schedule),
    in_shardings=(where, everywhere, sharding.batch_sharding(mesh), programs_lib.frozen_layout(model, mesh)),
    out_shardings=(where, everywhere),
    donate_argnums=0,
    compiler_options=compiler_options.options(mesh),
  )


def updates(
  update: Callable, objective: Objective, batch: Callable[[int], tuple[Batch, dict]], state: State,
  frozen: dict, steps: range, begin: Callable[[int], None],
) -> Iterator[tuple[int, State, dict, dict]]:  # fmt: skip
  """Yields (step, state, metrics on the device, counts on the host) of each update, behind `begin(step)`.

  `batch(number)` returns a batch on the mesh, and its counts.
  """
  for step in steps:
    begin(step)
    shown, counts = batch(step - 1)
    state, metrics = update(state, objective, shown, frozen)
    yield step, state, metrics, counts


def of_demonstrations(shown: Demonstrations, mesh: Mesh) -> tuple[Objective, Callable]:
  """Returns the objective on the mesh, and the function of a batch's number that `updates` takes."""

  def batch(number: int):
    found, counts = batch_of(shown, number, mesh)
    return sharding.to_device(mesh, found), counts

  return sharding.everywhere(mesh, objective_lib.build(OBJECTIVE)), batch


def batch_of(shown: Demonstrations, number: int, mesh: Mesh) -> tuple[Batch, dict[str, int]]:
  """Returns this process's rows of a batch, and counts of the whole one: tokens learned, answers cut."""
  demo = demonstrations.batch(
    shown.split, shown.tokenizer, shown.batch_size, shown.config.rollout.max_tokens, shown.seed, number,
    shown.observation_tokens, shown.memory,
  )  # fmt: skip
  counts = {"num_tokens": int(demo["mask"].sum()), "sft/cut": demo["cut"]}
  mine = data_shards.of(mesh).local(np.arange(shown.batch_size))
  demo = {k: demo[k][mine, None] for k in ("tokens", "mask", "context", "prompt_length", "length")}  # G = 1
  ones = np.ones(demo["prompt_length"].shape, np.float32)
  batch = Batch(
    mask=demo["mask"],
    reward=ones,
    accuracy=ones,
    valid=ones > 0,
    ended=ones > 0,
    tokens=demo["tokens"],
    prompt_length=demo["prompt_length"],
    length=demo["length"],
    context=demo["context"] if shown.memory else None,
  )
  if shown.pack:
    index = batching.pack_index(shown.pack, mesh, batch.prompt_length, batch.length)
    batch = batch._replace(packing_index=index)
  return batch, counts
