"""report.html of a stage that is no run of its own: a base, sampled answers, an evaluation.

What was asked, what came of it with intervals, what was kept and why not the rest, answers, tokens, seconds.
"""

import itertools
from pathlib import Path

from grpojax.runtime import console, metrics, report, storage
from grpojax.runtime.report import figures
from grpojax.tools.evaluate import items, summary
from grpojax.tools.pipeline import cost, judge, manifest, pairing, rejection
from grpojax.tools.pipeline.manifest import ROWS
from grpojax.tools.pipeline.stages import Stage

KINDS = ("base", "sample", "evaluate")  # the others are runs, which draw a report themselves
SHOWN = 3  # rows, and questions
ANSWERS = 4  # of a question
VERDICTS = {True: "right", False: "wrong", None: "no verdict"}
REASONS = {  # of rejection.COUNTS and pairing.COUNTS
  "wrong": "the verifier says so",
  "no_verdict": "the verifier or the judge says nothing",
  "cut": "no end within config.eval.max_tokens",
  "unreadable": "a part of a character in it",
  "repeated": "like another one to its question, but for white space",
  "over_limit": "right, and beyond config.sample.keep to its question",
  "kept": "",
  "unpaired": "neither the first best nor the first worst to its question, or those are alike",
  "paired": "chosen or rejected in a pair",
}


def write(chain: str, stage: Stage, workdir: Path, failed: str = "") -> Path:
  """Writes the report of a stage in its folder, from the files that it has left; returns its path.

  `failed` is why it has ended without leaving what it should.
  """
  folder = workdir / stage.name
  records, asked = metrics.read(folder), metrics.read(folder, "items")
  suites = {name: summary.of_suite(of_suite) for name, of_suite in items.by_suite(asked).items()}
  counts = _counts(stage, records)
  html = (
    report.page(Path(__file__).parent, report.PAGES)
    .get_template("stage.html")
    .render(
      title=f"{stage.name} ({stage.kind})",
      chain=chain,
      failed=failed,
      facts=_facts(stage, len(asked), records),
      suites=suites,
      accuracy=summary.rows(suites),
      counts=_shares(stage, counts) if counts else [],
      remarks=remarks(records) if counts else [],
      figures=figures.draw(records) if stage.kind == "base" else [],
      rows=rows(folder),
      answered=[_question(item) for item in asked[:SHOWN]],
      judged=[_judgement(item) for item in metrics.read(folder / judge.NAME, "items")[:SHOWN]],
      command=storage.read_text(folder / "commands.txt"),
      manifest=storage.read_text(folder / manifest.NAME),
      palette=figures.COLOURS,
    )
  )
  return report.put(folder / "report.html", html)


def kept(stage: Stage, records: list[dict]) -> str:
  """Returns what became of the answers of a `sample` stage, and what its judge said, in words."""
  said = (pairing if stage.config.sample.rows == "pairs" else rejection).sentence(_counts(stage, records))
  return "; ".join([said, *remarks(records)])


def remarks(records: list[dict]) -> list[str]:
  """Returns sentences on the signs of a loop that goes wrong, and on the judge, of a `sample` stage."""
  counts, of_judge = _whole(records[-1], "sample/"), _whole(records[-1], "judge/")
  passed = [f"{name} {100 * counts[name]:.1f} %" for name in counts if name.startswith("pass@")]
  said = f"{', '.join(passed)}; correlation of reward and length {counts['length_correlation']:+.2f}"
  return [said, judge.sentence(of_judge)] if of_judge else [said]


def rows(folder: Path) -> list[str]:
  """Returns the first lines that a `sample` stage has left."""
  lines = storage.read_text(folder / ROWS).split("\n")[:SHOWN]
  return [line for line in lines if line]


def answer(title: str, sample: dict) -> dict[str, str]:
  """Returns what answers.html shows of an answer."""
  said = f"{VERDICTS[sample['right']]}, {sample['length']} tokens"
  return dict(title=title, said=said if sample["ended"] else f"{said}, cut", text=sample["text"])


