"""A `sample` stage: it answers training questions, and leaves rows that another stage learns.

config.sample.rows says which: right answers, pairs of answers, or judgements that teach a judge.
"""

import time

from grpojax.data import messages, pairs
from grpojax.rewards import judged
from grpojax.rollout import estimators
from grpojax.runtime import console, metrics, processes
from grpojax.tools.evaluate.suites import TRAINING
from grpojax.tools.pipeline import answering, judge, pairing, rejection
from grpojax.tools.pipeline.answering import Place
from grpojax.tools.pipeline.judge import Scores
from grpojax.tools.pipeline.manifest import ROWS
from grpojax.tools.pipeline.stages import Stage, from_folder


def sample(stage: Stage, place: Place) -> list[str]:
  """Answers training questions and leaves what is to be learned.  Raises ValueError where that is nothing."""
  config, c = from_folder(stage.config, place.policy), stage.config.sample
  config.eval.update(samples=c.samples, temperature=c.temperature)
  begun = time.perf_counter()
  job, answered = answering.answers(config, place, [TRAINING], c.prompts or None)
  by_judge, judgements, overlong = c.rows == "pairs" and c.by == "judge", {}, 0
  if by_judge:
    written = metrics.read(place.folder, "items")  # by process 0; all need the texts to judge them
    judgements, overlong = judge.judge(job, config, written, place)

  def leave():
    (suite,) = job.suites
    records, items = dict(zip(suite.ids, suite.questions.records, strict=True)), answered[TRAINING]
    scores, of_judge = judge.score(config.judge, judgements) if by_judge else ({}, {})
    rows, counts, said = ROWS_OF[c.rows](stage, records, items, scores)
    console.say(f"{stage.name}: {said}")
    found = {f"sample/{name}": n for name, n in (_symptoms(items) | counts).items()}
    if by_judge:
      of_judge |= {"overlong": overlong} | judge.agreement(items, scores)
      console.say(f"{stage.name}: {judge.sentence(of_judge)}")
      found |= {f"judge/{name}": n for name, n in of_judge.items()}
    judged = [one for samples in judgements.values() for one in samples]
    answering.record(place.folder, found, [*answering.samples_of(items), *judged], begun)
    if not rows:
      raise ValueError(
        f"{said}; raise config.sample.prompts or config.sample.samples, or start it from a better policy"
        " (init)."
      )
    messages.write(place.folder / ROWS, rows)

  processes.on_process_0(leave)
  return [ROWS]


def _right_answers(stage: Stage, records: dict[str, dict], items: list[dict], _: Scores):
  """Returns (lines of the answers that are kept, counts, the counts in words)."""
  kept, counts = rejection.select(items, stage.config.sample.keep, stage.config.sample.balance)
  to_row = lambda item, text: dict(messages=messages.to_messages(records[item["id"]], text), **_notes(item))
  return [to_row(*one) for one in kept], counts, rejection.sentence(counts)


def _judgements(stage: Stage, records: dict[str, dict], items: list[dict], scores: Scores):
  """Returns the right answers, and behind them what a judge should say: of a pair, most and 0.

  As many right as wrong, so that what a judge learns is no habit; and the answers, so that it forgets none.
  """
  c = stage.config.judge
  rows, counts, said = _right_answers(stage, records, items, scores)
  made, _ = pairing.best_and_worst(items, pairing.by_verifier)
  for item, *both in made:
    for right, text in zip((True, False), both, strict=True):
      asked = dict(question=judged.ask(c.rubric, records[item["id"]], text))
      said_of_it = messages.to_messages(asked, judged.verdict(c.marker, c.most if right else 0))
      rows.append(dict(messages=said_of_it, **_notes(item), judged=True))
  if not made:
    rows = []  # a judge would learn nothing
  return rows, counts | {"judgements": 2 * len(made)}, f"{said}; {2 * len(made)} judgements"


def _pairs(stage: Stage, records: dict[str, dict], items: list[dict], scores: Scores):
  """Returns (lines of the pairs, counts, the counts in words).  Raises ValueError without a demonstration."""
  by, score = stage.config.sample.by, pairing.by_verifier
  if by == "judge":
    score = lambda item, number: scores.get((item["id"], item["samples"][number]["text"]))
  if by == "demonstration":
    if not all(record.get("demonstration") for record in records.values()):
      raise ValueError(
        f"config.sample.by = 'demonstration', and config.data.task = '{stage.config.data.task}' has none; set"
        " it to 'verifier' or 'judge'."
      )
    shown = {name: record["demonstration"] for name, record in records.items()}
    made, counts = pairing.against_demonstration(items, shown)
  else:
    made, counts = pairing.best_and_worst(items, score)
  if by == "demonstration":
    counts["length_correlation"] = pairing.length_preference(made)
  if by == "judge":
    counts["length_correlation"] = pairing.length_correlation(items, score)
  to_row = lambda item, chosen, rejected: pairs.to_line(records[item["id"]], chosen, rejected) | _notes(item)
  return [to_row(*one) for one in made], counts, pairing.sentence(counts)


ROWS_OF = {"answers": _right_answers, "pairs": _pairs, "judgements": _judgements}  # config.sample.rows


def _symptoms(items: list[dict]) -> dict[str, float]:
  """Returns what shows that such a loop goes wrong.

  pass@1 and pass@n of n answers come together where a policy forgets all other ways; and the correlation of
  being right with length says what a policy that learns right answers learns beside.
  """
  n, correct = items[0]["n"], [item["correct"] for item in items]
  found = {f"pass@{k}": float(estimators.pass_at_k(correct, n, k).mean()) for k in sorted({1, n})}
  return found | {"length_correlation": pairing.length_correlation(items, pairing.by_verifier)}


def _notes(item: dict) -> dict[str, str]:
  """Returns what a line says to people beside its messages."""
  return dict(id=item["id"], solved=f"{item['correct']} of {item['n']}")
