"""What stands between two actions of a policy: an observation in the chat template, encoded once.

The template is asked for a chat of two turns, and what it puts behind the first answer is kept: what closes
that answer, the observation as a message of the user's or of a tool, and what opens the next one.  Nothing
that was sampled is encoded again, so a template that takes old reasoning out of the history does not: the row
keeps what was sampled.  Where a new context begins with older actions, their reasoning is left out as the
template does.
"""

import functools
import itertools

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from grpojax.data import special_tokens

CUT = " [... cut]"  # ends an observation that was too long
_THOUGHT = "</think>"  # ends reasoning, as Qwen3 and DeepSeek-R1 write it
_ANSWER = "\ue0ff"  # a private character in place of the action, to be found again


def check(tokenizer: PreTrainedTokenizerBase) -> None:
  """Raises ValueError where the chat template has no second turn."""
  if tokenizer.chat_template is None:
    raise ValueError(
      f"config.env.name: the tokenizer in '{tokenizer.name_or_path}' has no chat template, which says what "
      "stands between two turns; add one."
    )
  try:
    found = between(tokenizer, "x", newest=-1)[0]
  except TemplateError as error:
    raise ValueError(
      f"config.env.name: the chat template of '{tokenizer.name_or_path}' refuses a second turn ({error})."
    ) from error
  if not found:
    raise ValueError(
      f"config.env.name: the chat template of '{tokenizer.name_or_path}' does not show an answer that is "
      "followed by another message."
    )


def between(
  tokenizer: PreTrainedTokenizerBase, observation: str, newest: int, role: str = "user"
) -> tuple[list[int], int]:
  """Returns the tokens from the end of one action to the beginning of the next, and how many close the first.

  `role` is whose message the observation is, "user" or "tool".  `newest` is the action's last token: if it is
  the special token with which the template closes an answer, that is not repeated; else, as where a budget
  cut the action, the closing token comes from here.  A special token that the observation spells is text.
  """
  chat = [dict(role="user", content="x"), dict(role="assistant", content=_ANSWER)]
  covered, hidden = special_tokens.hide(tokenizer, [_message(tokenizer, observation, role)])
  filled = tokenizer.apply_chat_template([*chat, *covered], add_generation_prompt=True, tokenize=False)
  ids = special_tokens.encode(tokenizer, filled.partition(_ANSWER)[2], hidden)["input_ids"]
  first = tokenizer.added_tokens_decoder.get(ids[0]) if ids else None
  closes = first is not None and first.special
  if closes and ids[0] == newest:
    return ids[1:], 0
  return ids, int(closes)


def _message(tokenizer: PreTrainedTokenizerBase, observation: str, role: str) -> dict[str, str]:
  """Returns the observation as a message; where the template has no tools, as the user's, marked as Hermes's.

  https://github.com/NousResearch/Hermes-Function-Calling
  """
  if role == "tool" and not _has_tools(tokenizer):
    return dict(role="user", content=f"<tool_response>\n{observation}\n</tool_response>")
  return dict(role=role, content=observation)


def _has_tools(tokenizer: PreTrainedTokenizerBase) -> bool:
  """Returns True if the chat template shows a tool's message behind an answer."""
  chat = [("user", "x"), ("assistant", _ANSWER), ("tool", "said")]
  try:
    filled = tokenizer.apply_chat_template([dict(role=r, content=c) for r, c in chat], tokenize=False)
  except TemplateError:
    return False
  return "said" in filled.partition(_ANSWER)[2]


def in_history(tokenizer: PreTrainedTokenizerBase, action: list[int]) -> list[int]:
  """Returns the tokens of an action that the template shows once another message has followed.

  All of them, or those behind its reasoning and the empty lines that follow, where the template takes it out.
  """
  end = tokenizer.encode(_THOUGHT, add_special_tokens=False)
  last = max((i for i in range(len(action)) if action[i : i + len(end)] == end), default=None)
  if last is None or not _hides_reasoning(tokenizer):
    return action
  kept = action[last + len(end) :]
  blank = lambda token: not tokenizer.decode([token]).strip("\n")
  return list(itertools.dropwhile(blank, kept))


def _hides_reasoning(tokenizer: PreTrainedTokenizerBase) -> bool:
  """Returns True if the chat template takes reasoning out of an answer that another message follows."""
  answer = f"<think>{_ANSWER}{_THOUGHT}x"
  asked = dict(role="user", content="x")
  chat = [asked, dict(role="assistant", content=answer), asked]
  return _ANSWER not in tokenizer.apply_chat_template(chat, tokenize=False)


def episode(
  tokenizer: PreTrainedTokenizerBase, game: list[list[str]], max_tokens: int, observation_tokens: int,
  memory: int = 0,
) -> tuple[list[int], list[bool], list[int]]:  # fmt: skip
  """Returns a game as the row that a policy would have sampled: tokens behind the prompt, which of them it
  chose, and their contexts.

  `game` is [[action, observation], ...], of which nobody reads the last observation.  The row ends before an
  observation that leaves no room for an action, and at `max_tokens`.  With a `memory` every turn begins a new
  context, with the last `memory` turns.
  """
  tokens, chosen, context, played = [], [], [], []
  for turn, (action, observation) in enumerate(game):
    own = tokenizer(action, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    own.append(tokenizer.eos_token_id)
    tokens += own
    chosen += [True] * len(own)
    context += [turn if memory else 0] * len(own)
    said, _ = fitted(tokenizer, observation, observation_tokens)
    seen, _ = between(tokenizer, said, tokens[-1])
    if memory:
      played.append(in_history(tokenizer, own) + seen)
      seen = [*itertools.chain(*played[-memory:])]
    if turn + 1 == len(game) or len(tokens) + len(seen) >= max_tokens:
      break
    tokens += seen
    chosen += [False] * len(seen)
    context += [turn + 1 if memory else 0] * len(seen)
  return tokens[:max_tokens], chosen[:max_tokens], context[:max_tokens]


def fitted(tokenizer: PreTrainedTokenizerBase, observation: str, most: int) -> tuple[str, bool]:
  """Returns the observation in at most so many tokens of its own, and whether it was cut, visibly."""
  encode = functools.partial(tokenizer, add_special_tokens=False, split_special_tokens=True)
  found = encode(observation, return_offsets_mapping=True)
  if len(found["input_ids"]) <= most:
    return observation, False
  room = most - len(encode(CUT)["input_ids"])
  while room > 0:
    kept = observation[: found["offset_mapping"][room - 1][1]] + CUT
    if len(encode(kept)["input_ids"]) <= most:
      return kept, True
    room -= 1
  return "", True
