"""Budget forcing: accuracy against tokens, where thinking is cut at a budget, or goes on behind its end.

Cut at b tokens: who still thinks there reads config.interruption.text and answers, with what is left of
config.eval.max_tokens, as under forced interruption in training.  Wait: in place of the end of its thinking
(`config.interruption.unless`, else the token that ends the answer) a text such as "Wait" is read, and the
policy has config.eval.max_tokens more; n times.  s1, https://arxiv.org/abs/2501.19393.

A level begins with the tokens of the free answers and changes none that it does not concern, so that levels
are paired by answer.  Injected tokens count as tokens, and are counted apart.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from grpojax.data import text
from grpojax.rollout import estimators
from grpojax.runtime import console, processes
from grpojax.tools.evaluate import benchmark, policy, suites
from grpojax.tools.evaluate.suites import Suite
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib

FREE = "as it ends"
FOLDER = "forced"  # beside items.jsonl, with a folder of each level's own items
RESAMPLES = 10_000
COLUMNS = "accuracy", "tokens", "injected"  # share that is right; tokens of an answer, and of these
Place = tuple[str, int, int]  # suite, question, sample
Answers = dict[Place, list[int]]  # tokens


class Forcing(NamedTuple):
  """Budgets and texts that are forced on the answers, in tokens."""

  budgets: tuple[int, ...]  # of thinking
  waits: int  # ends that are replaced
  end: tuple[int, ...]  # injected behind a budget
  closing: tuple[int, ...]  # in thinking that has ended; (): nothing ends it but the answer's end
  wait: tuple[int, ...]  # injected in place of an end


class Level(NamedTuple):
  """Answers under a budget, or with so many ends replaced."""

  name: str
  items: dict[str, list[dict]]  # suite -> an item a question; {} but on process 0
  injected: dict[str, np.ndarray]  # suite -> [P, n] int, injected tokens of each answer


def prepare(job: benchmark.Job, budgets: list[int], waits: int, wait: str) -> Forcing:
  """Returns what --budgets, --waits and --wait ask for.  Raises ValueError in one sentence."""
  c, ends = job.config.interruption, policy_lib.eos_ids(job.config, job.tokenizer)
  end, instead = (text.encode(job.tokenizer, words) for words in (c.text, wait))
  for key, words, tokens in ("config.interruption.text", c.text, end), ("--wait", wait, instead):
    if not tokens or set(tokens) & set(ends):
      raise ValueError(
        f"{key} = {words!r} is empty or has a token that ends an answer, behind which nothing could follow;"
        " set a text without it."
      )
  most = job.config.eval.max_tokens - len(end) - 1
  for budget in budgets:
    if not 1 <= budget <= most:
      raise ValueError(
        f"--budgets has {budget}, and with config.eval.max_tokens = {job.config.eval.max_tokens} and the"
        f" {len(end)} tokens of config.interruption.text a budget is 1 to {most}; raise max_tokens."
      )
  made = Forcing(tuple(sorted(set(budgets))), waits, end, text.encode(job.tokenizer, c.unless), instead)
  if waits:
    policy_lib.check_length(_after_waits(job.config, made, waits))
  return made


def run(
  job: benchmark.Job, forcing: Forcing, out: Path, params, answered: dict[str, list[dict]]
) -> list[Level]:
  """Collective: returns the free answers `answered`, and those under each budget and after each wait."""
  n = job.config.eval.samples
  free = Level(FREE, answered, {suite.name: np.zeros((len(suite.ids), n), int) for suite in job.suites})
  levels, longest = [free], job.config.eval.max_tokens
  of = out / FOLDER, params, policy.fingerprint(params)
  answers = _answers(job, free, longest)
  for budget in forcing.budgets:
    config = _after_cut(job.config, forcing, budget)
    begun = cut(forcing, budget, {place: tokens for place, (tokens, _) in answers.items()})
    levels.append(_go_on(job, config, free, f"cut at {budget}", begun, len(forcing.end), *of))
  before = free
  for number in range(1, forcing.waits + 1):
    config = _after_waits(job.config, forcing, number)
    begun = keep_on(forcing, {place: tokens for place, (tokens, ended) in answers.items() if ended})
    before = _go_on(job, config, before, f"{number} x wait", begun, len(forcing.wait), *of)
    levels.append(before)
    longest += len(forcing.wait) + job.config.eval.max_tokens
    answers = _answers(job, before, longest)
  return levels


def cut(forcing: Forcing, budget: int, answers: Answers) -> Answers:
  """Returns the beginnings of those that still think after so many tokens, with the text behind them."""
  return {
    place: [*tokens[:budget], *forcing.end]
    for place, tokens in answers.items()
    if len(tokens) > budget and last(forcing.closing, tokens[:budget]) is None
  }


def keep_on(forcing: Forcing, answers: Answers) -> Answers:
  """Returns ended answers up to the end of their thinking, with the text that replaces it."""
  begun = {}
  for place, tokens in answers.items():
    closed = last(forcing.closing, tokens)
    begun[place] = [*tokens[: len(tokens) - 1 if closed is None else closed], *forcing.wait]
  return begun


def last(wanted: tuple[int, ...], tokens: list[int]) -> int | None:
  """Returns where `wanted` begins for the last time; None if it is empty or not there."""
  starts = range(len(tokens) - len(wanted), -1, -1) if wanted else ()
  return next((i for i in starts if tuple(tokens[i : i + len(wanted)]) == wanted), None)


def of_suite(after: list[Level], before: list[Level] | None, suite: str) -> list[dict]:
  """Returns what curves.json has of the levels of a suite, means over questions with their 95 % intervals.

  `before` are the levels of another policy, whose change is paired by question.
  """
  policies = {"after": after} | ({"before": before} if before else {})
  values = {which: np.stack([_of_questions(level, suite) for level in of]) for which, of in policies.items()}
  if before:
    values["change"] = values["after"] - values["before"]
  shape = len(values), *values["after"].shape  # policies, levels, columns, questions
  flat = np.stack(list(values.values())).reshape(-1, shape[-1]).T
  ends = np.quantile(estimators.resampled(flat, RESAMPLES), [0.025, 0.975], axis=0)
  means = np.stack([flat.mean(0), *ends]).reshape(3, *shape[:-1])
  return [
    dict(name=level.name)
    | {
      which: {
        column: dict(zip(("value", "low", "high"), means[:, w, at, c].tolist(), strict=True))
        for c, column in enumerate(COLUMNS)
      }
      for w, which in enumerate(values)
    }
    for at, level in enumerate(after)
  ]


def _of_questions(level: Level, suite: str) -> np.ndarray:
  """Returns COLUMNS of every question, [3, P]."""
  samples = [item["samples"] for item in level.items[suite]]
  right = [[sample["right"] is True for sample in of_one] for of_one in samples]
  length = [[sample["length"] for sample in of_one] for of_one in samples]
  return np.stack([np.mean(x, axis=1) for x in (right, length, level.injected[suite])])


def _after_cut(config: ConfigDict, forcing: Forcing, budget: int) -> ConfigDict:
  spent = budget + len(forcing.end)
  return _going_on(config, spent, config.eval.max_tokens - spent)


def _after_waits(config: ConfigDict, forcing: Forcing, number: int) -> ConfigDict:
  return _going_on(config, number * (config.eval.max_tokens + len(forcing.wait)), config.eval.max_tokens)


def _going_on(config: ConfigDict, begun: int, room: int) -> ConfigDict:
  """Returns the config of answers that go on: `begun` tokens of each stand behind its prompt at most."""
  config = config.copy_and_resolve_references()
  config.data.prompt_budget += begun
  config.rollout.prompts *= config.eval.samples  # rows of a batch, as before
  config.eval.update(samples=1, max_tokens=room)
  return config


def _answers(job: benchmark.Job, level: Level, longest: int) -> dict[Place, tuple[list[int], bool]]:
  """Collective: returns (tokens, whether it has ended) of every answer, on all processes."""
  found = {}
  for suite in job.suites:
    P, n = len(suite.ids), job.config.eval.samples
    tokens, length = np.zeros((P, n, longest), np.int32), np.zeros((P, n, 2), np.int32)
    for q, item in enumerate(level.items.get(suite.name, [])):
      for i, sample in enumerate(item["samples"]):
        tokens[q, i, : sample["length"]] = sample["tokens"]
        length[q, i] = sample["length"], sample["ended"]
    tokens, length = processes.broadcast(tokens), processes.broadcast(length)
    for q, i in np.ndindex(P, n):
      size, ended = length[q, i]
      found[suite.name, q, i] = tokens[q, i, :size].tolist(), bool(ended)
  return found


def _go_on(
  job: benchmark.Job, config: ConfigDict, before: Level, name: str, begun: Answers, injected: int, out: Path,
  params, fingerprint: str,
) -> Level:  # fmt: skip
  """Collective: lets the policy go on behind what is `begun`; all other answers are those of `before`."""
  console.say(f"{name}: {len(begun)} of {sum(x.size for x in before.injected.values())} answers go on")
  if not begun:
    return before._replace(name=name)
  wanted = [(suite, [place for place in begun if place[0] == suite.name]) for suite in job.suites]
  later = [_suite(suite, name, places, begun, config) for suite, places in wanted if places]
  sample = programs_lib.build(config, job.model, job.tokenizer, job.mesh).sample_eval
  going = job._replace(config=config, suites=later, sample=sample)
  folder = out / re.sub(r"\W+", "_", name)
  answered = benchmark.run(going, folder, params, benchmark.resume(going, folder, fingerprint))
  copied = lambda item: item | dict(samples=[*item["samples"]])
  items = {of: [*map(copied, each)] for of, each in before.items.items()}
  counts = {of: each.copy() for of, each in before.injected.items()}
  for suite, places in wanted:
    for (_, q, i), new in zip(places, answered.get(suite.name, []), strict=False):  # none but on process 0
      (items[suite.name][q]["samples"][i],) = new["samples"]
    for _, q, i in places:
      counts[suite.name][q, i] += injected
  return Level(name, items, counts)


def _suite(suite: Suite, name: str, places: list[Place], begun: Answers, config: ConfigDict) -> Suite:
  """Returns the answers that go on as questions of their own, whose prompts have what is begun."""
  ids = [f"{suite.ids[q]}/{i}" for _, q, i in places]
  prompts = [np.array([*suite.questions.prompts[q], *begun[of, q, i]], np.int32) for of, q, i in places]
  split = suite.questions._replace(
    records=[suite.questions.records[q] for _, q, _ in places],
    prompts=prompts,
    ids=np.array([suites.number(f"{suite.name}/{one}/{name}") for one in ids], np.int32),
    budget=config.data.prompt_budget,
  )
  return Suite(suite.name, split, ids, tuple(begun[place] for place in places))
