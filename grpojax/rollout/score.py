"""Completions -> what the rewards say of them.  Failures and abstentions are counted here."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from grpojax import rewards
from grpojax.data import text
from grpojax.rewards import process
from grpojax.rollout.context import RolloutContext
from grpojax.rollout.turns import outcome
from grpojax.runtime import console
from grpojax.types import Prompts, Rollout, Scored


class Asked(NamedTuple):
  """Completions whose `async def` rewards have been asked."""

  prompts: Prompts
  rollout: Rollout
  completions: list  # [P][G] samples; none of trajectories, which have the rewards of their environments
  begun: dict[str, Future]  # as `rewards.begin` returns them

  @property
  def answered(self) -> bool:
    """Returns True if `score` has nothing to wait for."""
    return all(answers.done() for answers in self.begun.values())

  def cancel(self) -> None:
    """Gives up the answers that are still waited for."""
    for answers in self.begun.values():
      answers.cancel()


def ask(context: RolloutContext, prompts: Prompts, rollout: Rollout) -> Asked:
  """Asks the rewards that wait for others, and waits for no answer."""
  if rollout.turns is not None:
    return Asked(prompts, rollout, [], {})
  texts = text.decode(context.data.tokenizer, rollout.tokens, rollout.length)
  completions = rewards.samples(prompts.example, texts, rollout.length, rollout.ended)
  return Asked(prompts, rollout, completions, rewards.begin(context.scorer, completions))


def as_answered(
  ended: Iterator[tuple[Any, Asked | None]], together: bool = False
) -> Iterator[list[tuple[Any, Asked]]]:
  """Yields, after each pair (a label, what was asked) of `ended`, those that are answered by now, in order.

  A pair with None asked nothing, and gives the caller a turn.  `ended` is never held up.  At its end come,
  one by one or `together` in one list, those whose answers are still missing.  If the caller stops before
  that, these are given up.
  """
  waiting = deque()
  try:
    for label, asked in ended:
      if asked:
        waiting.append((label, asked))
      answered = []
      while waiting and waiting[0][1].answered:
        answered.append(waiting.popleft())
      yield answered
    if together:
      yield [waiting.popleft() for _ in range(len(waiting))]
    while waiting:
      yield [waiting.popleft()]
  finally:
    for _, asked in waiting:
      asked.cancel()


def score(context: RolloutContext, asked: Asked) -> Scored:
  """Returns rewards [P, G] and, for process supervision, the scores of steps [P, G, K].

  A reward that raises, abstains or is not finite makes its completion not `valid` and is counted in
  `context.counters`; the first error is printed.  A trajectory has the rewards of its environment.
  """
  _, rollout, completions, begun = asked
  if rollout.turns is not None:
    context.counters.update(outcome.count(rollout))
    return outcome.score(rollout, context.config.env.success)
  tokenizer, c = context.data.tokenizer, context.config.process
  result = rewards.score(context.scorer, completions, begun)
  reward, valid, extra = result.reward, result.valid, {}
  if context.config.objective.advantage.get("fn") == "gdpo":
    reward, valid, extra = _apart(context.scorer, result)
  if context.step_scorer:
    steps, counts = process.score(
      context.step_scorer, tokenizer, completions, rollout.tokens, rollout.length, c.max_steps
    )
    extra |= steps
    context.counters.update(counts)
  if result.first_error:
    console.say_once(result.first_error)
  context.counters.update(result.counts)
  context.counters["rewards/graded"] += rollout.length.size
  answers = [context.scorer.answer(one.text) for group in completions for one in group]
  context.counters["rewards/answered"] += sum(map(bool, answers))
  return Scored(reward, result.accuracy, valid, result.parts, extra)


def _apart(scorer: rewards.Rewards, result: rewards.Graded) -> tuple[np.ndarray, np.ndarray, dict]:
  """Returns reward, valid [P, G], and each reward with its weight, [P, G, K], for the advantage `gdpo`.

  A completion whose verdict is missing is not valid; without another reward it has what the others give.
  """
  part, known = (np.stack([of[name] for name in result.parts], -1) for of in (result.parts, result.known))
  valid = (result.known["accuracy"] | np.isnan(result.accuracy)) & known.any(-1)
  part = np.where(known, part, np.float32(0))
  weight = np.array([reward.weight for reward in scorer.all], np.float32)
  reward = np.where(valid, (weight * part).sum(-1), np.float32(0))
  extra = dict(part=part, part_valid=known, part_weight=np.broadcast_to(weight, part.shape))
  return reward, valid, extra


def sample_table(tokenizer, groups) -> list[dict]:
  """Returns the first group of the step as text with its rewards, for completions.jsonl; a list of one."""
  prompts, rollout, scored = groups
  example = prompts.example[0]
  known = {"answer": str(example["answer"])} if "answer" in example else {}
  if rollout.turns is not None:
    known["turns"] = outcome.told(tokenizer, rollout)
  return [
    dict(
      known,
      prompt=example["question"],
      sent=tokenizer.decode(prompts.tokens[0, prompts.tokens.shape[1] - prompts.length[0] :]),
      parts={name: part[0].tolist() for name, part in scored.parts.items() if not np.isnan(part[0]).any()},
      completions=text.decode(tokenizer, rollout.tokens[0], rollout.length[0]),
      rewards=np.asarray(scored.reward[0]).tolist(),
      lengths=rollout.length[0].tolist(),
      ended=rollout.ended[0].tolist(),
    )
  ]