def _facts(stage: Stage, questions: int, records: list[dict]) -> dict[str, str]:
  """Returns the head of the page."""
  tokens, seconds = cost.spent(records)
  what = "learned" if stage.kind == "base" else "sampled"
  took = [f"{tokens:,} tokens {what}"] if tokens else []
  took += [console.duration(seconds)] if seconds else []
  took += [f"{tokens / seconds:,.0f} tokens a second"] if tokens and seconds else []
  if stage.kind == "base" and not tokens and "path" not in stage.config.model:
    took.append("from the cache of cold starts")
  found = {"policy": f"that of '{stage.init}'"} if stage.init else {}
  return found | {"asked": _asked(stage, questions), "took": ", ".join(took) or "nothing is recorded"}


def _asked(stage: Stage, questions: int) -> str:
  """Returns what the stage's config asks for."""
  c = stage.config
  if stage.kind == "base":
    s = c.cold_start
    shown = f"{s.steps:,} updates of {s.batch_size} demonstrations, learning rate {s.learning_rate:g}"
    return f"the policy in {c.model.path}" if "path" in c.model else f"a cold start, {shown}"
  of = c.sample if stage.kind == "sample" else c.eval
  answers = f"{of.samples} answers" if of.samples > 1 else "an answer"
  said = (
    f"{answers} to each of {questions:,} questions, at temperature {of.temperature:g}, of {c.eval.max_tokens}"
    " tokens at most"
  )
  return f"{said}; {_rows_asked(c)}" if stage.kind == "sample" else said


def _rows_asked(c) -> str:
  """Returns which rows a `sample` stage makes of answers."""
  if c.sample.rows == "pairs":
    judgements = f", by {c.judge.samples} judgements of each answer" if c.sample.by == "judge" else ""
    return f"pairs by the {c.sample.by}{judgements}"
  easy = ", fewer of an easy one" if c.sample.balance == "hard" else ""
  judged = ", and what a judge should say of a right and a wrong one" if c.sample.rows == "judgements" else ""
  return f"right ones are kept, {c.sample.keep} of a question at most{easy}{judged}"


def _counts(stage: Stage, records: list[dict]) -> dict:
  """Returns what became of the answers of a `sample` stage; {} of others, and of one without a record."""
  return _whole(records[-1], "sample/") if stage.kind == "sample" and records else {}


def _whole(record: dict, prefix: str) -> dict:
  """Returns the numbers of a record whose names begin so, counts as integers."""
  found = {key.removeprefix(prefix): n for key, n in record.items() if key.startswith(prefix)}
  return {name: int(n) if float(n).is_integer() else n for name, n in found.items()}


def _shares(stage: Stage, counts: dict) -> list[list[str]]:
  """Returns a line of the table for each thing that an answer can become."""
  names = (pairing if stage.config.sample.rows == "pairs" else rejection).COUNTS[1:]
  share = lambda name: f"{100 * counts[name] / counts['sampled']:.1f}"
  lines = [[name.replace("_", " "), f"{counts[name]:,}", share(name), REASONS[name]] for name in names]
  return [*lines, ["all", f"{counts['sampled']:,}", "100.0", f"to {counts['prompts']:,} questions"]]


def _question(item: dict) -> dict:
  """Returns what answers.html shows of a question."""
  samples = itertools.islice(item["samples"], ANSWERS)
  answers = [answer(f"Answer {number}", sample) for number, sample in enumerate(samples, start=1)]
  return dict(question=item["question"], answer=item["answer"], answers=answers)


def _judgement(item: dict) -> dict:
  """Returns the same of a rubric and its judgements; its gold answer is the most that a judge can say."""
  found = _question(item) | dict(gold="the most")
  for shown, sample in zip(found["answers"], item["samples"], strict=False):
    said = "not of the form" if sample["answer"] is None else f"says {sample['answer']}"
    shown.update(title=said, said=f"{sample['length']} tokens")
  return found
