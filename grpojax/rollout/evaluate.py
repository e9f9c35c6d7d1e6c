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
from grpojax.rollout.sampler.engine import PromptQueue
from grpojax.rollout.score import Asked, as_answered, ask
from grpojax.rollout.turns import outcome
from grpojax.runtime import console
from grpojax.types import Prompts, Rollout

STREAMED = 8  # batches from which on they stream: it saves the tail of each, and takes one more program


def evaluate(context: RolloutContext, params: dict) -> dict[str, float]:
  """Collective: metrics of `eval.prompts` held-out questions, `eval.samples` completions each."""
  config, data, shards = context.config, context.data, context.shards
  count, parts = min(config.eval.prompts, len(data.held_out.records)), []
  P = config.rollout.prompts
  if config.env.name:  # trajectories begin as slots free up
    P = -(-count // shards.count) * shards.count
  questions = console.bar(count, 0, config.verbose, "held-out question", leave=False)
  with context.timer.phase("eval"), questions as progress:
    ended = ((numbers, ask(context, *of)) for numbers, *of in _sampled(context, params, count, P))
    for numbers, asked in itertools.chain.from_iterable(as_answered(ended)):
      parts.append((numbers, score_questions(context, asked)))
      progress.update(int((numbers < count).sum()))
    # last, as every process waits for answers of its own
    numbers, measured = shards.gather_unequal(jax.tree.map(lambda *x: np.concatenate(x), *parts))
  order = np.argsort(numbers)[:count]  # without the questions that only fill the last batch
  return estimators.summarise({name: values[order] for name, values in measured.items()}, config.eval.samples)


def _sampled(
  context: RolloutContext, params: dict, count: int, P: int
) -> Iterator[tuple[np.ndarray, Prompts, Rollout]]:
  """Collective: (numbers, prompts, completions) of each process's part of so many questions, P at a time.

  The completions do not depend on how they are sampled.  Of many batches the prompts are read as places free
  up.  Numbers from `count` on fill the last batch with a question that was asked before.
  """
  data, engine, shards = context.data, context.eval_engine, context.shards
  key, own = jax.random.key(context.config.seed), engine.sync_weights(params)
  ask_for = lambda numbers: pipeline.take(
    data.held_out, np.minimum(numbers, count - 1), data.tokenizer.pad_token_id
  )
  batches = [np.arange(start, start + P) for start in range(0, count, P)]
  if not (engine.streams and len(batches) >= STREAMED):
    for numbers in map(shards.local, batches):
      prompts = ask_for(numbers)
      yield numbers, prompts, engine.whole(own, prompts, key)[0]
    return
  queue = PromptQueue()
  for numbers in batches[1:]:
    queue.submit(ask_for(numbers), key)
  begun = engine.start(own, ask_for(shards.local(batches[0])), key)
  for numbers, rollout in engine.stream(begun, Counter(), queue):
    if numbers.size:
      yield numbers, ask_for(numbers), rollout


def score_questions(context: RolloutContext, asked: Asked) -> dict[str, np.ndarray]:
  """Returns what the estimators need of each question, [P]: right answers, majority, lengths, or turns.

  A completion whose verdict is missing, or whose environment failed, counts as wrong, and in `no_verdict`.

  Waits for answers.
  """
  _, rollout, completions, begun = asked
  if rollout.turns is not None:
    scored = outcome.score(rollout, context.config.env.success)
    known = estimators.per_question(scored.accuracy, None, rollout.length, rollout.ended)
    known |= {"return": scored.reward.mean(1), "turns": rollout.turns.count.mean(1)}
    return known | {"no_verdict": 1 - scored.valid.mean(1)}
  scored = rewards.score(context.scorer, completions, begun)
  if scored.first_error:
    console.say_once(scored.first_error)
  answers = [[context.scorer.answer(one.text) for one in group] for group in completions]
  known = estimators.per_question(scored.accuracy, answers, rollout.length, rollout.ended)
  return known | {"no_verdict": 1 - scored.known["accuracy"].mean(1)}
