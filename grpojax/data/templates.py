"""Text around a question: an instruction, a system prompt, the tokenizer's chat template."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from grpojax.data import special_tokens, text

# The form of answer that each asks for is the one that a reward has to look for.
TEMPLATES = {
  "none": "{question}",
  # Qwen2.5-Math, https://arxiv.org/abs/2409.12122
  "boxed": "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}.",
  # DAPO, https://arxiv.org/abs/2503.14476: as in its training file
  "answer_line": (
    "Solve the following math problem step by step. The last line of your response should be of the"
    " form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    '{question}\n\nRemember to put your answer on its own line after "Answer:".'
  ),
  # DeepSeek-R1, https://arxiv.org/abs/2501.12948 table 1; the turns are the chat template's ...
  "think_answer": (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves"
    " it. The assistant first thinks about the reasoning process in the mind and then provides the"
    " user with the answer. The reasoning process and answer are enclosed within <think> </think>"
    " and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think>"
    " <answer> answer here </answer>.\n\n{question}"
  ),
  "answer_tag": "{question}\n\nGive only the final answer between <answer> and </answer>.",
  "code": (
    "{question}\n\nWrite a Python program that solves this, in one block that starts with ```python"
    " and ends with ```. If there is no starter code, it reads standard input and prints the answer."
  ),
}
# ... and for a base model, which has no turns, they are text.
TEMPLATES["r1_zero"] = TEMPLATES["think_answer"].replace("\n\n{question}", " User: {question} Assistant:")


class Form(NamedTuple):
  template: str = "{question}"
  system: str = ""
  chat: bool = True
  split_special_tokens: bool = True  # those that a row spells are text
  tools: tuple[dict, ...] = ()  # that the chat template describes, as it takes them


PLAIN = Form()


def build(template: str, system: str, chat: bool, split_special_tokens: bool = True) -> Form:
  """Returns the form of config.data.template: a name of TEMPLATES or a text with {question} in it.

  `system` goes before every prompt that has no system message of its own.  `chat` puts the prompt
  through the tokenizer's chat template; without `chat` the model sees the text alone.  With
  `split_special_tokens` a special token that is spelt in a prompt is text.  Raises ValueError.
  """
  found = TEMPLATES.get(template, template)
  if found.count("{question}") != 1:
    raise ValueError(
      f"config.data.template = '{template}' is none of {', '.join(TEMPLATES)} and no text with one"
      " {question} in it."
    )
  return Form(found, system, chat, split_special_tokens)


def with_tools(form: Form, tokenizer, tools: Sequence[dict]) -> Form:
  """Returns the form whose prompts describe `tools`, as calls.schema makes them.

  The chat template does, or, where it has no words for tools, a text before the question, as Qwen's and
  Hermes's templates have it.
  """
  if form.chat and text.shows_tools(tokenizer, tools):
    return form._replace(tools=tuple(tools))
  return form._replace(template=_in_words(tools) + form.template) if tools else form


def _in_words(tools: Sequence[dict]) -> str:
  described = "\n".join(map(json.dumps, tools))
  return (
    "You may call functions. Their signatures are within <tools></tools>:\n<tools>\n"
    f"{described}\n</tools>\nFor a call, return JSON within <tool_call></tool_call>:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>\n\n'
  )


def encode(form: Form, tokenizer, records: list[dict[str, Any]]) -> list[np.ndarray]:
  """Encodes the prompt of each row; a row is its `question` and, in a chat, the messages before it."""
  chats = [to_chat(form, record) for record in records]
  if form.chat:
    return text.encode_chats(tokenizer, chats, form.split_special_tokens, form.tools)
  return text.encode_texts(tokenizer, [_as_text(chat) for chat in chats], form.split_special_tokens)


def count_spelt(form: Form, tokenizer, records: list[dict[str, Any]]) -> int:
  """Returns the number of prompts that spell a special token."""
  contents = ([message["content"] for message in to_chat(form, record)] for record in records)
  return sum(special_tokens.spells_any(tokenizer, texts) for texts in contents)


def to_chat(form: Form, record: dict[str, Any]) -> list[dict[str, str]]:
  """Returns the messages: the system's, the row's history, and the question in its template."""
  history = json.loads(record["history"]) if record.get("history") else []
  own = bool(history) and history[0]["role"] == "system"
  system = [dict(role="system", content=form.system)] if form.system and not own else []
  question = form.template.replace("{question}", record["question"])  # questions have braces of their own
  return [*system, *history, dict(role="user", content=question)]


def _as_text(chat: list[dict[str, str]]) -> str:
  if any(message["role"] == "assistant" for message in chat):
    raise ValueError("config.data.chat = False, but a prompt has several turns; set it to True.")
  return "\n\n".join(message["content"] for message in chat)
