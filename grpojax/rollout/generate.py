"""Prompts -> graded answers: of a training step, of the survey before it, of the evaluation."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from grpojax import rewards
from grpojax.data import pipeline, text
from grpojax.rewards import process
from grpojax.rollout import curriculum, dynamic_sampling, sampler
from grpojax.rollout.curriculum import Difficulty
from grpojax.rollout.dynamic_sampling import Groups
from grpojax.runtime import console, data_shards
from grpojax.tools import evaluate
from grpojax.train.setup import Data, Job
from grpojax.types import Prompts, Rollout, Scored


class Asked(NamedTuple):
  """Prompts on their way through the sampler."""

  prompts: Prompts
  params: dict  # of the policy that answers
  flight: Any  # what `Engine.stream` waits for; None: not started


def ask(job: Job, timer, params, prompts: Prompts, step: int, draw: int) -> Asked:
  """Starts to sample, and waits for nothing."""
  engine, own = job.programs.sample, params
  ahead = bool(job.config.staleness)  # the host will be elsewhere: one piece
  if engine.sync:
    with timer.phase("reshard"):
      own = engine.sync_weights(params)
      if not ahead:  # which sampling waits for, and nothing else
        jax.block_until_ready(own)
  with timer.phase("rollout"):
    return Asked(prompts, params, engine.start(own, prompts, key_of(job, step, draw), whole=ahead))


def key_of(job: Job, step: int, draw: int):
  """The same step and draw sample the same completions, also in a resumed run."""
  return jax.random.fold_in(jax.random.fold_in(jax.random.key(job.config.seed), step), draw)


def grade(job: Job, timer, troubles: Counter, asked: Asked) -> tuple[Rollout, Scored]:
  """The answers on the host, and what they are worth; `troubles` counts what gave no number, and the work."""
  numbers, parts = zip(*graded(job, timer, troubles, asked), strict=True)
  groups = dynamic_sampling.take(dynamic_sampling.concatenate(parts), np.argsort(np.concatenate(numbers)))
  return groups.rollout, data_shards.of(job.mesh).broadcast_from_owner(groups.scored)


def graded(
  job: Job, timer, troubles: Counter, asked: Asked, draw: Callable | None = None
) -> Iterator[tuple[np.ndarray, Groups]]:
  """Groups as they end, scored while the device samples the rest; and their numbers in order of drawing.

  `draw`, if the engine streams, gives the next P prompts and their key, or None.
  """
  batches, queue = [asked.prompts], sampler.PromptQueue() if draw else None
  with contextlib.closing(job.programs.sample.stream(asked.flight, troubles, queue)) as ended:
    for numbers, rollout in timer.over("rollout", ended):
      if numbers.size:
        with timer.phase("reward"):
          prompts = dynamic_sampling.numbered(batches, numbers)
          groups = Groups(prompts, rollout, score(job, troubles, prompts, rollout))
        yield numbers, groups
      if queue and queue.empty and (drawn := draw()):
        batches.append(drawn[0])
        queue.submit(*drawn)


def score(job: Job, troubles: Counter, prompts: Prompts, rollout: Rollout) -> Scored:
  """What the rewards say of the completions, and the scores of their steps."""
  texts = text.decode(job.data.tokenizer, rollout.tokens, rollout.length)
  completions = rewards.samples(prompts.example, texts, rollout.length, rollout.ended)
  result = rewards.score(job.scorer, completions)
  extra = {}
  if job.scorer_of_steps:
    extra, left_out = process.score(
      job.scorer_of_steps,
      job.data.tokenizer,
      completions,
      rollout.tokens,
      rollout.length,
      job.config.process.max_steps,
    )
    troubles.update(left_out)
  if result.first_error:
    console.say_once(result.first_error)
  troubles.update(result.counts)
  troubles["rewards/graded"] += rollout.length.size
  return Scored(result.reward, result.accuracy, result.valid, result.parts, extra)


def survey(job: Job, timer, troubles: Counter, params, known: Difficulty) -> Difficulty:
  """Samples every training prompt `difficulty.offline` times: what is expected of it at first."""
  config, data = job.config, job.data
  rows, P = len(data.train.records), config.rollout.prompts
  passes = config.difficulty.offline // config.rollout.group_size
  starts = range(0, rows, P)
  with console.bar(len(starts) * passes, 0, config.verbose, "survey") as progress:
    for number in range(len(starts) * passes):
      chunk = np.arange(starts[number // passes], starts[number // passes] + P)
      mine = data_shards.of(job.mesh).local(chunk)
      prompts = take(data, np.minimum(mine, rows - 1))
      _, scored = grade(job, timer, troubles, ask(job, timer, params, prompts, 0, number))
      real = mine < rows  # the last chunk repeats a row that is not counted
      scored = scored._replace(valid=scored.valid & real[:, None])
      outcomes = dynamic_sampling.outcomes_of([Groups(prompts, None, scored)])
      outcomes = data_shards.of(job.mesh).gather(outcomes)
      known = curriculum.survey(known, rows_of(data, outcomes.id), outcomes)
      if not progress.disable or number + 1 == progress.total:
        console.advance(progress, number + 1, {}, "survey")
  return curriculum.begin(config.difficulty, known)


def held_out(job: Job, timer, params) -> dict[str, float]:
  """Evaluation on the first `eval.prompts` held-out questions, always with the same draws."""
  config, data, scorer, programs = job.config, job.data, job.scorer, job.programs
  key, shards = jax.random.key(config.seed), data_shards.of(job.mesh)
  count, P = min(config.eval.prompts, len(data.held_out.records)), config.rollout.prompts
  parts = []
  with timer.phase("eval"):
    own = programs.sample_eval.sync_weights(params)
    for start in range(0, count, P):
      rows = np.minimum(np.arange(start, start + P), count - 1)  # the last chunk repeats a row ...
      prompts = pipeline.take(data.held_out, shards.local(rows), data.tokenizer.pad_token_id)
      rollout, _ = programs.sample_eval.whole(own, prompts, key)
      texts = text.decode(data.tokenizer, rollout.tokens, rollout.length)
      completions = rewards.samples(prompts.example, texts, rollout.length, rollout.ended)
      scored = rewards.score(scorer, completions)
      answers = [[scorer.answer(t) for t in group] for group in texts]
      part = evaluate.per_question(scored.accuracy, answers, rollout.length, rollout.ended)
      part = shards.gather(part)  # collective: every process knows all answers' worth
      real = np.arange(start, start + P) < count  # ... that is not counted
      parts.append({name: x[real] for name, x in part.items()})
  questions = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
  return evaluate.summarise(questions, config.eval.samples)


def take(data: Data, rows: np.ndarray) -> Prompts:
  """The training prompts in these rows."""
  return pipeline.take(data.train, rows, data.tokenizer.pad_token_id)


def rows_of(data: Data, ids: np.ndarray) -> np.ndarray:
  """Prompt ids -> their indices in the training split, whose ids ascend."""
  return np.searchsorted(data.train.ids, ids)


def showcase(tokenizer, groups: Groups) -> list[dict]:
  """The first group of the step, as text with its rewards."""
  rollout, scored = groups.rollout, groups.scored
  return [
    dict(
      prompt=groups.prompts.example[0]["question"],
      completions=text.decode(tokenizer, rollout.tokens[0], rollout.length[0]),
      rewards=scored.reward[0].tolist(),
      lengths=rollout.length[0].tolist(),
      ended=rollout.ended[0].tolist(),
    )
  ]
