"""Special tokens that a text spells: encoded as text, so that no question ends its own turn.

A chat template is text, and its own special tokens must stay what they are.  So what a message spells is
hidden behind a private character before the template is filled in, and spelt out again behind it, between the
template's own special tokens.  A text that spells none goes the tokenizer's usual way.
"""

import functools
import re

from transformers import PreTrainedTokenizerBase

_PRIVATE = (0xE000, 0xF0000, 0x100000)  # where the private areas of Unicode begin


@functools.lru_cache(maxsize=8)
def spelling(tokenizer: PreTrainedTokenizerBase) -> re.Pattern:
  """Returns a pattern of every spelling of a special token, the longest first."""
  added = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
  found = sorted({*tokenizer.all_special_tokens, *added}, key=lambda token: (-len(token), token))
  return re.compile(f"({'|'.join(map(re.escape, found))})" if found else "(?!)()")


def spells_any(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> bool:
  """Returns True if one of the texts spells a special token."""
  return any(map(spelling(tokenizer).search, texts))


def hide(tokenizer: PreTrainedTokenizerBase, chat: list[dict]) -> tuple[list[dict], dict[str, str]]:
  """Returns (the messages with a private character for what they spell, private character -> spelling)."""
  texts, pattern = [message["content"] for message in chat], spelling(tokenizer)
  names = sorted({found for text in texts for found in pattern.findall(text)})
  taken = set("".join(texts))
  begin = next(n for n in _PRIVATE if not taken & {chr(n + i) for i in range(len(names))})
  hidden = {name: chr(begin + i) for i, name in enumerate(names)}
  cover = lambda text: pattern.sub(lambda match: hidden[match.group()], text)
  return [message | {"content": cover(message["content"])} for message in chat], {
    character: name for name, character in hidden.items()
  }


def encode(tokenizer: PreTrainedTokenizerBase, filled_in: str, hidden: dict[str, str]) -> dict:
  """Encodes a filled-in template: input_ids and offset_mapping, and the `text` that the offsets are of.

  `hidden` is what `hide` gave.
  """
  kinds = {str(token): token for token in tokenizer.added_tokens_decoder.values()}
  show = lambda text: "".join(hidden.get(character, character) for character in text)
  ids, offsets, text = [], [], ""
  pieces = spelling(tokenizer).split(filled_in)  # text, special token, text, ...
  for i, piece in enumerate(pieces):
    if i % 2:
      ids.append(tokenizer.convert_tokens_to_ids(piece))
      offsets.append((len(text), len(text) + len(piece)))
      text += piece
      continue
    before, behind = kinds.get(pieces[i - 1]) if i else None, kinds.get("".join(pieces[i + 1 : i + 2]))
    piece = show(piece)
    end = len(piece.rstrip()) if behind and behind.lstrip else len(piece)  # white space that a token takes
    start = len(piece) - len(piece.lstrip()) if before and before.rstrip else 0
    found = tokenizer(
      piece[start:end], add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True
    )
    ids += found["input_ids"]
    offsets += [(len(text) + start + a, len(text) + start + b) for a, b in found["offset_mapping"]]
    text += piece
  return dict(input_ids=ids, offset_mapping=offsets, text=text)
