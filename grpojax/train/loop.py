"""One step: draw, generate, score, add log-probs, update.  The map of the program.

    data -> rollout -> rewards -> objective -> learner -> checkpoint, evaluate, report
"""

from collections.abc import Callable
from contextlib import closing

from grpojax.rollout.prefetch import Prefetcher
from grpojax.train import state as run_state
from grpojax.train import step as stages
from grpojax.train.banner import announce, finish
from grpojax.train.session import Session
from grpojax.train.setup import Job


def run(job: Job, on_step: Callable[[int, dict[str, float]], None] | None = None) -> bool:
  """Trains until `config.steps`, from the newest checkpoint in the workdir or from the initial policy.

  `on_step(step, metrics)` gets each step's record, when it is written.
  Returns True when config.steps was reached, False when the run was asked to stop (and has saved).
  """
  config, mixture = job.config, job.data.train.weights
  announce(job)
  with Session(job, on_step) as session:
    state, in_flight = session.restored or run_state.initial(job, session.writer)
    rollouts = Prefetcher(job.rollout, config.staleness, state.frozen, in_flight)
    if state.step == 0 and config.eval.on_start:
      session.evaluate(0, state.policy)
    with session.watch(), closing(rollouts):
      while state.step < config.steps and not session.stop_requested():
        step = state.step + 1
        session.begin(step)
        sampled = rollouts.next(step, state.learner.params, state.draw_weights(config, mixture))
        metrics = stages.describe_rollouts(job, sampled)
        batches = stages.make_batches(job, state, sampled, metrics["reward"])
        batches = stages.add_logprobs(job, state, sampled, batches)
        state, updates = stages.track_outcomes(job, state, sampled, batches), []
        for batch in batches:
          state, of_update = stages.update(job, state, batch)
          updates.append(of_update)
        state = stages.finish_step(job, state, metrics["reward"])
        session.push(step, updates, metrics | stages.describe_state(job, state), sampled.groups)
        if due(config.eval.every, step, config.steps):
          session.evaluate(step, state.policy)
        if due(config.checkpoint.every, step, config.steps):
          session.save(state, rollouts)
      session.save(state, rollouts)
  finish(job, session, state.step)
  return state.step >= config.steps


def due(every: int, step: int, last: int) -> bool:
  """Returns True every so many steps, and after the last."""
  return step % every == 0 or step == last
