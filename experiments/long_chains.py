"""Long chains: one number added again and again, a line for every time, in hundreds of tokens.

"17+9*24=?" is worked as "24:17;23:26;22:35;...;0:233" and the marked answer "#233": each line counts down and
adds.  8 to 32 lines of about six tokens, so that a slip anywhere is a wrong answer, and lengths differ from
question to question by a factor of four; demonstrations that ramble repeat lines, and lengths then differ
among the completions of one question, too.
"""

import hashlib
import itertools
import json
import random

import tensorflow_datasets as tfds

from grpojax.data.mini_aime import MiniAimeConfig, mark, scratchpad, split_of

START, STEP, TIMES = (2, 99), (2, 20), (8, 32)  # ranges, both ends included
SLIPS = (-10, -2, -1, 1, 2, 10)


class LongChains(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """Generated chains; nothing is downloaded.  config.data's keys are those of mini_aime."""

  VERSION = tfds.core.Version("1.0.0")
  url_infos = None  # no downloads
  BUILDER_CONFIGS = [MiniAimeConfig(name="default")]  # noqa: RUF012 (the library's own idiom)

  def _info(self):
    text = tfds.features.Text
    names = ("uid", "question", "answer", "task", "meta", "demonstration")
    features = tfds.features.FeaturesDict({name: text() for name in names})
    return tfds.core.DatasetInfo(builder=self, description="Long chains of additions.", features=features)

  def _split_generators(self, dl_manager):
    sizes = {split: getattr(self.builder_config, split) for split in ("train", "validation", "test")}
    drawn = draw(self.builder_config.version_seed, sizes)
    return {split: self._generate_examples(rows) for split, rows in drawn.items()}

  def _generate_examples(self, drawn):
    for start, step, times in drawn:
      row = to_row(start, step, times, self.builder_config)
      yield row["uid"], row


def draw(seed: int, sizes: dict[str, int]) -> dict[str, list[tuple[int, int, int]]]:
  """Returns (start, step, times) of each split, in random order; the question's hash says which split."""
  chains = list(itertools.product(*(range(least, most + 1) for least, most in (START, STEP, TIMES))))
  random.Random(f"long_chains/{seed}").shuffle(chains)
  of = {split: [chain for chain in chains if split_of(question(*chain)) == split] for split in sizes}
  for split, size in sizes.items():
    if not 1 <= size <= len(of[split]):
      raise ValueError(f"config.data.{split} = {size} rows, but long_chains has 1 to {len(of[split])}.")
  return {split: of[split][:size] for split, size in sizes.items()}


def question(start: int, step: int, times: int) -> str:
  return f"{start}+{step}*{times}=?"


def to_row(start: int, step: int, times: int, config: MiniAimeConfig) -> dict[str, str]:
  """Returns the row of the dataset; its flaws are keyed by (seed, question): they depend on no other row."""
  asked = question(start, step, times)
  rng = random.Random(f"{config.version_seed}/{asked}")
  wrong, rambles = rng.random() < config.wrong, rng.random() < config.rambling
  values = [start + step * i for i in range(times + 1)]
  if wrong:
    at, slip = rng.randint(1, times), rng.choice([s for s in SLIPS if values[1] + s >= 0])
    values = [value + slip * (i >= at) for i, value in enumerate(values)]
  rechecks = scratchpad.draw_rechecks(times + 1, rng) if rambles else []
  lines = []
  for i, value in enumerate(values):
    line = f"{times - i}:{value}"
    lines += [line] + [f"hm, again: {line}"] * rechecks.count(i)
  return dict(
    uid=hashlib.sha256(asked.encode()).hexdigest()[:16],
    question=asked,
    answer=str(start + step * times),
    task="chain",
    meta=json.dumps(dict(times=times, wrong=wrong, rechecks=len(rechecks))),
    demonstration=";".join(lines) + mark(values[-1], config, asked),
  )
