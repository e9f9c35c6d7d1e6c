"""How a step gets its groups: which prompts are asked, when, and of which policy."""

from collections import Counter
from functools import partial

import jax

from grpojax.rollout import adaptive_groups, dynamic_sampling, generate
from grpojax.rollout.curriculum import Outcomes
from grpojax.rollout.dynamic_sampling import Groups
from grpojax.rollout.generate import Asked
from grpojax.runtime import data_shards
from grpojax.train import run_stats
from grpojax.train.run_stats import Memory
from grpojax.train.setup import Job
from grpojax.types import Prompts


def ask(job: Job, timer, params, known: Memory, step: int) -> Asked:
  """The first prompts of a step, on their way through the sampler."""
  return sample(job, timer, params, draw(job, known), step)


def sample(job: Job, timer, params, prompts: Prompts, step: int) -> Asked:
  """Those prompts; beyond the last step nothing is sampled, but a longer run will know what to ask."""
  if step > job.config.steps:
    return Asked(prompts, params, None)
  return generate.ask(job, timer, params, prompts, step, 0)


def draw(job: Job, known: Memory) -> Prompts:
  """The next of the training prompts."""
  return job.data.stream.next(run_stats.weights(job.config, known, job.data.train.weights))


def feeds(job: Job) -> bool:
  """Whether dynamic sampling draws prompts as slots free up, not round by round.

  Several processes would have to agree on every draw; and what was sampled ahead is all there at once.
  """
  one = jax.process_count() == 1 and not job.config.staleness
  return job.config.dynamic_sampling.enabled and job.programs.sample.streams and one


def collect(
  job: Job, timer, troubles: Counter, known: Memory, asked: Asked, step: int
) -> tuple[Groups, Outcomes, dict[str, float]]:
  """A step's groups, the outcomes of all that were drawn, and stats; its first prompts are `asked`."""
  config = job.config
  if feeds(job):
    draw_more = lambda number: (draw(job, known), generate.key_of(job, step, number))
    graded = partial(generate.graded, job, timer, troubles, asked)
    return dynamic_sampling.feed(
      config.dynamic_sampling, asked.prompts, draw_more, graded, job.data.stream.unread, troubles
    )
  first = [asked.prompts]

  def answer(prompts: Prompts, number: int):
    again = generate.ask(job, timer, asked.params, prompts, step, number) if number else asked
    return generate.grade(job, timer, troubles, again)

  collector = partial(dynamic_sampling.collect, config.dynamic_sampling)
  if config.adaptive_group.stop:
    collector = partial(adaptive_groups.collect, config.adaptive_group)
  more = lambda: first.pop() if first else draw(job, known)
  groups, *rest = collector(more, answer, data_shards.of(job.mesh))
  if groups.prompts.example is None:  # came from another process
    groups = groups._replace(prompts=generate.take(job.data, generate.rows_of(job.data, groups.prompts.id)))
  return groups, *rest
