"""A run's own programs, by name, with their arguments; traced, not compiled."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models, objective
from grpojax.config import check as config_lib
from grpojax.data import text
from grpojax.learner import logprob_scan, logprobs, rows
from grpojax.learner.packing import PackSpec
from grpojax.learner.state import State
from grpojax.models import kernels
from grpojax.runtime import sharding
from grpojax.tools.podcheck import abstract, known
from grpojax.train import auto, footprint
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib
from grpojax.train.auto import Machine


class Plan(NamedTuple):
  """A run that could begin on this mesh."""

  config: ConfigDict  # with what `auto` chose
  mesh: Mesh
  model: models.Model
  packed: PackSpec | None  # as in footprint.Sizes, whose fields these are
  slots: int
  pieces: int
  columns: int
  programs: programs_lib.Programs
  open_loops: dict[str, int]  # as Program.unknown, of a pass over them
  chosen: str  # "key=value, ..." of what the config left open

  @property
  def copies(self) -> bool:
    """Returns True if the sampler has parameters of its own."""
    return self.programs.sample.sync is not None


class Program(NamedTuple):
  """One program of a run."""

  call: Callable  # of `aot_jit`
  args: tuple  # shapes
  lowered: Any  # jax.stages.Lowered
  unknown: dict[str, int]  # iterations of loops that data ends, by scope; all responses take their budget
  calls: float  # in one step of training
  mesh: dict[str, int]  # `axes` of what it runs on: the sampler may have its own
  scored: float = 1.0  # share of a row's causal pairs that attention by a mask scores


def plan(config: ConfigDict, machine: Machine, scratch: Path) -> Plan:
  """Plans a run.  Raises ValueError as the run would, before anything is compiled."""
  config = config.copy_and_resolve_references()
  tokenizer = None
  if "path" in config.model:
    config.model.path = str(known.folder(config.model.path, scratch))
    tokenizer = abstract.Tokenizer()
  tokenizer = tokenizer or text.load_tokenizer(policy_lib.model_folder(config))
  config_lib.check(config, len(machine.devices))
  asked, config = config, auto.choose(config, machine, tokenizer)
  mesh = sharding.make_mesh(config.mesh, machine.devices)
  model = auto.build_model(config, machine, tokenizer, mesh)
  programs = programs_lib.build(config, model, tokenizer, mesh)
  sizes = footprint.sizes(config, model, mesh)
  loops = {}
  if sizes.packed:
    loops = dict(microbatches=sizes.pieces, head=_chunks(config, mesh, sizes.packed))
  return Plan(*sizes, programs, loops, auto.describe(asked, config))


def _chunks(config: ConfigDict, mesh: Mesh, spec: PackSpec) -> int:
  """Returns the number of chunks of packed rows' log-probs that responses of the whole budget need."""
  shards = sharding.column_shards(mesh, spec.shards * spec.rows)
  _, size = logprob_scan.cut(spec.columns, config.logprob_chunk, shards)
  return math.ceil(spec.response_budget * rows.whole_responses(config, spec) / size)


def sharing(plan: Plan) -> int:
  """Returns the number of responses of the whole budget for which a prompt is computed once."""
  return rows.whole_responses(plan.config, plan.packed) if plan.packed and plan.packed.shared else 1


