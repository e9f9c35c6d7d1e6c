"""The policy as the judge of its own answers: a rubric around question and answer, judgements averaged.

A judgement is an answer to the rubric, and its score the integer behind the last marker, from 0 to the most.
What is not of that form is no judgement: it is counted, and takes no part in the mean.  Self-rewarding
language models, https://arxiv.org/abs/2401.10020
"""

from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from grpojax import rewards
from grpojax.data import templates
from grpojax.data.pipeline import Split
from grpojax.rewards import judged
from grpojax.tools.evaluate import benchmark, suites
from grpojax.tools.evaluate.suites import Suite
from grpojax.tools.pipeline import pairing
from grpojax.tools.pipeline.answering import Place
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib

NAME = "judge"  # of the suite of rubrics, and of the folder of its items
Scores = dict[tuple[str, str], float]  # (id of the question, text of the answer) -> mean score


def judge(
  answering: benchmark.Job, config: ConfigDict, items: list[dict], place: Place
) -> tuple[dict[tuple[str, str], list[dict]], int]:
  """Collective: judges each answer that may be in a pair, once each text of a question.

  `answering` is the evaluation that made the items.  Returns (answer -> its judgements, {} but on process 0;
  answers whose rubric is over the budget); goes on where it was stopped.
  """
  job, of_rubric, dropped = _prepare(answering, config, items, place.share)
  out = place.folder / NAME
  params, done = benchmark.begin(job, out)
  found = benchmark.run(job, out, params, done).get(NAME, [])
  return {of_rubric[item["id"]]: item["samples"] for item in found}, dropped


def score(
  c: ConfigDict, judgements: dict[tuple[str, str], list[dict]]
) -> tuple[Scores, dict[str, float]]:
  """Returns (the mean score of each answer that has one, counts).

  The `answer` of a judgement is the integer that it states.  Raises ValueError where none has a score.
  """
  scores, n, in_form = {}, 0, 0
  for answer, samples in judgements.items():
    stated = [int(one["answer"]) for one in samples if one["answer"] is not None]
    known = [value for value in stated if 0 <= value <= c.most]
    n, in_form = n + len(samples), in_form + len(known)
    if known:
      scores[answer] = float(np.mean(known))
  if not scores:
    (first, *_), *_ = judgements.values()
    raise ValueError(
      f"none of {n} judgements has a score from 0 to {c.most} behind '{c.marker}', and the first is"
      f" {first['text'][:60]!r}; let an sft stage before it learn the form (sample.rows = 'judgements'), or"
      " change config.judge.rubric, .marker or .max_tokens."
    )
  return scores, {"judgements": n, "no_form": n - in_form}


def agreement(items: list[dict], scores: Scores) -> dict[str, float]:
  """Returns how often the judge puts a right answer over a wrong one of the same question, ties as half.

  0.5 is a coin's; {} where no question has both.
  """
  better, pairs = 0.0, 0
  for item in items:
    known = {True: [], False: []}
    for sample in item["samples"]:
      value = scores.get((item["id"], sample["text"]))
      if value is not None and sample["right"] is not None:
        known[sample["right"]].append(value)
    for right in known[True]:
      for wrong in known[False]:
        better, pairs = better + (right > wrong) + (right == wrong) / 2, pairs + 1
  return {"agreement": better / pairs} if pairs else {}


def sentence(found: dict[str, float]) -> str:
  """Returns what became of the judgements in words."""
  knows = "no question has a right and a wrong answer that were judged"
  if "agreement" in found:
    knows = f"a right answer over a wrong one in {100 * found['agreement']:.0f} % of the pairs (a coin: 50 %)"
  return (
    f"{found['judgements']} judgements, {found['no_form']} not of the form, {found['overlong']} answers over"
    f" config.judge.prompt_budget; {knows}"
  )


def _prepare(answering: benchmark.Job, config: ConfigDict, items: list[dict], share: Callable):
  """Returns (the evaluation that asks the rubrics, id -> (question's id, text), rubrics over the budget)."""
  c = config.judge
  asked = config.copy_and_resolve_references()
  with asked.unlocked():
    asked.data.prompt_budget, asked.data.template = c.prompt_budget, "none"
    asked.eval.update(samples=c.samples, temperature=c.temperature, top_k=0, top_p=1.0, min_p=0.0)
    asked.eval.max_tokens = asked.rollout.max_tokens = c.max_tokens
    asked.reward = ConfigDict(dict(accuracy=dict(fn="rules:integer_answer", marker=c.marker.rstrip())))
  try:
    policy_lib.check_length(asked)
  except ValueError as error:
    said = str(error).replace("config.data.", "config.judge.").replace("config.rollout.", "config.judge.")
    raise ValueError(said) from error
  (suite,) = answering.suites
  records = dict(zip(suite.ids, suite.questions.records, strict=True))
  rubrics, of_rubric = [], {}
  for item in items:
    texts = dict.fromkeys(one["text"] for one in item["samples"] if not pairing.unusable(one))
    for number, text in enumerate(texts):
      of_rubric[f"{item['id']}/{number}"] = item["id"], text
      rubrics.append(dict(question=judged.ask(c.rubric, records[item["id"]], text), answer=str(c.most)))
  if not rubrics:
    raise ValueError("no answer has ended, so there is nothing to judge; raise config.eval.max_tokens.")
  d = asked.data
  form = templates.build("none", d.system, d.chat, d.split_special_tokens)
  prompts = templates.encode(form, answering.tokenizer, rubrics)
  fits = [i for i, prompt in enumerate(prompts) if len(prompt) <= c.prompt_budget]
  if not fits:
    raise ValueError(
      f"config.judge.prompt_budget = {c.prompt_budget} is less than every rubric has with its question and"
      f" answer, {min(map(len, prompts))} tokens and more; raise it."
    )
  ids = [list(of_rubric)[i] for i in fits]
  take = lambda rows: [rows[i] for i in fits]
  numbers = np.array([suites.number(f"{NAME}/{one}") for one in ids], np.int32)
  split = Split(NAME, take(rubrics), take(prompts), numbers, c.prompt_budget, len(prompts) - len(fits))
  sample = share(programs_lib.build, asked, answering.model, answering.tokenizer, answering.mesh).sample_eval
  job = answering._replace(
    config=asked, suites=[Suite(NAME, split, ids)], scorer=rewards.build(asked.reward), sample=sample
  )
  return job, of_rubric, split.dropped
