"""Conversations in files: which tokens are learned, against the chat template as a whole; what is refused."""

import json

import numpy as np
import pytest

from grpojax.data import demonstrations, messages, templates, text
from grpojax.recipes import base

TOKENIZER = text.load_tokenizer()
CONFIG = base.get_config("tiny").data
SINGLE = [dict(role="user", content="2+3=?"), dict(role="assistant", content="2+3=5\n#5")]
SEVERAL = [*SINGLE, dict(role="user", content="4-1=?"), dict(role="assistant", content="#3")]
BEHIND = [*SINGLE, dict(role="user", content="7*2=?"), dict(role="assistant", content="7*2=14\n#14")]


def batch_of(tmp_path, chats, form=templates.PLAIN, max_tokens=40, notes=None):
  """The batch of all rows, sorted as they were written."""
  rows = [dict(messages=chat, note=notes) for chat in chats]
  messages.write(tmp_path / "chats.jsonl", rows)
  split = messages.to_split(CONFIG, messages.read(tmp_path / "chats.jsonl"), TOKENIZER, form)
  return split, demonstrations.batch(split, TOKENIZER, len(chats), max_tokens, 0, 0, max_tokens)


def rows_of(split, demo):
  """Each row's tokens, prompt and answers, and which are learned; in the order of the file."""
  found = {}
  for tokens, mask, prompt, length in zip(
    demo["tokens"], demo["mask"], demo["prompt_length"], demo["length"], strict=True
  ):
    L = split.budget
    own = tokens[L - prompt : L + length].tolist()
    found[tuple(own)] = [False] * prompt + (mask[:length] > 0).tolist()
  return found


@pytest.mark.parametrize("chats", [[SINGLE, BEHIND], [SEVERAL, BEHIND], [SINGLE, SEVERAL]])
def test_tokens_are_those_of_the_chat_template_and_answers_with_their_ends_are_learned(tmp_path, chats):
  """The template fills in the whole conversation at once; which tokens are an answer's, its marks say."""
  found = rows_of(*batch_of(tmp_path, chats))
  begin, end = (TOKENIZER.convert_tokens_to_ids(mark) for mark in ("<|assistant|>", "<|end|>"))
  for chat in chats:
    whole = TOKENIZER.apply_chat_template(chat, return_dict=False)
    learned, on = [], False
    for token in whole:
      learned.append(on)
      on = (on or token == begin) and token != end
    assert found[tuple(whole)] == learned and any(learned) and not all(learned)


def test_a_template_stands_around_the_question_as_in_rl(tmp_path):
  form = templates.build("Q: {question}", "", True)
  split, _ = batch_of(tmp_path, [SINGLE], form)
  (of_rl,) = templates.encode(form, TOKENIZER, [dict(question="2+3=?")])
  np.testing.assert_array_equal(split.prompts[0], of_rl)


LONG = [BEHIND[2], BEHIND[3]]  # an answer of 10 tokens with its end; that of SINGLE has 8


@pytest.mark.parametrize("chats", [[SINGLE, LONG], [SEVERAL, LONG, BEHIND]])
@pytest.mark.parametrize("budget", range(6, 26))
def test_an_answer_beyond_the_budget_is_cut_and_counted(tmp_path, chats, budget):
  """Of a conversation with several answers the row may end before one of them."""
  split, demo = batch_of(tmp_path, chats, max_tokens=budget)
  tokens = lambda chat, **how: len(TOKENIZER.apply_chat_template(chat, return_dict=False, **how))
  cut = sum(tokens(chat) - tokens(chat[:1], add_generation_prompt=True) > budget for chat in chats)
  assert demo["cut"] == messages.count_cut(split, TOKENIZER, budget) == cut


def test_rows_go_from_questions_to_messages_and_back(tmp_path):
  history = json.dumps([dict(role="user", content="1?"), dict(role="assistant", content="1")])
  for record in (dict(question="2+3=?"), dict(question="é\n2?", history=history)):
    assert messages.to_row(messages.to_messages(record, "#5")) == record | {"demonstration": "#5"}
  messages.write(tmp_path / "rows.jsonl", [dict(messages=SINGLE, solved="1 of 4")])
  assert messages.read(tmp_path / "rows.jsonl") == [dict(question="2+3=?", demonstration="2+3=5\n#5")]


BAD = {
  "it is no object": "[1, 2]",
  "it is no object with": '{"chat": []}',
  "line 1: it is|line 1: Expecting|no object": "{half",
  "a role is 'tool'": json.dumps({"messages": [dict(role="tool", content="x"), *SINGLE]}),
  "a content is no text": json.dumps({"messages": [SINGLE[0], dict(role="assistant", content=["x"])]}),
  "there is no answer": json.dumps({"messages": SINGLE[:1]}),
  "there is no answer of": json.dumps({"messages": SINGLE[1:]}),
  "of weight 0 stands behind": json.dumps({"messages": [*SINGLE, SINGLE[0], SINGLE[1] | {"weight": 0}]}),
  "do not alternate": json.dumps({"messages": [*SINGLE, SINGLE[1]]}),
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_line_that_is_no_conversation_is_named(tmp_path, sentence):
  (tmp_path / "bad.jsonl").write_text(BAD[sentence] + "\n")
  with pytest.raises(ValueError, match=sentence) as error:
    messages.read(tmp_path / "bad.jsonl")
  assert "line 1" in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there_and_one_without_rows_are_refused(tmp_path):
  with pytest.raises(ValueError, match=r"config\.sft\.path = .* is not on this machine"):
    messages.read(tmp_path / "none.jsonl")
  (tmp_path / "empty.jsonl").write_text("\n\n")
  with pytest.raises(ValueError, match="has no rows"):
    messages.read(tmp_path / "empty.jsonl")


def test_prompts_beyond_the_budget_are_dropped_and_counted(tmp_path):
  long = [dict(role="user", content="9+" * 60 + "9=?"), SINGLE[1]]
  messages.write(tmp_path / "chats.jsonl", [dict(messages=SINGLE), dict(messages=long)])
  split = messages.to_split(CONFIG, messages.read(tmp_path / "chats.jsonl"), TOKENIZER, templates.PLAIN)
  assert (len(split.records), split.dropped) == (1, 1)