def _scored(plan: Plan) -> float:
  """Returns Program.scored of rows in which all has its whole budget, by the kernel's blocks."""
  spec, L = plan.packed, plan.config.data.prompt_budget
  responses = sharing(plan)
  if responses == 1 or plan.model.attention != "splash":
    return 1.0
  own, block = spec.response_budget - 1, kernels.block(spec.columns)
  of_prompt = range(-(-L // block))
  scored = {(query, key) for query in of_prompt for key in range(query + 1)}
  for number in range(responses):
    begin = L + number * own
    for query in range(begin // block, (begin + own - 1) // block + 1):
      scored |= {(query, key) for key in (*of_prompt, *range(begin // block, query + 1))}
  blocks = -(-spec.columns // block)
  return len(scored) / (blocks * (blocks + 1) / 2)


def state(plan: Plan):
  """Returns (shapes, shardings) of what an update changes."""
  return programs_lib.state_layout(plan.config, plan.model, plan.mesh)


def update(plan: Plan) -> Program:
  config, model = plan.config, plan.model
  frozen = model.shapes if model.lora else {}
  args = state(plan)[0], objective.build(config.objective), abstract.batch(config, model), frozen
  call = plan.programs.update
  return _program(plan.mesh, call, args, plan.open_loops, config.updates_per_rollout, _scored(plan))


def log_probs(plan: Plan) -> Program:
  """Returns the log-prob pass over one batch.  A step makes as many passes as its config needs."""
  config, batch = plan.config, abstract.batch(plan.config, plan.model)
  args = (
    _policy(plan.model), batch.tokens, batch.prompt_length, batch.routing, batch.balance_mask,
    batch.packing_index, batch.context, batch.kept,
  )  # fmt: skip
  call = plan.programs.logp
  return _program(plan.mesh, call, args, plan.open_loops, log_prob_passes(config), _scored(plan))


def log_prob_passes(config: ConfigDict) -> int:
  """Returns the passes of a step over an update's sequences: of the old policy, and of a reference."""
  first = logprobs.needs_old_logprobs(config)
  return config.updates_per_rollout * (1 + bool(config.reference)) - (not first)


def sampling(plan: Plan) -> dict[str, Program]:
  """Returns the programs of sampling: the sampler's own parameters, prefill, decoding."""
  config, c = plan.config, plan.config.rollout
  sync, *programs = plan.programs.sample.programs
  tokens, length, ids, key = abstract.prompts(config)
  params, found, on = _policy(plan.model), {}, sharding.sampler_mesh(config.mesh, plan.mesh)
  if plan.copies:
    found["weights"] = _program(plan.mesh, sync, (params,), {}, 1)
    params = found["weights"].lowered.out_info
  if not c.slots:
    prefill, decode = programs
    args = params, tokens, length
    found["prefill"] = _program(on, prefill, args, {}, 1)
    args = params, found["prefill"].lowered.out_info, key, ids
    found["decode"] = _program(on, decode, args, dict(decode=c.max_tokens - 1), 1)
    return found
  begin, _, advance = programs
  args = params, tokens, length, ids, key
  chunks = math.ceil(c.prompts // sharding.batch_shards(on) * config.data.prompt_budget / c.prefill_chunk)
  found["prefill"] = _program(on, begin, args, dict(prefill=chunks), 1)
  args = params, *found["prefill"].lowered.out_info, abstract.number()
  calls = decode_steps(plan) / c.segment
  found["decode"] = _program(on, advance, args, dict(decode=c.segment), calls)
  return found


def _program(
  mesh: Mesh, call, args: tuple, unknown: dict[str, int], calls: float, scored: float = 1.0
) -> Program:
  return Program(call, args, call.lower(*args), unknown, calls, axes(mesh), scored)


def axes(mesh: Mesh) -> dict[str, int]:
  """Returns the mesh's sizes; "slice" is the outer part of `data`, where several slices are joined."""
  sizes, slices = dict(mesh.shape), sharding.slices_of(mesh.devices.flat)
  return {"slice": slices} | sizes | {"data": sizes["data"] // slices} if slices > 1 else sizes


def decode_steps(plan: Plan) -> int:
  """Returns iterations of the decode loop in one rollout: waves of responses of the whole budget."""
  c = plan.config.rollout
  return math.ceil(c.prompts * c.group_size / plan.slots) * max(c.max_tokens - 1, 1)


def _policy(model: models.Model) -> dict:
  return (model.shapes if model.lora else {}) | model.trained.shapes


def arguments(program: Program) -> dict[str, int]:
  """Returns bytes on a device that a program reads, by kind of argument."""
  sums = {}
  for arg, where in zip(program.args, program.call.in_shardings, strict=True):
    for name, part, layout in _parts(arg, where):
      sums[name] = sums.get(name, 0) + sharding.bytes_per_chip(part, layout)
  return sums


def _parts(arg, where):
  """Returns (kind, shapes, shardings) of an argument."""
  if isinstance(arg, State):
    return [("parameters", arg.params, where.params), ("optimiser", arg.opt_state, where.opt_state)]
  if isinstance(arg, dict):
    return [("parameters", arg, where)]
  if hasattr(arg, "cache"):
    layout = where.cache if hasattr(where, "cache") else where
    return [("KV", arg.cache, layout)]
  return [("batch", arg, where)]
