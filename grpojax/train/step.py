"""The parts of a training step between rollouts and record: batches, log-probs, updates, curriculum."""

import jax

from grpojax.learner import batching, divergence, logprobs
from grpojax.rollout import curriculum, metrics
from grpojax.rollout.context import rows_of
from grpojax.rollout.groups import take
from grpojax.rollout.prefetch import Collected
from grpojax.runtime import sharding
from grpojax.train import baseline, moment, teacher
from grpojax.train.setup import Job
from grpojax.train.state import RunState
from grpojax.types import Batch


def describe_rollouts(job: Job, collected: Collected) -> dict[str, float]:
  """Collective: rewards, lengths and host counts of a step; the counters begin anew."""
  context = job.rollout
  found = collected.metrics | metrics.describe(collected.groups, context.shards)
  if job.config.interruption.think_tokens:
    found |= metrics.describe_interruptions(collected.groups, context.shards)
  found |= metrics.sum_counters(context.counters, context.shards)
  context.counters.clear()
  return found


def make_batches(job: Job, state: RunState, collected: Collected, reward: float) -> list[Batch]:
  """Returns the step's optimiser batches on the mesh; `reward` is the step's mean."""
  of_group, _ = _moment(job, state, collected)
  groups = moment.beside(collected.groups, of_group)
  groups = batching.beside(job.config, groups, state.step)
  order = batching.balanced_order(job.config, job.mesh, job.pack, groups)
  if order is not None:
    groups = take(groups, order)
  rows = rows_of(job.data, groups.prompts.id)
  expected = baseline.expected_reward(job, state, rows, reward)
  return batching.make_batches(job.config, job.mesh, job.pack, groups, expected)


def add_logprobs(job: Job, state: RunState, collected: Collected, batches: list[Batch]) -> list[Batch]:
  """Returns the batches with log π_old, of the policy that sampled, log π_ref and log π_T.

  Of all batches, before any update moves the policy.
  """
  timer, policy = job.rollout.timer, state.frozen | collected.params
  with timer.phase("logprob"):
    batches = logprobs.add_logprobs(
      job.policies["policy"].logp, policy, state.reference, batches, job.needs_old_logprobs
    )
    batches = teacher.add_logprobs(job.teachers, batches)
    if "grad_norm" in batching.extra_fields(job.config):
      batches = [_with_grad_norm(job, state, collected, batch) for batch in batches]
    if not job.config.staleness:
      jax.block_until_ready(batches)
  return batches


def _with_grad_norm(job: Job, state: RunState, collected: Collected, batch: Batch) -> Batch:
  """Returns the batch with |∇ log π| of each completion, of the policy that sampled."""
  norm = job.programs.grad_norm(
    collected.params, state.frozen, batch.tokens, batch.prompt_length, batch.mask, batch.context,
    batch.kept,
  )
  return batch._replace(extra=batch.extra | {"grad_norm": norm})


def _moment(job: Job, state: RunState, collected: Collected) -> tuple:
  """Collective: the rewards' second moment of each of this process's groups, and that after the step."""
  return moment.of_step(job.config, state.reward_moment, collected.groups.scored, job.rollout.shards)


def track_outcomes(job: Job, state: RunState, collected: Collected, batches: list[Batch]) -> RunState:
  """Collective: the state whose curriculum and moment have taken note of the step's outcomes.

  Before the updates: under "beta" a prompt's last completions are scored by the policy that sampled.
  """
  state = state._replace(reward_moment=_moment(job, state, collected)[1])
  known, config = state.curriculum, job.config
  if known is None:
    return state
  data, gather, groups, discount = job.data, job.rollout.shards.gather, collected.groups, None
  if known.last:
    rows = rows_of(data, groups.prompts.id)
    last = jax.tree.map(lambda x: x[rows], known.last)
    policy = state.frozen | collected.params
    now = batching.score_responses(
      config, job.mesh, job.pack, job.policies["policy"].logp, policy, groups.prompts, last.tokens,
      last.length,
    )  # fmt: skip
    discount = gather(curriculum.keep(known, rows, now))
    old_logp = batching.restore_prompt_order([batch.old_logp for batch in batches])
    seen = curriculum.Last(groups.rollout.tokens, groups.rollout.length, old_logp)
    known = curriculum.saw(known, *gather((rows, seen)))
  outcomes = collected.outcomes
  drawn = rows_of(data, outcomes.id)
  return state._replace(curriculum=curriculum.update(config.difficulty, known, drawn, outcomes, discount))


def update(job: Job, state: RunState, batch: Batch) -> tuple[RunState, dict]:
  """Starts one optimiser step and waits for nothing.  Returns (state, metrics on the device)."""
  with job.rollout.timer.phase("update"):
    objective = sharding.everywhere(job.mesh, job.objective)  # its numbers are arguments
    frozen = state.frozen
    if job.config.teacher.divergence:
      frozen = frozen | {divergence.TEACHER: tuple(teacher.params() for teacher in job.teachers)}
    learner, found = job.programs.update(state.learner, objective, batch, frozen)
  return state._replace(learner=learner), found


def finish_step(job: Job, state: RunState, reward: float) -> RunState:
  """Returns the state after one more step: the reward average, and the reference where it is due."""
  config, step = job.config, state.step + 1
  reward_average = baseline.average(state.reward_average, reward, config.baseline.rate)
  state = state._replace(step=step, reward_average=reward_average)
  sync = config.reference_sync
  if not sync.every or step % sync.every:
    return state
  reference = job.programs.sync_reference(state.policies["reference"], state.learner.params, sync.rate)
  return state._replace(policies=state.policies | {"reference": reference})


def describe_state(job: Job, state: RunState) -> dict[str, float]:
  """Returns metrics of what the run keeps on the host."""
  found = {}
  if job.config.baseline.kind == "mean":
    found["baseline"] = float(state.reward_average)
  if state.reward_moment is not None:
    found["reward_moment"] = float(state.reward_moment)
  if state.curriculum:
    found |= curriculum.describe(job.config.difficulty, state.curriculum)
  return found
