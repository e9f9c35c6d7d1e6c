"""Pairs of answers in files: what a line is, which line is refused, how a batch lies."""

import json

import numpy as np
import pytest

from grpojax.data import pairs, pipeline, templates, text

SUM = dict(question="2+3=?")
GOOD = pairs.to_line(SUM, "#5", "#6")


def write(tmp_path, *lines):
  path = tmp_path / "pairs.jsonl"
  path.write_text("".join(json.dumps(line) + "\n" for line in lines))
  return path


def test_what_is_written_is_read_and_notes_are_for_people(tmp_path):
  before = json.dumps([dict(role="user", content="1?"), dict(role="assistant", content="no")])
  lines = [GOOD, pairs.to_line(SUM | dict(history=before), "#5", "#7") | dict(id="q")]
  assert lines[0] == dict(
    prompt=[dict(role="user", content="2+3=?")],
    chosen=[dict(role="assistant", content="#5")],
    rejected=[dict(role="assistant", content="#6")],
  )
  one, two = pairs.read(write(tmp_path, *lines))
  assert one == SUM | dict(chosen="#5", rejected="#6")
  assert two == SUM | dict(chosen="#5", rejected="#7", history=before)


REFUSED = {
  'it is no object with "prompt", "chosen" and "rejected"': dict(messages=[]),
  "chosen and rejected are the same": pairs.to_line(SUM, "#5", "#5"),
  "there is no answer of the assistant behind a message of the user": GOOD | dict(prompt=[]),
  "chosen and rejected are one answer of the assistant each": GOOD | dict(
    rejected=[*GOOD["rejected"], dict(role="user", content="?"), dict(role="assistant", content="!")]
  ),
  "a role is 'judge'": GOOD | dict(chosen=[dict(role="judge", content="x")]),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_line_that_is_no_pair_is_named(tmp_path, why):
  with pytest.raises(ValueError, match=rf"pairs.jsonl, line 2: .*{why}.*; mend or delete the line"):
    pairs.read(write(tmp_path, GOOD, REFUSED[why]))


def test_a_batch_has_both_answers_behind_one_prompt_with_their_ends(tmp_path):
  class data:
    prompt_budget, overlong_prompts = 12, "drop"

  rows = pairs.read(write(tmp_path, GOOD, pairs.to_line(dict(question="1+1=?"), "1+1=2\n#2", "#1")))
  tokenizer = text.load_tokenizer()
  split = pipeline.encode_split(data, "preference", rows, tokenizer, templates.PLAIN, ())
  found = pairs.batch(split, tokenizer, 2, max_tokens=6, seed=0, step=0)
  assert found["tokens"].shape == (2, 2, 12 + 6) and found["cut"] == 1
  order = list(pipeline.epoch_order(2, 2, 0)[0])
  for row, at in enumerate(order):
    for side, name in enumerate(pairs.SIDES):
      whole = [*rows[at][name].encode(), tokenizer.eos_token_id]
      n = found["length"][row, side]
      assert n == min(len(whole), 6) and found["mask"][row, side].tolist() == [1] * n + [0] * (6 - n)
      np.testing.assert_array_equal(found["tokens"][row, side, 12 : 12 + n], whole[:n])
      prompt = found["tokens"][row, side, 12 - found["prompt_length"][row, side] : 12]
      np.testing.assert_array_equal(prompt, split.prompts[at])
