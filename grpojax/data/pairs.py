"""Pairs of answers in files, for preference losses: one JSON object a line, in TRL's conversational form.

    {"prompt": [{"role": "user", "content": "2+3=?"}],
     "chosen": [{"role": "assistant", "content": "2+3=5\\n#5"}],
     "rejected": [{"role": "assistant", "content": "2+3=6\\n#6"}]}

The prompt goes through config.data.template and the chat template as the questions of RL do.  All tokens of
both answers are compared, with the token that ends each.  Other keys of a line are notes for people.
"""

from pathlib import Path
from typing import Any

import numpy as np

from grpojax.data import messages, pipeline, text
from grpojax.data.pipeline import Split

SIDES = ("chosen", "rejected")  # in the order of a batch's second axis


def read(path: str | Path) -> list[dict[str, Any]]:
  """Returns the rows of a file: question, perhaps history, chosen and rejected.

  Raises ValueError naming the file, the line and what to mend.
  """
  return messages.read_lines(path, "config.preference.path", to_row, '"prompt", "chosen" and "rejected"')


def to_row(line: dict[str, Any]) -> dict[str, str]:
  """Returns the row of a pair.  Raises ValueError for one whose sides are not one answer each, or alike."""
  prompt = [m | {"weight": 0} if m["role"] == "assistant" else m for m in line["prompt"]]
  of_side = {side: messages.to_row([*prompt, *line[side]]) for side in SIDES}
  if not all("demonstration" in row and len(line[side]) == 1 for side, row in of_side.items()):
    raise ValueError("chosen and rejected are one answer of the assistant each")
  answers = {side: row.pop("demonstration") for side, row in of_side.items()}
  if answers["chosen"] == answers["rejected"]:
    raise ValueError("chosen and rejected are the same")
  return of_side["chosen"] | answers


def to_line(record: dict[str, Any], chosen: str, rejected: str) -> dict[str, Any]:
  """Returns the line of a question of RL and two answers to it, as `read` takes it."""
  answer = lambda content: [dict(role="assistant", content=content)]
  return dict(prompt=messages.to_prompt(record), chosen=answer(chosen), rejected=answer(rejected))


def encoded(split: Split, rows: list[dict], tokenizer) -> list[list[np.ndarray]]:
  """Returns the tokens of each row's chosen and rejected answer, EOS included."""
  of_side = (
    text.encode_responses(tokenizer, [row[side] for row in rows], split.split_special_tokens)
    for side in SIDES
  )
  return [list(both) for both in zip(*of_side, strict=True)]


def batch(split: Split, tokenizer, batch_size: int, max_tokens: int, seed: int, step: int) -> dict:
  """Returns batch number `step` of pairs, a pure function of (seed, step).

  The batch is tokens [rows, 2, L + T] int32 (left-padded prompt, then an answer and EOS), mask [rows, 2, T]
  float32, prompt_length and length [rows, 2] int32, and cut: how many answers did not fit in T = max_tokens.
  """
  indices = pipeline.epoch_order(len(split.records), batch_size, seed)[step]
  prompts = pipeline.take(split, indices, tokenizer.pad_token_id)
  answers = encoded(split, prompts.example, tokenizer)
  length = np.array([[min(len(one), max_tokens) for one in both] for both in answers], np.int32)
  tokens = np.full((batch_size, len(SIDES), max_tokens), tokenizer.pad_token_id, np.int32)
  for at in np.ndindex(length.shape):
    tokens[at][: length[at]] = answers[at[0]][at[1]][:max_tokens]
  repeated = np.repeat(prompts.tokens[:, None], len(SIDES), axis=1)
  return dict(
    tokens=np.concatenate([repeated, tokens], axis=-1),
    mask=(np.arange(max_tokens) < length[..., None]).astype(np.float32),
    prompt_length=np.repeat(prompts.length[:, None], len(SIDES), axis=1),
    length=length,
    cut=count_cut(answers, max_tokens),
  )


def count_cut(answers: list[list[np.ndarray]], max_tokens: int) -> int:
  """Returns the number of answers that do not fit in `max_tokens`."""
  return sum(len(one) > max_tokens for both in answers for one in both)
