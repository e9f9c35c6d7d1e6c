"""The program of an update, alone or beside teachers."""

from collections.abc import Callable, Sequence

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.learner import divergence, optimizer, rows, update
from grpojax.learner.ess import EssConfig
from grpojax.learner.state import StatsConfig
from grpojax.models import Model
from grpojax.runtime import compiler_options, sharding
from grpojax.runtime.compile import aot_jit
from grpojax.train.teacher import Teacher


def build(config: ConfigDict, model: Model, mesh: Mesh, layout: rows.Rows, frozen: dict) -> Callable:
  """Builds the update; `frozen` are the shardings of what else the policy is made of."""
  schedule = optimizer.warmup_constant(config.optimizer)
  tx = optimizer.make_optimizer(config.optimizer, schedule, model.trained.axes)
  where, everywhere = optimizer.state_shardings(model, tx, mesh), sharding.replicated(mesh)
  ess = EssConfig(config.optimizer.ess, config.optimizer.ess_base)
  return aot_jit(
    "update",
    update.make_update(layout, tx, schedule, config.load_balance, _stats_config(config), ess),
    in_shardings=(where, everywhere, sharding.batch_sharding(mesh), frozen),
    out_shardings=(where, everywhere),
    donate_argnums=0,
    compiler_options=compiler_options.options(mesh),
  )


def beside_teachers(
  config: ConfigDict, model: Model, mesh: Mesh, frozen: dict, teachers: Sequence[Teacher]
) -> Callable:
  """Builds the update whose log-prob pass reads the teachers, too; their parameters join the frozen ones."""
  for one in teachers:
    divergence.check_vocabulary(one.path, model, one.model)
  of = divergence.of(config.teacher.divergence, config.teacher.beta)
  how = dict(temperature=config.rollout.temperature, chunk=config.logprob_chunk)
  theirs = [one.model for one in teachers]
  logp = divergence.make_logp(model, theirs, of, config.rollout.max_tokens, **how)
  where = tuple(sharding.param_shardings(mesh, one.axes, one.shapes, one.rules) for one in theirs)
  number = ("teacher",) if config.teacher.paths else ()
  layout = rows.single(logp, config.microbatches, number)
  return build(config, model, mesh, layout, frozen | {divergence.TEACHER: where})


def _stats_config(config: ConfigDict) -> StatsConfig:
  """Returns the numbers of the updates' running statistics."""
  r, k, g = config.rollout, config.kl_control, config.guard
  n = r.prompts * r.group_size
  return StatsConfig(config.updates_per_rollout, n, k.target, k.horizon, g.spike, g.rate)
