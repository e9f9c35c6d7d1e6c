"""Evaluation during training: the first held-out questions, always with the same draws."""

import itertools
from collections import Counter
from collections.abc import Iterator

import jax
import numpy as np

from grpojax import rewards
from grpojax.data import pipeline
from grpojax.rollout import estimators
from grpojax.rollout.context import RolloutContext
from grpojax.rollout.sampler.engine import Engine, PromptQueue
from grpojax.rollout.score import Asked, as_answered, ask
from grpojax.rollout.turns import outcome
from grpojax.runtime import console
from grpojax.types import Prompts, Rollout

STREAMED = 8  # batches from which on they stream: it saves the tail of each, and takes one more program


def evaluate(context: RolloutContext, params: dict) -> dict[str, float]:
  """Collective: metrics of `eval.prompts` held-out questions, `eval.samples` completions each."""
  config, data, engine = context.config, context.data, context.eval_engine
  key, shards = jax.random.key(config.seed), context.shards
  count, parts = min(config.eval.prompts, len(data.held_out.records)), []
  P = config.rollout.prompts
  if config.env.name:  # trajectories begin as slots free up
    P = -(-count // shards.count) * shards.count
  questions = console.bar(count, 0, config.verbose, "held-out question", leave=False)
  with context.timer.phase("eval"), questions as progress:
    starts = range(0, count, P)
    rows = [np.minimum(np.arange(start, start + P), count - 1) for start in starts]  # the last repeats a row
    pad = data.tokenizer.pad_token_id
    batches = [pipeline.take(data.held_out, shards.local(chunk), pad) for chunk in rows]
    sampled = _sampled(engine, engine.sync_weights(params), batches, key)
    ended = ((start, ask(context, *of)) for start, *of in zip(starts, batches, sampled, strict=True))
    for start, asked in itertools.chain.from_iterable(as_answered(ended)):
      parts.append(score_questions(context, asked))
      progress.update(min(P, count - start))
    parts = [shards.gather(part) for part in parts]  # last, as every process waits for answers of its own
  # what the last batch repeats is not counted
  measured = {name: np.concatenate([p[name] for p in parts])[:count] for name in parts[0]}
  return estimators.summarise(measured, config.eval.samples)


def _sampled(engine: Engine, params: dict, batches: list[Prompts], key) -> Iterator[Rollout]:
  """Yields the completions of each batch of prompts, which do not depend on how they are sampled.

  Of many batches the prompts are read as places free up, and all are sampled before the first is yielded;
  several processes would have to agree on every place.
  """
  if not (engine.streams and len(batches) >= STREAMED and jax.process_count() == 1):
    for prompts in batches:
      yield engine.whole(params, prompts, key)[0]
    return
  queue = PromptQueue()
  for prompts in batches[1:]:
    queue.submit(prompts, key)
  ended = engine.stream(engine.start(params, batches[0], key), Counter(), queue)
  numbers, parts = zip(*ended, strict=True)
  order = np.argsort(np.concatenate(numbers))
  rollout = jax.tree.map(lambda *x: np.concatenate(x)[order], *parts)
  P = len(batches[0].id)
  for start in range(0, len(order), P):
    yield jax.tree.map(lambda x, start=start: x[start : start + P], rollout)


def score_questions(context: RolloutContext, asked: Asked) -> dict[str, np.ndarray]:
  """Returns what the estimators need of each question, [P]: right answers, majority, lengths, or turns.

  Waits for answers.
  """
  _, rollout, completions, begun = asked
  if rollout.turns is not None:
    scored = outcome.score(rollout, context.config.env.success)
    known = estimators.per_question(scored.accuracy, None, rollout.length, rollout.ended)
    return known | {"return": scored.reward.mean(1), "turns": rollout.turns.count.mean(1)}
  scored = rewards.score(context.scorer, completions, begun)
  answers = [[context.scorer.answer(one.text) for one in group] for group in completions]
  return estimators.per_question(scored.accuracy, answers, rollout.length, rollout.ended)
