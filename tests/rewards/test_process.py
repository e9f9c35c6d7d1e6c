"""Step scores land on the tokens where the steps end."""

import numpy as np
import pytest

from grpojax.data import text
from grpojax.rewards import Sample, load_scorer, process

TOKENIZER = text.load_tokenizer()
ARITHMETIC = load_scorer("grpojax.rewards.rules:arithmetic_steps")


def sampled(*texts):
  rows = text.encode_responses(TOKENIZER, list(texts))
  tokens = np.zeros((1, len(rows), 48), np.int32)
  for i, row in enumerate(rows):
    tokens[0, i, : len(row)] = row
  groups = [[Sample(line, {}, len(row), True) for line, row in zip(texts, rows, strict=True)]]
  return groups, tokens, np.array([[len(row) for row in rows]])


def test_a_steps_end_is_the_token_that_completes_it():
  groups, tokens, length = sampled("7+5=12;12*6=73\n#73", "no step")
  extra, counts = process.score(ARITHMETIC, TOKENIZER, groups, tokens, length, 4)
  assert extra["step_score"].tolist() == [[[1, 0, 0, 0], [0, 0, 0, 0]]]
  assert not any(counts.values()) and extra["step_end"][0, 1].tolist() == [-1] * 4
  for k, upto in enumerate(("7+5=12", "7+5=12;12*6=73")):
    end = extra["step_end"][0, 0, k]
    assert TOKENIZER.decode(tokens[0, 0, : end + 1]).startswith(upto)
    assert len(TOKENIZER.decode(tokens[0, 0, :end])) < len(upto)
  assert extra["step_end"][0, 0, 2:].tolist() == [-1, -1]


def test_steps_beyond_the_budget_are_counted():
  groups, tokens, length = sampled("1+1=2;2+2=4;4+4=9")
  extra, counts = process.score(ARITHMETIC, TOKENIZER, groups, tokens, length, 2)
  assert counts["process/steps_left_out"] == 1 and extra["step_score"].tolist() == [[[1, 1]]]


def test_a_completion_whose_steps_have_no_score_has_none_and_is_counted():
  groups, tokens, length = sampled("1+1=2", "2+2=5")
  first_fails = lambda samples: [RuntimeError(), *ARITHMETIC(samples[1:])]
  extra, counts = process.score(first_fails, TOKENIZER, groups, tokens, length, 1)
  assert counts == {"process/steps_left_out": 0, "process/failed": 1}
  assert extra["step_end"][0, 0].tolist() == [-1] and extra["step_end"][0, 1, 0] > 0


@pytest.mark.parametrize("end", range(1, 24))
def test_every_character_has_its_token(end):
  """Against a walk over all prefixes."""
  line = "17+5=22; 22*6=132\n#132."
  _, tokens, length = sampled(line)
  row = tokens[0, 0, : length[0, 0]]
  characters = [len(text.decode(TOKENIZER, row, n + 1)) for n in range(len(row))]
  walk = next(i for i, count in enumerate(characters) if count >= end)
  assert process.token_at(TOKENIZER, row, end) == walk
