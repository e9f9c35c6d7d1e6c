"""Step scores land on the tokens where the steps end."""

import numpy as np
import pytest

from grpojax import steps
from grpojax.data import text
from grpojax.rewards.rules import arithmetic_steps

TOKENIZER = text.load_tokenizer()


def sampled(*texts):
  rows = text.encode_responses(TOKENIZER, list(texts))
  tokens = np.zeros((1, len(rows), 48), np.int32)
  for i, row in enumerate(rows):
    tokens[0, i, : len(row)] = row
  return [list(texts)], tokens, np.array([[len(row) for row in rows]])


def test_a_steps_end_is_the_token_that_completes_it():
  texts, tokens, length = sampled("7+5=12;12*6=73\n#73", "no step")
  extra, left_out = steps.score(arithmetic_steps, TOKENIZER, texts, tokens, length, 4)
  assert extra["step_score"].tolist() == [[[1, 0, 0, 0], [0, 0, 0, 0]]]
  assert left_out == 0 and extra["step_end"][0, 1].tolist() == [-1] * 4
  for k, upto in enumerate(("7+5=12", "7+5=12;12*6=73")):
    end = extra["step_end"][0, 0, k]
    assert TOKENIZER.decode(tokens[0, 0, : end + 1]).startswith(upto)
    assert len(TOKENIZER.decode(tokens[0, 0, :end])) < len(upto)
  assert extra["step_end"][0, 0, 2:].tolist() == [-1, -1]


def test_steps_beyond_the_budget_are_counted():
  texts, tokens, length = sampled("1+1=2;2+2=4;4+4=9")
  extra, left_out = steps.score(arithmetic_steps, TOKENIZER, texts, tokens, length, 2)
  assert left_out == 1 and extra["step_score"].tolist() == [[[1, 1]]]


@pytest.mark.parametrize("end", range(1, 24))
def test_every_character_has_its_token(end):
  """Against a walk over all prefixes."""
  line = "17+5=22; 22*6=132\n#132."
  _, tokens, length = sampled(line)
  row = tokens[0, 0, : length[0, 0]]
  characters = [len(text.decode(TOKENIZER, row, n + 1)) for n in range(len(row))]
  walk = next(i for i, count in enumerate(characters) if count >= end)
  assert steps.token_at(TOKENIZER, row, end) == walk
