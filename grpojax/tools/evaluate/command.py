"""grpojax evaluate --config=configs/dapo.py:local --checkpoint=runs/dapo@200 --suite=aime24,math500

config.eval sets temperature, top_k, top_p, min_p, samples and max_tokens.  A batch has
config.rollout.prompts questions.  The same command goes on where it was stopped.  --curves adds pass@k and
maj@k for every k up to config.eval.samples, --before=CHECKPOINT compares them with another policy's, and
--budgets and --waits add accuracy against tokens: thinking is cut, or made to go on.
"""

import contextlib
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import rich.console
from absl import flags
from ml_collections import ConfigDict

from grpojax.config import commandline
from grpojax.rollout import subsets
from grpojax.runtime import console, lock, processes, storage
from grpojax.tools.evaluate import benchmark, curves, forcing, summary

CHECKPOINT = flags.DEFINE_string(
  "checkpoint", "", "A run's workdir (its newest step), workdir@STEP, or a folder in Hugging Face's layout;"
  " default: what config.model describes, untrained.",
)  # fmt: skip
SUITE = flags.DEFINE_list("suite", [], "Sources of config.data.test, comma-separated; default: all.")
OUT = flags.DEFINE_string("out", None, "Where the results go; default WORKDIR/eval/step_N or runs/eval/NAME.")
LIMIT = flags.DEFINE_integer("limit", None, "Only the first questions of each suite.", lower_bound=1)
CURVES = flags.DEFINE_bool("curves", False, "Also pass@k and maj@k for every k up to config.eval.samples.")
BEFORE = flags.DEFINE_string(
  "before", None, "With --curves: a policy to compare with, as --checkpoint names it; --before= is what"
  " config.model describes, untrained.",
)  # fmt: skip
BEST_OF = flags.DEFINE_string(
  "best_of", "", "With --curves: a reward of config.reward that picks one of k answers."
)
BUDGETS = flags.DEFINE_list(
  "budgets", [], "With --curves: also the accuracy where thinking is cut after so many tokens"
  " (comma-separated) and config.interruption.text is injected.",
)  # fmt: skip
WAITS = flags.DEFINE_integer(
  "waits", 0, "With --curves: also the accuracy where --wait replaces the end of thinking, so many times.",
  lower_bound=0,
)  # fmt: skip
WAIT = flags.DEFINE_string("wait", "Wait", "With --waits: the text that is injected.")


class Asked(NamedTuple):
  """One policy's evaluation, ready to start."""

  checkpoint: str
  job: benchmark.Job
  out: Path
  forcing: forcing.Forcing | None


class Answered(NamedTuple):
  """Items and levels of a policy, on process 0."""

  items: dict[str, list[dict]]  # suite -> an item a question
  levels: list[forcing.Level]  # under budget forcing; [] if nothing is forced


def prepare(config: ConfigDict) -> list[Asked]:
  """Returns the evaluation of --checkpoint, and behind it that of --before.  Raises ValueError."""
  n = config.eval.samples
  forced = bool(BUDGETS.value or WAITS.value)
  if (BEFORE.value is not None or BEST_OF.value or forced) and not CURVES.value:
    raise ValueError("--before, --best_of, --budgets and --waits are of the curves; give --curves too.")
  if not all(budget.isdecimal() for budget in BUDGETS.value):
    raise ValueError(f"--budgets={','.join(BUDGETS.value)} has tokens, comma-separated: --budgets=128,256.")
  if CURVES.value and not 2 <= n <= subsets.MOST:
    raise ValueError(f"config.eval.samples = {n}: --curves needs 2 to {subsets.MOST} of each question.")
  named = [CHECKPOINT.value] + [BEFORE.value] * (BEFORE.value is not None)
  jobs = [benchmark.prepare(config, one, SUITE.value, LIMIT.value, BEST_OF.value) for one in named]
  if len({str(job.policy) for job in jobs}) < len(jobs):
    raise ValueError(f"--before and --checkpoint are both {jobs[0].policy}; name another policy.")
  forces = lambda job: forcing.prepare(job, [*map(int, BUDGETS.value)], WAITS.value, WAIT.value)
  folders = [job.policy.results(config) for job in jobs]
  if OUT.value:
    out = storage.local(OUT.value, "--out")
    folders = [out, out / "before"][: len(jobs)]
  if len(set(folders)) < len(folders):
    raise ValueError(f"--before and --checkpoint would both write to {folders[0]}; give a folder by --out.")
  return [
    Asked(name, job, out, forces(job) if forced else None)
    for name, job, out in zip(named, jobs, folders, strict=True)
  ]


