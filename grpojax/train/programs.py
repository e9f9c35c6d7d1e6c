"""The programs of a run: sampler, log-probs, updates.  None of them is compiled here."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models
from grpojax.learner import optimizer, rows, update
from grpojax.learner import state as learner_state
from grpojax.learner.grad_norm import make_grad_norm
from grpojax.objective import stats
from grpojax.rollout import sampler, turns
from grpojax.rollout.envs.pool import Pool
from grpojax.rollout.sampler import Engine, interruption
from grpojax.runtime import compiler_options, sharding
from grpojax.runtime.compile import aot_jit
from grpojax.train import policy as policy_lib
from grpojax.train import updates


class Programs(NamedTuple):
  """Compiled at their first call; every shape is static."""

  sample: Engine
  sample_eval: Engine  # with config.eval's sampling, budget and number of samples
  logp: Callable  # update.make_old_logp's, of a whole optimiser batch
  grad_norm: Callable  # grad_norm.make_grad_norm's, of a whole optimiser batch
  update: Callable  # (state, objective, batch, frozen) -> (state, metrics)
  fresh: Callable  # params -> State with a new optimiser
  sync_reference: Callable  # (reference, params, rate) -> the reference, moved towards the policy
  close: Callable[[], None] = lambda: None  # ends environments' processes; the next use starts new ones


def frozen_layout(model: models.Model, mesh: Mesh) -> dict:
  """Returns the shardings of the parameters that no update changes; {} if all are trained."""
  return sharding.param_shardings(mesh, model.axes, model.shapes, model.rules) if model.lora else {}


def build(config: ConfigDict, model: models.Model, tokenizer, mesh: Mesh) -> Programs:
  """Builds the run's programs, none of them compiled; the objective is an argument of `update`."""
  schedule = optimizer.warmup_constant(config.optimizer)
  tx = optimizer.make_optimizer(config.optimizer, schedule, model.trained.axes)
  where, frozen = optimizer.state_shardings(model, tx, mesh), frozen_layout(model, mesh)
  by_prompt, layout = sharding.batch_sharding(mesh), rows.build(config, model, mesh)
  train, evaluation = sampler.build.rollout_spec(config), sampler.build.eval_spec(config)
  ends, env = policy_lib.eos_ids(config, tokenizer), config.env
  train = train._replace(interruption=interruption.build(config, tokenizer, ends))
  given = dict(model=model, mesh=mesh, eos_ids=ends)
  make = partial(sampler.build.build, config, **given)
  close = lambda: None
  if env.name:
    pool = functools.cache(lambda: Pool(env.name, env.knobs.to_dict(), timeout=env.timeout))
    close = lambda: pool().close() if pool.cache_info().currsize else None
    shared = dict(environments=pool, thread=ThreadPoolExecutor(1))
    make = partial(turns.build.build, config, **given, tokenizer=tokenizer, **shared)
  sample = make("rollout", spec=train)
  return Programs(
    sample=sample,
    sample_eval=sample if evaluation == train else make("evaluation", spec=evaluation),
    logp=build_logp(model, mesh, layout, bool(config.routing_replay)),
    grad_norm=aot_jit(
      "gradient norms",
      make_grad_norm(
        model, config.rollout.max_tokens, temperature=config.rollout.temperature, chunk=config.logprob_chunk
      ),
      in_shardings=(where.params, frozen, *[by_prompt] * 5),
      out_shardings=by_prompt,
      compiler_options=compiler_options.options(mesh),
    ),
    update=updates.build(config, model, mesh, layout, frozen),
    fresh=jax.jit(lambda params: learner_state.create(params, tx), out_shardings=where),
    sync_reference=jax.jit(
      lambda reference, params, rate: stats.ema(reference, params, rate=rate),
      out_shardings=where.params,
      donate_argnums=0,
    ),
    close=close,
  )


def build_logp(
  model: models.Model, mesh: Mesh, layout: rows.Rows, record_routing: bool = False
) -> Callable:
  """Returns the program of update.make_old_logp, by the policy's parameters, frozen ones among them."""
  frozen, by_prompt = frozen_layout(model, mesh), sharding.batch_sharding(mesh)
  trained = model.trained
  where = sharding.param_shardings(mesh, trained.axes, trained.shapes, model.rules)
  return aot_jit(
    "log-probs",
    update.make_old_logp(layout, record_routing),
    in_shardings=(frozen | where, *[by_prompt] * 7),
    out_shardings=by_prompt,
    compiler_options=compiler_options.options(mesh),
  )


def state_layout(config: ConfigDict, model: models.Model, mesh: Mesh):
  """Returns (shapes, shardings) of the learner's state, for restoring a checkpoint."""
  schedule = optimizer.warmup_constant(config.optimizer)
  tx = optimizer.make_optimizer(config.optimizer, schedule, model.trained.axes)
  shapes = jax.eval_shape(lambda params: learner_state.create(params, tx), model.trained.shapes)
  return shapes, optimizer.state_shardings(model, tx, mesh)
