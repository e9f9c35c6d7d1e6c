"""The success rate of every training prompt before training: `config.difficulty.offline` samples of each."""

import re

import numpy as np

from grpojax.rollout import curriculum, generate, metrics
from grpojax.rollout.context import RolloutContext, rows_of, take_prompts
from grpojax.rollout.curriculum import Difficulty
from grpojax.rollout.groups import invalidate, outcomes_of
from grpojax.runtime import console, watchdog


def estimate_difficulty(context: RolloutContext, frozen: dict, params: dict, known: Difficulty) -> Difficulty:
  """Collective: `known` with what every training prompt achieved under this policy."""
  config, data, shards = context.config, context.data, context.shards
  rows, P = len(data.train.records), config.rollout.prompts
  passes = config.difficulty.offline // config.rollout.group_size
  starts = range(0, rows, P)
  with console.bar(len(starts) * passes, 0, config.verbose, "survey") as progress:
    for number in range(len(starts) * passes):
      watchdog.progress(f"surveying prompts, batch {number + 1}")
      chunk = np.arange(starts[number // passes], starts[number // passes] + P)
      mine = shards.local(chunk)
      prompts = take_prompts(data, np.minimum(mine, rows - 1))
      own = generate.synced(context, frozen, params)
      pending = generate.start(context, own, params, prompts, 0, number, 0)
      groups = generate.generate_and_score(context, pending)
      groups = invalidate(groups, mine < rows)  # the last chunk repeats a row that is not counted
      outcomes = shards.gather(outcomes_of([groups]))
      known = curriculum.survey(known, rows_of(data, outcomes.id), outcomes)
      if not progress.disable or number + 1 == progress.total:
        console.advance(progress, number + 1, {}, "survey")
  counts = metrics.sum_counters(context.counters, shards)
  missing = sum(n for name, n in counts.items() if re.fullmatch("rewards/.+/(failed|abstained)", name))
  console.say(f"survey: {counts['rewards/graded']:,} completions, {missing:,} verdicts are missing")
  context.counters.clear()  # they are no step's
  context.timer.merge("start")
  return curriculum.begin(config.difficulty, known)
