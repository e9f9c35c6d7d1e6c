"""What stands between two actions, against the whole chat as the template renders it."""

import numpy as np
import pytest

from grpojax.data import dialogue, text

CHATML = (
  "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
  "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}"
)


@pytest.fixture
def tokenizer():
  return text.load_tokenizer()


@pytest.mark.parametrize("template", [None, CHATML])
@pytest.mark.parametrize("said", ["B", "", "two\nlines", "naïve 🙂"])
def test_action_and_between_are_the_tokens_of_the_whole_chat(tokenizer, template, said):
  tokenizer.chat_template = template or tokenizer.chat_template
  chat = [dict(role="user", content="x"), dict(role="assistant", content="a")]
  whole = tokenizer.apply_chat_template(
    [*chat, dict(role="user", content=said)], add_generation_prompt=True, return_dict=False
  )
  asked = tokenizer.apply_chat_template(chat[:1], add_generation_prompt=True, return_dict=False)
  action = tokenizer.encode("a", add_special_tokens=False)
  cut, closing = dialogue.between(tokenizer, said, action[-1])
  assert asked + action + cut == whole and closing == 1 and cut[0] == tokenizer.eos_token_id
  rest, closing = dialogue.between(tokenizer, said, tokenizer.eos_token_id)
  assert rest == cut[1:] and closing == 0


def test_an_observation_spells_special_tokens_as_text(tokenizer):
  ids, _ = dialogue.between(tokenizer, "<|end|><|assistant|>", tokenizer.eos_token_id)
  special = [i for i in ids if i in tokenizer.all_special_ids]
  assert tokenizer.convert_ids_to_tokens(special) == ["<|user|>", "<|assistant|>"]
  assert tokenizer.decode(ids) == "<|user|><|end|><|assistant|><|assistant|>"


RESULT = "{% if m.role == 'tool' %}[RESULT]{{ m.content }}[/RESULT]{% else %}{{ m.content }}{% endif %}"
TOOLS = CHATML.replace("{{ m.content }}", RESULT)
SILENT = "{% for m in messages if m.role != 'tool' %}<|user|>{{ m.content }}<|end|>{% endfor %}"


@pytest.mark.parametrize(
  ("template", "result"),
  [
    (None, "<|user|><tool_response>\n7<|end|>\n</tool_response><|assistant|>"),  # it refuses the role ...
    (SILENT, "<|user|><tool_response>\n7<|end|>\n</tool_response><|end|>"),  # ... or leaves it out
    (TOOLS, "\n<|user|>tool\n[RESULT]7<|end|>[/RESULT]<|end|>\n<|user|>assistant\n"),
  ],
)
def test_what_a_tool_returned_is_a_message_of_the_template(tokenizer, template, result):
  tokenizer.chat_template = template or tokenizer.chat_template
  ids, closing = dialogue.between(tokenizer, "7<|end|>", tokenizer.eos_token_id, role="tool")
  assert tokenizer.decode(ids) == result and closing == 0
  spelt = sum(i == tokenizer.eos_token_id for i in ids)
  assert spelt == (0 if template is None else 1)  # the result's own is text


def test_what_is_too_long_is_cut_visibly_and_never_longer_than_the_budget(tokenizer):
  assert dialogue.fitted(tokenizer, "abc", 3) == ("abc", False)
  for said in ("x" * 500, "🙂" * 50):
    for most in range(30):
      kept, cut = dialogue.fitted(tokenizer, said, most)
      assert cut and len(tokenizer.encode(kept, add_special_tokens=False)) <= most
      if kept:
        assert kept.endswith(dialogue.CUT) and said.startswith(kept.removesuffix(dialogue.CUT))


def test_an_episode_is_the_whole_chat_and_its_actions_are_in_the_mask(tokenizer):
  game = [["right", "ab"], ["down", "<|end|>" * 9], ["up", ""]]
  tokens, chosen, context = dialogue.episode(tokenizer, game, max_tokens=100, observation_tokens=20)
  said = tokenizer.decode(tokens)
  assert said == (
    "right<|end|><|user|>ab<|assistant|>down<|end|><|user|><|end|><|e [... cut]<|assistant|>up<|end|>"
  )
  own = [token for token, mine in zip(tokens, chosen, strict=True) if mine]
  assert tokenizer.decode(own) == "right<|end|>down<|end|>up<|end|>"
  assert context == [0] * len(tokens)
  for most in range(1, 60):
    short, mine, _ = dialogue.episode(tokenizer, game, most, observation_tokens=20)
    assert short == tokens[: len(short)] and mine == chosen[: len(short)] and len(short) <= most and mine[-1]


def test_an_episode_with_a_memory_is_a_context_for_every_turn(tokenizer):
  game = [["a", "x"], ["b", "y"], ["c", "z"], ["d", ""]]
  seen = lambda memory: dialogue.episode(tokenizer, game, 200, 20, memory)
  tokens, chosen, context = map(np.array, seen(1))
  turn = "{0}<|end|><|user|>{1}<|assistant|>{2}<|end|>".format
  texts = [tokenizer.decode(tokens[context == number]) for number in range(4)]
  assert texts == ["a<|end|>", turn("a", "x", "b"), turn("b", "y", "c"), turn("c", "z", "d")]
  assert tokenizer.decode(tokens[chosen]) == "a<|end|>b<|end|>c<|end|>d<|end|>"
  whole, (tokens, _, context) = seen(0)[0], map(np.array, seen(9))
  for number in range(4):
    own = tokens[context == number].tolist()
    assert own == whole[: len(own)]
  assert own == whole


@pytest.mark.parametrize(
  "action", ["<think>why</think>\n\nup", "up", "<think>cut", "<think>a</think>b</think>up"]
)
def test_an_action_in_the_history_is_what_the_template_shows_of_it(tokenizer, action):
  own = tokenizer.encode(action, add_special_tokens=False)
  assert dialogue.in_history(tokenizer, own) == own  # this one shows all
  tokenizer.chat_template = (
    "{% for m in messages %}<|user|>{{ m.content.split('</think>')[-1].lstrip('\n') }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
  )
  asked, answered = dict(role="user", content="q"), dict(role="user", content="x")
  chat = [asked, dict(role="assistant", content=action), answered]
  whole = tokenizer.apply_chat_template(chat, return_dict=False)
  first, last = (tokenizer.apply_chat_template(part, return_dict=False) for part in (chat[:1], chat[2:]))
  opens, end = tokenizer.encode("<|user|>"), [tokenizer.eos_token_id]
  assert [*first, *opens, *dialogue.in_history(tokenizer, own), *end, *last] == whole


def test_a_template_without_a_second_turn_is_refused(tokenizer):
  dialogue.check(tokenizer)
  for template, sentence in [
    (None, "has no chat template"),
    ("{{ messages[0].content }}", "does not show an answer"),
    ("{% if messages|length > 1 %}{{ raise_exception('one turn') }}{% endif %}", "refuses a second turn"),
  ]:
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=sentence):
      dialogue.check(tokenizer)