def answer(asked: Asked) -> Answered:
  """Answers what is left, and writes and prints the summary; no other process may write there meanwhile.

  Raises ValueError where another one does, where the folder cannot be made, and for items of something else.
  """
  announce(asked)
  job, out = asked.job, asked.out
  with contextlib.ExitStack() as stack:
    hold = lambda: stack.enter_context(lock.hold_folder(out, "--out", "an evaluation"))
    processes.on_process_0(hold)
    params, done = benchmark.begin(job, out)
    answered = benchmark.run(job, out, params, done)
    if jax.process_index() == 0:
      report(job, out, answered)
    levels = forcing.run(job, asked.forcing, out, params, answered) if asked.forcing else []
  return Answered(answered, levels)


def announce(asked: Asked) -> None:
  job, c = asked.job, asked.job.config.eval
  questions = sum(len(suite.ids) for suite in job.suites)
  console.say(f"{job.policy}: {c.samples} answer(s) to each of {questions} questions, into {asked.out}")
  if asked.checkpoint:
    console.say("  config.model is the checkpoint's own")
  for note in job.notes:
    console.say(f"  {note}")
  if c.temperature == 0 and c.samples > 1:
    console.say("config.eval.temperature = 0: all answers to a question are the same; one says as much.")


def report(job: benchmark.Job, out: Path, answered: dict[str, list[dict]]) -> None:
  """Writes summary.json and prints the table."""
  suites = {name: summary.of_suite(of_suite) for name, of_suite in answered.items()}
  for name, suite in suites.items():
    if suite["no_verdict"]:
      console.say(f"{name}: {suite['no_verdict']} answers got no verdict and count as wrong")
  summary.write(out, dict(checkpoint=str(job.policy), notes=job.notes, suites=suites))
  rich.console.Console(highlight=False).print(summary.table(str(job.policy), suites))
  console.say("in brackets: 95 % bootstrap intervals over questions")
  console.say(f"every answer: {out / 'items.jsonl'}")


def show_curves(asked: list[Asked], answered: list[Answered]) -> None:
  """Writes curves.json and curves.html beside the results of --checkpoint, and prints the tables."""
  job, (after, *before) = asked[0].job, answered
  found = dict(
    command=shlex.join(["grpojax", "evaluate", *sys.argv[1:]]),
    checkpoint=str(job.policy),
    before=str(asked[1].job.policy) if before else None,
    suites={
      name: curves.of_suite(items, before[0].items[name] if before else None, job.best_of)
      for name, items in after.items.items()
    },
  )
  for name, suite in found["suites"].items():
    if after.levels:
      suite["forced"] = forcing.of_suite(after.levels, before[0].levels if before else None, name)
  written, terminal = curves.write(asked[0].out, found), rich.console.Console(highlight=False)
  for table, sentences in curves.tables(found):
    terminal.print(table)
    for sentence in sentences:
      console.say(sentence)
  console.say(f"figures: {written}")


def main(argv):
  config = commandline.start(argv)
  asked = prepare(config)
  try:
    answered = [answer(one) for one in asked]  # one after the other: their parameters need not fit together
  except KeyboardInterrupt:
    sys.exit("Interrupted; the same command goes on with the batches that are left.")
  if CURVES.value and jax.process_index() == 0:
    show_curves(asked, answered)


def command() -> None:
  """Reads the flags and runs."""
  commandline.run(main)
