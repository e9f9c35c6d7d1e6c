"""grpojax evaluate --config=configs/dapo.py:local --checkpoint=runs/dapo@200 --suite=aime24,math500

config.eval sets temperature, top_k, top_p, min_p, samples and max_tokens.  A batch has
config.rollout.prompts questions.  The same command goes on where it was stopped.
"""

import sys
from pathlib import Path

import jax
import rich.console
from absl import flags
from ml_collections import ConfigDict

from grpojax.config import commandline
from grpojax.runtime import console
from grpojax.tools.evaluate import benchmark, summary

CHECKPOINT = flags.DEFINE_string(
  "checkpoint", "", "A run's workdir (its newest step), workdir@STEP, or a folder in Hugging Face's layout;"
  " default: what config.model describes, untrained.",
)  # fmt: skip
SUITE = flags.DEFINE_list("suite", [], "Sources of config.data.test, comma-separated; default: all.")
OUT = flags.DEFINE_string("out", None, "Where the results go; default WORKDIR/eval/step_N or runs/eval/NAME.")
LIMIT = flags.DEFINE_integer("limit", None, "Only the first questions of each suite.", lower_bound=1)


def ready(config: ConfigDict) -> tuple[benchmark.Job, Path, dict, dict]:
  """Returns (job, folder of its results, parameters, items so far); or exits with one sentence."""
  try:
    job = benchmark.prepare(config, CHECKPOINT.value, SUITE.value, LIMIT.value)
    out = Path(OUT.value) if OUT.value else job.policy.results(config)
    announce(job, out)
    return job, out, *benchmark.begin(job, out)
  except ValueError as error:
    sys.exit(f"error: {error}")


def announce(job: benchmark.Job, out: Path) -> None:
  c, questions = job.config.eval, sum(len(suite.ids) for suite in job.suites)
  console.say(f"{job.policy}: {c.samples} answer(s) to each of {questions} questions, into {out}")
  if CHECKPOINT.value:
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


def main(argv):
  config = commandline.start(argv)
  try:
    job, out, params, done = ready(config)
    answered = benchmark.run(job, out, params, done)
  except KeyboardInterrupt:
    sys.exit("Interrupted; the same command goes on with the batches that are left.")
  if jax.process_index() == 0:
    report(job, out, answered)


def command() -> None:
  """Reads the flags and runs."""
  commandline.run(main)
