"""Prompts as a model sees them: system prompt, history, template, and the tokenizer's turns."""

import json

import data_toys
import pytest
from ml_collections import ConfigDict

from grpojax.config.schema import DATA_KEYS
from grpojax.data import pipeline, templates, text

TOKENIZER = data_toys.tokenizer()
ROW = dict(question="Is {x} in {question}?")
HISTORY = [dict(role="user", content="Hi"), dict(role="assistant", content="Yes?")]
CHAT = dict(question="Sure?", history=json.dumps(HISTORY))
OWN = dict(question="Sure?", history=json.dumps([dict(role="system", content="Mine."), *HISTORY]))


def seen(record, template="none", system="", chat=True):
  (tokens,) = templates.encode(templates.build(template, system, chat), TOKENIZER, [record])
  return TOKENIZER.decode(tokens)


def turns(*pairs):
  return "".join(f"<|im_start|>{who}\n{what}<|im_end|>\n" for who, what in pairs) + "<|im_start|>assistant\n"


CASES = [
  (ROW, dict(), turns(("user", "Is {x} in {question}?"))),
  (ROW, dict(template="none", system="Be brief."), turns(("system", "Be brief."), ("user", ROW["question"]))),
  (
    ROW,
    dict(template="boxed"),
    turns(
      (
        "user",
        "Is {x} in {question}?\n\nPlease reason step by step, and put your final answer within \\boxed{}.",
      )
    ),
  ),
  (
    ROW,
    dict(template="answer_line"),
    turns(
      (
        "user",
        "Solve the following math problem step by step. The last line of your response should be of the"
        " form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
        'Is {x} in {question}?\n\nRemember to put your answer on its own line after "Answer:".',
      )
    ),
  ),
  (ROW, dict(template="Q: {question} {}\nA:"), turns(("user", "Q: Is {x} in {question}? {}\nA:"))),
  (CHAT, dict(), turns(("user", "Hi"), ("assistant", "Yes?"), ("user", "Sure?"))),
  (
    CHAT,
    dict(template="Q: {question}", system="Be brief."),
    turns(("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Q: Sure?")),
  ),
  (
    OWN,
    dict(system="Be brief."),
    turns(("system", "Mine."), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Sure?")),
  ),
  (ROW, dict(chat=False), "Is {x} in {question}?"),
  (
    ROW,
    dict(chat=False, system="Be brief.", template="Q: {question}"),
    "Be brief.\n\nQ: Is {x} in {question}?",
  ),
]


@pytest.mark.parametrize(("record", "form", "expected"), CASES)
def test_what_the_model_sees(record, form, expected):
  assert seen(record, **form) == expected


def test_r1_asks_for_its_tags_with_turns_and_without():
  tags = "i.e., <think> reasoning process here </think> <answer> answer here </answer>."
  for template, end in (
    ("think_answer", "\n\n{}<|im_end|>\n<|im_start|>assistant\n"),
    ("r1_zero", " User: {} Assistant:"),
  ):
    prompt = seen(ROW, template, chat=template == "think_answer")
    assert prompt.endswith(tags + end.format(ROW["question"]))
    assert prompt.count("<think>") == prompt.count("<answer>") == 2


def test_code_names_the_fence_that_is_looked_for():
  assert "```python" in seen(dict(question="Add."), "code")


def test_every_template_holds_the_question_once():
  names = {"none", "boxed", "think_answer", "answer_line", "answer_tag", "code", "r1_zero"}
  assert names == set(templates.TEMPLATES)
  for name in templates.TEMPLATES:
    assert seen(dict(question="XYZ"), name).count("XYZ") == 1


@pytest.mark.parametrize("template", ["box", "", "{question} {question}", "{Question}"])
def test_a_template_that_is_none_is_refused(template):
  with pytest.raises(
    ValueError, match=r"config.data.template = '.*' is none of none, boxed, .* no text with one"
  ):
    templates.build(template, "", True)


def test_a_chat_without_turns_is_refused():
  with pytest.raises(ValueError, match=r"config.data.chat = False, but a prompt has several turns"):
    seen(CHAT, chat=False)
  base = data_toys.tokenizer()
  base.chat_template = None
  with pytest.raises(ValueError, match=r"no chat template; add one, or set config.data.chat = False"):
    templates.encode(templates.PLAIN, base, [ROW])
  (tokens,) = templates.encode(templates.build("none", "", False), base, [ROW])
  assert base.decode(tokens) == ROW["question"]


def test_a_chat_template_without_a_place_for_it_refuses_a_system_prompt():
  embedded = text.load_tokenizer()
  form = templates.build("none", "Be brief.", True)
  with pytest.raises(ValueError, match=r"refuses a prompt \(Roles are .* set config.data.system = ''"):
    templates.encode(form, embedded, [dict(question="1+1=?")])


def test_a_plain_form_is_the_question_as_the_users_turn():
  (one,) = templates.encode(templates.PLAIN, TOKENIZER, [ROW])
  (other,) = text.encode_chats(TOKENIZER, [[dict(role="user", content=ROW["question"])]])
  assert one.tolist() == other.tolist()


def test_the_budget_counts_template_and_system_prompt(tmp_path):
  data_toys.write(tmp_path / "rows.jsonl", [dict(q="1+1?", a="2"), dict(q="1+1+1+1?", a="4")])
  source = dict(layout="columns", path=str(tmp_path / "rows.jsonl"), prompt="q", answer="a")
  keys = dict(train=dict(one=source), test=dict(one=source), on_malformed="skip", dedup=True)
  keys = ConfigDict(keys | dict(task="local", decontaminate=False, overlong_prompts="drop", prompt_budget=60))
  path = pipeline.prepare(keys, tmp_path / "cache", DATA_KEYS)
  form = templates.build("Q: {question}", "S", True)
  just_fits = 11 + 15 + 11  # a byte or a mark is a token: system turn, user turn, the assistant's start
  for budget, kept in ((just_fits - 1, 0), (just_fits, 1), (just_fits + 4, 2)):
    keys.prompt_budget = budget
    if not kept:
      with pytest.raises(ValueError, match="less than every prompt"):
        pipeline.load_split(keys, path, "train", TOKENIZER, form=form)
      continue
    split = pipeline.load_split(keys, path, "train", TOKENIZER, form=form)
    assert (len(split.records), split.dropped) == (kept, 2 - kept)


SCHEMA = dict(type="function", function=dict(name="add", description="Adds.", parameters={}))
WITH_TOOLS = "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}<|user|>{{ messages[0].content }}"


def test_tools_are_described_by_the_chat_template_or_in_words():
  tokenizer = text.load_tokenizer()
  form = templates.with_tools(templates.PLAIN, tokenizer, [SCHEMA])
  words = tokenizer.decode(templates.encode(form, tokenizer, [ROW])[0])
  assert json.dumps(SCHEMA) in words and form.tools == ()
  tokenizer.chat_template = WITH_TOOLS
  form = templates.with_tools(templates.PLAIN, tokenizer, [SCHEMA])
  assert form.template == "{question}" and form.tools == (SCHEMA,)
  own = tokenizer.decode(templates.encode(form, tokenizer, [ROW])[0])
  assert own.startswith(f"<tools>{json.dumps([SCHEMA])}</tools><|user|>")
  assert templates.with_tools(templates.PLAIN, tokenizer, []) == templates.PLAIN


def test_an_action_is_decoded_with_its_special_tokens_but_for_its_eos():
  """A call between special tokens is lost by who decodes without them (minimind#850)."""
  tokenizer = text.load_tokenizer()
  call, end = tokenizer.convert_tokens_to_ids("<|user|>"), tokenizer.eos_token_id
  inner = tokenizer.encode("{}", add_special_tokens=False)
  for ids, expected in (
    ([call, *inner, end], "<|user|>{}"),
    ([call, *inner], "<|user|>{}"),
    ([end, *inner, end], "<|end|>{}"),
    ([end], ""),
  ):
    assert text.decode_action(tokenizer, ids, (end,)) == expected
