"""Conversations in files, for supervised fine-tuning: one JSON object a line.

    {"messages": [{"role": "user", "content": "2+3=?"}, {"role": "assistant", "content": "2+3=5\\n#5"}]}

What stands before the first answer is the prompt: it goes through config.data.template and the chat template
as the questions of RL do.  Every answer is learned, with the token that ends it, and nothing else.
Answers with `"weight": 0` before that are a part of the prompt, as OpenAI's format for fine-tuning has it.
Other keys of a line are notes for people.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpojax.data import demonstrations, pipeline
from grpojax.data.pipeline import Split
from grpojax.data.templates import Form
from grpojax.runtime import storage

ROLES = ("system", "user", "assistant")


def read(path: str | Path) -> list[dict[str, Any]]:
  """Returns the rows of a file, `question` with `demonstration` or `episode`.

  Raises ValueError naming the file, the line and what to mend.
  """
  return _alike(read_lines(path, "config.sft.path", lambda line: to_row(line["messages"]), '"messages"'))


def read_lines(path: str | Path, key: str, to_row: Callable[[Any], dict], wanted: str) -> list[dict]:
  """Returns the rows of a file of JSON Lines, each as `to_row` makes it; `wanted` names an object's keys.

  Raises ValueError naming the config's key, or the file, the line and what to mend.
  """
  file = storage.resolve(path, key)
  if not file.is_file():
    raise ValueError(f"{key} = '{path}' is not on this machine; name a file of JSON Lines.")
  rows = []
  for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
    if not line.strip():
      continue
    try:
      rows.append(to_row(json.loads(line)))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
      why = str(error) if type(error) is ValueError else f"it is no object with {wanted}"
      raise ValueError(f"{path}, line {number}: {why}; mend or delete the line.") from None
  if not rows:
    raise ValueError(f"{key} = '{path}' has no rows; name a file with one of them a line.")
  return rows


def to_row(messages: list[dict[str, str]]) -> dict[str, str]:
  """Returns the row of a conversation.  Raises ValueError for one that has no answer to learn."""
  roles = [message["role"] for message in messages]
  if unknown := set(roles) - set(ROLES):
    raise ValueError(f"a role is {unknown.pop()!r}, and they are {', '.join(ROLES)}")
  if not all(isinstance(message["content"], str) for message in messages):
    raise ValueError("a content is no text")
  learned = [m["role"] == "assistant" and m.get("weight", 1) != 0 for m in messages]
  first = learned.index(True) if any(learned) else 0
  turns = roles[first:]
  if not first or roles[first - 1] != "user" or roles[-1] != "assistant":
    raise ValueError("there is no answer of the assistant behind a message of the user, at the end")
  if turns != ["assistant", "user"] * (len(turns) // 2) + ["assistant"]:
    raise ValueError("user and assistant do not alternate behind the first answer")
  if not all(learned[first::2]):
    raise ValueError("an answer of weight 0 stands behind one that is learned")
  texts = [message["content"] for message in messages]
  row = dict(question=texts[first - 1])
  if first > 1:
    row["history"] = json.dumps([dict(role=m["role"], content=m["content"]) for m in messages[: first - 1]])
  if len(turns) == 1:
    return row | dict(demonstration=texts[-1])
  said = [*texts[first:], ""]
  return row | dict(episode=json.dumps(list(zip(said[::2], said[1::2], strict=True))))


def _alike(rows: list[dict]) -> list[dict]:
  """Returns the rows all as episodes, where one of them has several answers."""
  if not any("episode" in row for row in rows):
    return rows
  of_one = lambda row: {"episode": json.dumps([[row["demonstration"], ""]])}
  return [row if "episode" in row else row | of_one(row) for row in rows]


def to_messages(record: dict[str, Any], answer: str) -> list[dict[str, str]]:
  """Returns the conversation of a question of RL and an answer to it, as `read` takes it."""
  prompt = [m | {"weight": 0} if m["role"] == "assistant" else m for m in to_prompt(record)]
  return [*prompt, dict(role="assistant", content=answer)]


def to_prompt(record: dict[str, Any]) -> list[dict[str, str]]:
  """Returns the messages of a question of RL, those before it first."""
  history = json.loads(record["history"]) if record.get("history") else []
  return [*history, dict(role="user", content=record["question"])]


def to_split(config, rows: list[dict], tokenizer, form: Form) -> Split:
  """Returns the rows as the split "sft"; `config` is config.data."""
  return pipeline.encode_split(config, "sft", rows, tokenizer, form, ())


def count_cut(split: Split, tokenizer, max_tokens: int) -> int:
  """Returns the number of rows whose answers do not fit in `max_tokens`."""
  rows = split.records
  responses, chosen, _ = demonstrations.responses_of(split, rows, tokenizer, max_tokens, max_tokens)
  return demonstrations.count_cut(rows, responses, chosen, max_tokens, tokenizer.eos_token_id)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
  """Writes rows with `messages`, one a line, whole or not at all."""
  text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
  storage.write(path, text, encoding="utf-8")
