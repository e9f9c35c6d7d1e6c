"""Text to tokens and back.  Tokens in, tokens out: what was sampled is never encoded again."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from grpojax.data import special_tokens
from grpojax.runtime import storage

EMBEDDED = Path(__file__).parent / "tokenizer"


def load_tokenizer(folder: str | Path = EMBEDDED) -> PreTrainedTokenizerBase:
  """Loads the tokenizer of a local Hugging Face folder; by default the one of the embedded task."""
  if not Path(folder, "tokenizer_config.json").is_file():
    raise ValueError(f"'{folder}' holds no tokenizer_config.json, so it is no tokenizer folder.")
  try:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
  except ValueError as error:
    if "trust_remote_code" not in str(error):
      raise
    raise ValueError(f"The tokenizer of '{folder}' is a program of its own, and none is run.") from error
  if tokenizer.eos_token_id is None:
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(eos_ids(tokenizer, folder)[0])
  if tokenizer.pad_token_id is None:
    tokenizer.pad_token = tokenizer.eos_token  # only fills the shape: lengths are explicit
  return tokenizer


def eos_ids(tokenizer: PreTrainedTokenizerBase, folder: str | Path = EMBEDDED) -> tuple[int, ...]:
  """Returns every token that ends a response: the tokenizer's own and all in generation_config.json.

  Where that file is missing, config.json has them, as for transformers.
  A chat model often has two, and honouring one makes nearly every response look cut by the budget.
  """
  ids = [tokenizer.eos_token_id]
  paths = (Path(folder, name) for name in ("generation_config.json", "config.json"))
  if path := next(filter(Path.is_file, paths), None):
    listed = storage.read_json(path).get("eos_token_id", [])
    ids += listed if isinstance(listed, list) else [listed]
  ids = tuple(sorted({i for i in ids if i is not None}))
  if not ids:
    raise ValueError(f"Neither tokenizer, generation_config.json nor config.json of '{folder}' has an EOS.")
  return ids


def encode_chats(
  tokenizer: PreTrainedTokenizerBase, chats: list[list[dict]], split_special_tokens: bool = True,
  tools: Sequence[dict] = (),
) -> list[np.ndarray]:  # fmt: skip
  """Encodes each list of messages (role, content) in the chat template, up to where the assistant speaks.

  A special token that a message spells is text, unless `split_special_tokens` is False.  `tools` are what the
  template describes, if it can.
  """
  if tokenizer.chat_template is None:
    raise ValueError(
      f"The tokenizer in '{tokenizer.name_or_path}' has no chat template; add one, or set"
      " config.data.chat = False for a model that is to see the text alone."
    )
  fill_in = functools.partial(
    tokenizer.apply_chat_template, add_generation_prompt=True, tools=list(tools) or None
  )
  try:
    tokens = fill_in(chats, return_dict=False)
    for i, chat in enumerate(chats):
      contents = [message["content"] for message in chat]
      if split_special_tokens and special_tokens.spells_any(tokenizer, contents):
        covered, hidden = special_tokens.hide(tokenizer, chat)
        tokens[i] = special_tokens.encode(tokenizer, fill_in(covered, tokenize=False), hidden)["input_ids"]
  except TemplateError as error:
    raise ValueError(
      f"The chat template of '{tokenizer.name_or_path}' refuses a prompt ({error}); some have no place"
      " for a system prompt: set config.data.system = ''."
    ) from error
  return [np.asarray(row, np.int32) for row in tokens]


def shows_tools(tokenizer: PreTrainedTokenizerBase, tools: Sequence[dict]) -> bool:
  """Returns True if the chat template has words for `tools`."""
  if tokenizer.chat_template is None:
    return False
  fill_in = functools.partial(
    tokenizer.apply_chat_template, [dict(role="user", content="x")], tokenize=False
  )
  try:
    return fill_in(tools=list(tools)) != fill_in()
  except TemplateError:
    return False


def encode_texts(
  tokenizer: PreTrainedTokenizerBase, texts: list[str], split_special_tokens: bool = True
) -> list[np.ndarray]:
  """Encodes each text as it is, for a model without turns; with a BOS where the tokenizer has one."""
  rows = tokenizer(texts, split_special_tokens=split_special_tokens)["input_ids"]
  return [np.asarray(row, np.int32) for row in rows]


def encode_responses(
  tokenizer: PreTrainedTokenizerBase, texts: list[str], split_special_tokens: bool = True
) -> list[np.ndarray]:
  """Encodes each text as the assistant would sample it, with the EOS that closes its turn."""
  rows = tokenizer(texts, add_special_tokens=False, split_special_tokens=split_special_tokens)["input_ids"]
  return [np.asarray([*row, tokenizer.eos_token_id], np.int32) for row in rows]


def encode(tokenizer: PreTrainedTokenizerBase, words: str) -> tuple[int, ...]:
  """Encodes a text as it stands inside a response; special tokens that it spells are those."""
  return tuple(tokenizer(words, add_special_tokens=False)["input_ids"])


def pieces(tokenizer: PreTrainedTokenizerBase, tokens: np.ndarray) -> list[str]:
  """Returns the text of each token [T], special ones by their names; � stands for a part of a character.

  As it is behind another token, where some tokenizers have a space that they leave out in front.
  """
  (*_, before) = tokenizer("a", add_special_tokens=False)["input_ids"]
  start = tokenizer.decode([before])
  text = {token: tokenizer.decode([before, token]).removeprefix(start) for token in set(tokens.tolist())}
  return [text[token] for token in tokens.tolist()]


def decode(tokenizer: PreTrainedTokenizerBase, tokens, length) -> str | list:
  """Returns the text of the first `length` tokens, without special tokens.

  tokens [..., T] and length [...] int; the result is nested lists of str in the shape of `length`.
  """
  tokens, length = np.asarray(tokens), np.asarray(length)
  if length.ndim == 0:
    return tokenizer.decode(tokens[: int(length)], skip_special_tokens=True)
  return [decode(tokenizer, *row) for row in zip(tokens, length, strict=True)]


def decode_action(tokenizer: PreTrainedTokenizerBase, tokens: list[int], eos_ids: tuple[int, ...]) -> str:
  """Returns the text of an action, special tokens by their names, but for the EOS that ends it.

  Some chat templates mark a call of a tool by special tokens.
  """
  return tokenizer.decode(tokens[:-1] if tokens and tokens[-1] in eos_ids else tokens)
