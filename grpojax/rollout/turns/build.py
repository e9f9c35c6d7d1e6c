"""Config -> the engine of trajectories: its programs, its slots, its budgets."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.data import dialogue
from grpojax.models import Model, Spec
from grpojax.rollout.envs import build as envs
from grpojax.rollout.envs.interface import ROLES, Environments
from grpojax.rollout.sampler import GenerationSpec, kv_budget, turns, weights
from grpojax.rollout.sampler.engine import Engine
from grpojax.rollout.turns import ahead
from grpojax.rollout.turns.ahead import Playing
from grpojax.rollout.turns.game import Game
from grpojax.rollout.turns.table import Budgets, Device, Table
from grpojax.runtime import compiler_options, data_shards, sharding
from grpojax.runtime.compile import aot_jit
from grpojax.types import Prompts

LEAST = 8  # slots of a shard that read at a time, or an eighth of them; and that a bank has


def build(
  config: ConfigDict, name: str, model: Model, mesh: Mesh, eos_ids: tuple[int, ...], spec: GenerationSpec, *,
  tokenizer, environments: Callable[[], Environments], thread: ThreadPoolExecutor,
) -> Engine:  # fmt: skip
  """Returns the engine for a learner whose parameters are on `mesh`; its programs are called by `name`.

  `environments` makes those of the run when they are first needed.  What is started is played at once, by the
  `thread` of one worker that all engines of these environments share.
  Of several processes each plays its own prompts' games, on its own devices, at its own pace.
  Raises ValueError for a chat template without a second turn, and where no process has all parameters.
  """
  dialogue.check(tokenizer)
  samples, between = weights.build_sync(config, name, model, mesh, spec.weights), _between(config, tokenizer)
  slots = slots_of(config, model.spec, samples.mesh, spec, between) // sharding.batch_shards(samples.mesh)
  of_processes = data_shards.of(mesh)
  if jax.process_count() > 1:
    samples = weights.on_own_process(config, samples)
  model, mesh, where, sync, send = samples
  own, banks = _banks(slots, mesh)
  shards = sharding.batch_shards(mesh)
  slots, readers = own * shards, min(own, max(LEAST, -(-own // LEAST))) * shards
  programs = _programs(config, name, model, mesh, where, eos_ids, spec, slots, readers, between)
  put, replicate = partial(sharding.to_device, mesh), partial(sharding.everywhere, mesh)
  steps = config.rollout.prefill_chunk, readers, config.rollout.segment
  device = Device(*programs, slots, *steps, put, replicate, shards, banks)
  table = Table(device, budgets(config, spec, between), tokenizer, eos_ids)

  def start(params, prompts: Prompts, key, steps: int | None = None) -> Playing:
    return ahead.begin(thread, lambda *counted: Game(table, environments(), params, prompts, key, *counted))

  def stream(playing: Playing, counters: Counter, queue: None = None) -> Iterator:
    groups, work = ahead.finish(playing)
    of_sampler = {key: n for key, n in work.items() if key.startswith("rollout/")}
    counters.update(work | of_processes.sum_each(of_sampler))
    yield from groups

  return Engine(start, stream, sync, send, programs=(sync, *programs), cancel=ahead.cancel)


def _between(config: ConfigDict, tokenizer) -> int:
  """Returns the tokens that stand between two actions beside an observation, at the most."""
  roles = ROLES if envs.schemas(config.env.name, config.env.knobs.to_dict()) else ROLES[:1]
  return max(len(dialogue.between(tokenizer, "x", newest=-1, role=role)[0]) for role in roles)


def _banks(slots: int, mesh: Mesh) -> tuple[int, int]:
  """Returns the slots of a shard in a bank, and how many banks there are.

  A processor decodes half the slots in half the time, so that two banks cost nothing; an accelerator, which
  reads its parameters for few as for many, has one.
  """
  two = mesh.devices.flat[0].platform == "cpu" and slots >= 2 * LEAST
  return (slots // 2, 2) if two else (slots, 1)


def budgets(config: ConfigDict, spec: GenerationSpec, between: int) -> Budgets:
  """Returns the limits of a trajectory; `between` two actions are so many tokens beside an observation."""
  env = config.env
  limits = env.turns, env.action_tokens, env.observation_tokens, env.invalid_actions, env.memory
  return Budgets(spec.group_size, spec.max_tokens, *limits, context_tokens(config, spec, between))


def context_tokens(config: ConfigDict, spec: GenerationSpec, between: int = 0) -> int:
  """Returns the tokens behind the prompt that a slot's cache has room for: of a context, at the most."""
  env = config.env
  if not (env.name and env.memory):
    return spec.max_tokens
  of_turn = env.action_tokens + env.observation_tokens + between
  return min(spec.max_tokens, min(env.memory, env.turns - 1) * of_turn + env.action_tokens)


