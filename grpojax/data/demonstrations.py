"""Answers that a policy is to imitate, of the task or of a file of conversations, as batches of tokens."""

import json

import numpy as np

from grpojax.data import dialogue, pipeline, text
from grpojax.data.pipeline import Split

REMEDIES = {  # section of the config that sets the training -> what to do where nothing can be imitated
  "cold_start": "set config.cold_start.steps = 0",
  "sft": "name a file of conversations by config.sft.path",
}


def check(split: Split, batch_size: int, section: str = "cold_start") -> None:
  """Raises ValueError where the split has no demonstrations, or too few for a batch of config.<section>."""
  if batch_size > len(split.records):
    raise ValueError(
      f"config.{section}.batch_size = {batch_size} is more than the {len(split.records)} rows of"
      f" split '{split.name}'; lower it."
    )
  if "demonstration" not in split.records[0] and not split.records[0].get("episode"):
    raise ValueError(f"Split '{split.name}' has no demonstrations to imitate; {REMEDIES[section]}.")


def batch(
  split: Split, tokenizer, batch_size: int, max_tokens: int, seed: int, step: int,
  observation_tokens: int = 0, memory: int = 0,
):  # fmt: skip
  """Returns batch number `step` for supervised fine-tuning, a pure function of (seed, step).

  The batch is tokens [rows, L + T] int32 (left-padded prompt, then demonstration and EOS), mask
  [rows, T] float32, context [rows, T] int32, prompt_length and length [rows] int32, and cut: how many
  responses did not fit in T = max_tokens.  Those end at T without an EOS, as running into the budget does.
  A row with an `episode`, JSON [[action, observation], ...], shows a game of many turns, of which the actions
  are in the mask; with a `memory` it has a context for every turn.
  """
  eos = tokenizer.eos_token_id
  indices = pipeline.epoch_order(len(split.records), batch_size, seed)[step]
  prompts = pipeline.take(split, indices, tokenizer.pad_token_id)
  shown = responses_of(split, prompts.example, tokenizer, max_tokens, observation_tokens, memory)
  responses, chosen, contexts = shown
  tokens = np.full((batch_size, max_tokens), tokenizer.pad_token_id, np.int32)
  mask, context = np.zeros((batch_size, max_tokens), np.float32), np.zeros((batch_size, max_tokens), np.int32)
  length = np.array([min(len(response), max_tokens) for response in responses], np.int32)
  for i, n in enumerate(length):
    tokens[i, :n], mask[i, :n], context[i, :n] = responses[i][:n], chosen[i][:n], contexts[i][:n]
  return dict(
    tokens=np.concatenate([prompts.tokens, tokens], axis=1),
    mask=mask,
    context=context,
    prompt_length=prompts.length,
    length=length,
    cut=count_cut(prompts.example, responses, chosen, max_tokens, eos),
  )


def responses_of(
  split: Split, rows: list[dict], tokenizer, max_tokens: int, observation_tokens: int, memory: int = 0
) -> tuple:
  """Returns each row's tokens of its demonstration or episode, which of them are learned, their contexts."""
  if rows[0].get("episode"):
    games = [json.loads(row["episode"]) for row in rows]
    found = [dialogue.episode(tokenizer, game, max_tokens, observation_tokens, memory) for game in games]
    return tuple(zip(*found, strict=True))
  shown = [row["demonstration"] for row in rows]
  responses = text.encode_responses(tokenizer, shown, split.split_special_tokens)
  return responses, *([[value] * len(response) for response in responses] for value in (True, 0))


def count_cut(rows: list[dict], responses, chosen, max_tokens: int, eos: int) -> int:
  """Returns the number of rows that did not fit in `max_tokens`, of what `responses_of` gave for them."""
  if not rows[0].get("episode"):
    return sum(len(response) > max_tokens for response in responses)
  answers = [int((np.diff([0, *on]) == 1).sum()) for on in chosen]  # each a run of tokens that are learned
  games = [len(json.loads(row["episode"])) for row in rows]
  whole = zip(answers, games, responses, strict=True)
  return sum(shown < game or response[-1] != eos for shown, game, response in whole)
