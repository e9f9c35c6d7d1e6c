"""Config -> engine: which sampler a run has, of which shape, and where its programs keep what they make."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.models import Model, Spec
from grpojax.rollout.sampler import continuous, engine, kv_budget, recompute, static_batch, weights
from grpojax.rollout.sampler.engine import Engine
from grpojax.rollout.sampler.interruption import Interruption
from grpojax.rollout.sampler.token_sampling import SamplingParams
from grpojax.runtime import compiler_options, sharding
from grpojax.runtime.compile import aot_jit


class GenerationSpec(NamedTuple):
  """Samples of each prompt: how many, how long, by which rule.  Equal specs share an engine."""

  group_size: int  # G, completions of a prompt
  max_tokens: int  # T, of a completion
  sampling: SamplingParams
  record_routing: bool = False  # mixtures only: Rollout.routing
  record_kept: bool = False  # Rollout.kept, where the sampling has top_k
  weights: str = "full"  # "int8": matrices in eight bits
  kv_cache: str = "full"  # "int8": caches in eight bits
  interruption: Interruption | None = None  # of responses that think too long


def rollout_spec(config: ConfigDict) -> GenerationSpec:
  """Returns what a training step samples."""
  c = config.rollout
  record = config.routing_replay == "R3", c.top_k > 0
  return GenerationSpec(c.group_size, c.max_tokens, sampling_params(c), *record, c.weights, c.kv_cache)


def eval_spec(config: ConfigDict) -> GenerationSpec:
  """Returns what an evaluation samples, in full precision: of the policy that is trained."""
  return GenerationSpec(config.eval.samples, config.eval.max_tokens, sampling_params(config.eval))


def sampling_params(c: ConfigDict) -> SamplingParams:
  """Returns those of `config.rollout` or `config.eval`."""
  return SamplingParams(*(c[key] for key in SamplingParams._fields))


def build(
  config: ConfigDict, name: str, model: Model, mesh: Mesh, eos_ids: tuple[int, ...], spec: GenerationSpec
) -> Engine:
  """Returns the engine for a learner whose parameters are on `mesh`; its programs are called by `name`."""
  model, mesh, where, sync, send = weights.build_sync(config, name, model, mesh, spec.weights)
  common = spec._asdict() | dict(eos_ids=eos_ids)
  del common["weights"]
  slots = slots_that_fit(config, model.spec, mesh, spec)
  if slots:
    programs = _continuous_programs(config, name, model, mesh, where, slots, common)
    built = engine.continuous_engine(mesh, sync, *programs, slots, config.rollout.segment)
  else:
    built = engine.static_engine(mesh, sync, *_static_programs(name, model, mesh, where, common))
  return engine.labelled(built._replace(send=send), spec.interruption)


def slots_that_fit(config: ConfigDict, spec: Spec, mesh: Mesh, generation: GenerationSpec) -> int:
  """Returns the slots on the sampler's whole mesh: `config.rollout.slots`, or as many as memory holds."""
  c = config.rollout
  if not c.slots:
    return 0
  return kv_budget.slots(
    spec,
    wanted=c.slots,
    prompts=c.prompts,
    group_size=generation.group_size,
    prompt_budget=config.data.prompt_budget,
    max_tokens=generation.max_tokens,
    memory_gb=c.kv_memory_gb,
    shards=sharding.batch_shards(mesh),
    tensor=mesh.shape["tensor"],
    kv_cache=kv_budget.kept_as(generation.kv_cache, mesh),
  )


def _static_programs(name: str, model: Model, mesh: Mesh, where: dict, common: dict) -> list[Callable]:
  """Returns (prefill, decode) of `static_batch.py`, compiled at their first call."""
  everywhere, rows = sharding.replicated(mesh), sharding.batch_sharding(mesh)
  prefill, decode = static_batch.build(model, **common)
  of_prefill = dict(in_shardings=(where, rows, rows), compiler_options=compiler_options.options(mesh))
  of_decode = dict(compiler_options=compiler_options.options(mesh, decoding=True))
  of_decode |= dict(in_shardings=(where, rows, everywhere, rows))
  return [
    aot_jit(f"{name} prefill", prefill, **of_prefill, out_shardings=rows),
    aot_jit(f"{name} decode", decode, **of_decode, out_shardings=rows),
  ]


def _continuous_programs(
  config: ConfigDict, name: str, model: Model, mesh: Mesh, where: dict, slots: int, common: dict
) -> list[Callable]:
  """Returns (begin, insert, advance) of `continuous.py`, and `recompute`, compiled at their first call."""
  everywhere, rows = sharding.replicated(mesh), sharding.batch_sharding(mesh)
  kv = sharding.kv_sharding(mesh, model.spec.num_key_value_heads, model.rules)
  how = common | dict(
    slots=slots,
    shards=sharding.batch_shards(mesh),
    prefill_chunk=config.rollout.prefill_chunk,
    kv_cache=kv_budget.kept_as(common["kv_cache"], mesh),
    kv_sharding=kv,
    piece_bytes=compiler_options.piece_bytes(mesh),
  )
  begin, insert, advance = continuous.build(model, **how)
  anew = partial(recompute.recompute, continuous.SamplerSpec(model, **how))
  prompts, state, status = continuous.shardings(rows, everywhere, kv)
  new, carried = (rows, rows, rows, everywhere), (prompts, state, rows)
  of_insert = dict(in_shardings=(where, *carried, *new), out_shardings=carried, donate_argnums=(1, 2))
  of_advance = dict(in_shardings=(where, *carried, everywhere), out_shardings=(state, rows, status))
  of_advance |= dict(donate_argnums=2, compiler_options=compiler_options.options(mesh, decoding=True))
  of_anew = dict(in_shardings=(where, *carried, rows), out_shardings=(prompts, state))
  of_anew |= dict(donate_argnums=(1, 2))
  options = dict(compiler_options=compiler_options.options(mesh))
  return [
    aot_jit(f"{name} prefill", begin, in_shardings=(where, *new), out_shardings=carried, **options),
    aot_jit(f"{name} refill", insert, **of_insert, **options),
    aot_jit(f"{name} decode", advance, **of_advance),  # not donated: the rollout, which is being read
    aot_jit(f"{name} keys and values", anew, **of_anew, **options),
  ]
