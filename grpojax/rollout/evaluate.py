"""Evaluation during training: the first held-out questions, always with the same draws."""

import jax
import numpy as np

from grpojax import rewards
from grpojax.data import pipeline
from grpojax.rollout import estimators
from grpojax.rollout.context import RolloutContext
from grpojax.rollout.score import samples_of
from grpojax.rollout.turns import outcome
from grpojax.runtime import console
from grpojax.types import Rollout


def evaluate(context: RolloutContext, params: dict) -> dict[str, float]:
  """Collective: metrics of `eval.prompts` held-out questions, `eval.samples` completions each."""
  config, data, engine = context.config, context.data, context.eval_engine
  key, shards = jax.random.key(config.seed), context.shards
  count, P = min(config.eval.prompts, len(data.held_out.records)), config.rollout.prompts
  parts = []
  questions = console.bar(count, 0, config.verbose, "held-out question", leave=False)
  with context.timer.phase("eval"), questions as progress:
    own = engine.sync_weights(params)
    for start in range(0, count, P):
      rows = np.minimum(np.arange(start, start + P), count - 1)  # the last chunk repeats a row ...
      prompts = pipeline.take(data.held_out, shards.local(rows), data.tokenizer.pad_token_id)
      rollout, _ = engine.whole(own, prompts, key)
      part = shards.gather(score_questions(context, prompts, rollout))
      real = np.arange(start, start + P) < count  # ... that is not counted
      parts.append({name: x[real] for name, x in part.items()})
      progress.update(int(real.sum()))
  measured = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
  return estimators.summarise(measured, config.eval.samples)


def score_questions(context: RolloutContext, prompts, rollout: Rollout) -> dict[str, np.ndarray]:
  """Returns what the estimators need of each question, [P]: right answers, majority, lengths, or turns."""
  if rollout.turns is not None:
    scored = outcome.score(rollout, context.config.env.success)
    known = estimators.per_question(scored.accuracy, None, rollout.length, rollout.ended)
    return known | {"return": scored.reward.mean(1), "turns": rollout.turns.count.mean(1)}
  texts, completions = samples_of(context.data.tokenizer, prompts, rollout)
  scored = rewards.score(context.scorer, completions)
  answers = [[context.scorer.answer(t) for t in group] for group in texts]
  return estimators.per_question(scored.accuracy, answers, rollout.length, rollout.ended)