def slots_of(
  config: ConfigDict, spec: Spec, mesh: Mesh, generation: GenerationSpec, between: int = 0
) -> int:
  """Returns the slots on the sampler's whole mesh: `config.rollout.slots`, or as many as memory holds.

  No more than a training step has trajectories, in an evaluation too, and as many on each shard.  ValueError
  if not one fits.
  """
  c, shards = config.rollout, sharding.batch_shards(mesh)
  all_of_them = c.prompts * max(c.group_size, generation.group_size)
  own = -(-min(c.slots or all_of_them, all_of_them) // shards)
  if c.kv_memory_gb:
    columns = config.data.prompt_budget + context_tokens(config, generation, between)
    of_slot = kv_budget.kv_bytes(spec, columns, mesh.shape["tensor"])
    own = min(own, int(c.kv_memory_gb * 1e9 // of_slot))
    if own < 1:
      raise ValueError(
        f"config.rollout.kv_memory_gb = {c.kv_memory_gb} does not hold one trajectory, whose KV takes "
        f"{of_slot / 1e9:.3g} GB; raise it, or lower config.rollout.max_tokens."
      )
  return own * shards


def _programs(
  config: ConfigDict, name: str, model: Model, mesh: Mesh, where: dict, eos_ids: tuple, spec: GenerationSpec,
  slots: int, readers: int, between: int,
) -> tuple[Callable, ...]:  # fmt: skip
  """Returns (empty, read, begin, act) of sampler/turns.py, compiled at their first call."""
  everywhere, rows = sharding.replicated(mesh), sharding.batch_sharding(mesh)
  kv = sharding.kv_sharding(mesh, model.spec.num_key_value_heads, model.rules)
  empty, read, begin, act = turns.build(
    model,
    slots=slots,
    readers=readers,
    columns=config.data.prompt_budget + context_tokens(config, spec, between),
    prompt_columns=config.data.prompt_budget,
    action_tokens=config.env.action_tokens,
    sampling=spec.sampling,
    eos_ids=eos_ids,
    shards=sharding.batch_shards(mesh),
    kv_sharding=kv,
  )
  state = turns.Slots(kv, *[rows] * 8)
  of_read = dict(in_shardings=(where, state, rows), out_shardings=(state, rows), donate_argnums=1)
  of_begin = dict(in_shardings=(where, state, rows, everywhere, rows), out_shardings=state, donate_argnums=1)
  of_act = dict(in_shardings=(where, state, everywhere, rows), out_shardings=(state, everywhere, everywhere))
  decoding = dict(donate_argnums=1, compiler_options=compiler_options.options(mesh, decoding=True))
  return (
    jax.jit(empty, out_shardings=state),
    aot_jit(f"{name} read", read, **of_read, compiler_options=compiler_options.options(mesh)),
    aot_jit(f"{name} begin", begin, **of_begin, compiler_options=compiler_options.options(mesh)),
    aot_jit(f"{name} act", act, **of_act, **decoding),
  )
