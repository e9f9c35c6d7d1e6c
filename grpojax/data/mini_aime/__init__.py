"""Mini-AIME: arithmetic with answers in 0..999, small enough to be learnt on a laptop in minutes.

A problem is asked in digits ("(7+5)*6-8=?") or in words ("Ann has 12 figs, buys 7, eats 4. Left?").
The split is a function of the expression alone, so that no seed, no order and no rewording can leak
a problem from one split into another.

Each row carries a demonstration, the scratchpad that supervised fine-tuning imitates:
"7+5=12;12*6=72;72-8=64" and the marked answer "#64" on a line of its own.  A share of them is
flawed on purpose, because a policy that starts perfect has nothing to learn from rewards:
  wrong     one step slips and the rest follows from the slip;
  rambling  steps are checked again and again, so that many run into the response budget.

A share of them is unmarked: it ends with the last step, and does not teach the format of an answer.
"""

import dataclasses
import hashlib
import json
import random

import tensorflow_datasets as tfds

from grpojax.data.mini_aime import problems, scratchpad

_GIVE_UP_AFTER = 100_000  # draws in a row that gave nothing new
_MOST = 1_000_000  # rows; drawing them takes minutes
FORMS = ("", "digits", "words")  # of questions: both, or one of them


@dataclasses.dataclass
class MiniAimeConfig(tfds.core.BuilderConfig):
  """Keys of config.data: rows of splits; wrong, rambling, unmarked are shares of them; form: one of FORMS."""

  version_seed: int = 0
  train: int = 8192
  validation: int = 256
  test: int = 512
  wrong: float = 0.3
  rambling: float = 0.3
  form: str = ""
  unmarked: float = 0.0


class MiniAime(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """Generated arithmetic problems; nothing is downloaded."""

  VERSION = tfds.core.Version("1.0.0")
  url_infos = None  # no downloads; the inherited look-up needs a package that tfds does not require
  BUILDER_CONFIGS = [MiniAimeConfig(name="default")]  # noqa: RUF012 (the library's own idiom)

  def _info(self):
    text = tfds.features.Text
    features = dict(
      uid=text(),
      question=text(),
      answer=text(),
      task=text(),
      meta=text(doc="JSON: expression, operations, wrong, rechecks"),
      demonstration=text(),
    )
    return tfds.core.DatasetInfo(
      builder=self,
      description="Arithmetic with integer answers in 0..999, in digits and in words.",
      features=tfds.features.FeaturesDict(features),
    )

  def _split_generators(self, dl_manager):
    config = self.builder_config
    for share in ("wrong", "rambling", "unmarked"):
      value = getattr(config, share)
      if not 0 <= value <= 1:
        raise ValueError(f"config.data.{share} = {value}, but it is a share and lies in 0..1.")
    sizes = dict(train=config.train, validation=config.validation, test=config.test)
    for split, size in sizes.items():
      if not 1 <= size <= _MOST:
        raise ValueError(f"config.data.{split} = {size} rows, but every split has 1 to {_MOST:,}.")
    if config.form not in FORMS:
      raise ValueError(f"config.data.form = {config.form!r}; it is {' or '.join(map(repr, FORMS))}.")
    drawn = generate(config.version_seed, sizes, config.form)
    return {split: self._generate_examples(rows) for split, rows in drawn.items()}

  def _generate_examples(self, drawn):
    for problem in drawn:
      row = to_row(problem, self.builder_config)
      yield row["uid"], row


def generate(seed: int, sizes: dict[str, int], form: str = "") -> dict[str, list[problems.Problem]]:
  """Draws until every split has its rows, of one form; a question occurs once in the whole dataset."""
  rng = random.Random(f"mini_aime/{seed}")
  drawn = {split: [] for split in sizes}
  seen = set()
  since_new = 0
  while any(len(drawn[split]) < size for split, size in sizes.items()):
    problem = problems.draw(rng)
    split = split_of(problems.render(problem.tree))
    since_new += 1
    if form and form != ("digits" if problem.task == "expression" else "words"):
      continue
    if problem.question not in seen and len(drawn[split]) < sizes[split]:
      seen.add(problem.question)
      drawn[split].append(problem)
      since_new = 0
    if since_new > _GIVE_UP_AFTER:
      raise ValueError(
        f"config.data asks for {sizes} rows, more than mini_aime has different questions for;"
        " ask for fewer."
      )
  return drawn


def split_of(expression: str) -> str:
  """Returns the split of an expression by its hash: of 20, 15 train, 2 validation and 3 test."""
  bucket = int.from_bytes(hashlib.sha256(expression.encode()).digest()[:8], "big") % 20
  return "train" if bucket < 15 else "validation" if bucket < 17 else "test"


def to_row(problem: problems.Problem, config: MiniAimeConfig) -> dict[str, str]:
  """Returns the row of the dataset.  Its flaws are keyed by (seed, uid): they depend on no other row."""
  uid = hashlib.sha256(problem.question.encode()).hexdigest()[:16]
  rng = random.Random(f"{config.version_seed}/{uid}")
  wrong, rambles = rng.random() < config.wrong, rng.random() < config.rambling
  steps = problems.to_steps(problem.tree)
  values = scratchpad.slipped_values(steps, rng) if wrong else problems.run(steps)
  rechecks = scratchpad.draw_rechecks(len(steps), rng) if rambles else []
  meta = dict(
    expression=problems.render(problem.tree),
    operations=len(steps),
    wrong=wrong,
    rechecks=len(rechecks),
  )
  return dict(
    uid=uid,
    question=problem.question,
    answer=str(problems.run(steps)[-1]),
    task=problem.task,
    meta=json.dumps(meta),
    demonstration=scratchpad.write(steps, values, rechecks) + mark(values[-1], config, uid),
  )


def mark(value: int, config: MiniAimeConfig, uid: str) -> str:
  """Returns the marked line that ends a demonstration; "" for a share of the rows, by a draw of its own."""
  draw = random.Random(f"{config.version_seed}/{uid}/mark").random()
  return "" if draw < config.unmarked else f"\n#{value}"
