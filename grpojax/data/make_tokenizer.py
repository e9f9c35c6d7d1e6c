"""Writes grpojax/data/tokenizer: one token per byte, and the four marks of a conversation.

    python -m grpojax.data.make_tokenizer grpojax/data/tokenizer

A byte-level BPE without a single merge: the id of a byte is its value, any text survives the round
trip, and a character of an arithmetic problem is one token.
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

USER, ASSISTANT, END, PAD = SPECIAL = ("<|user|>", "<|assistant|>", "<|end|>", "<|pad|>")

_CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == "user" -%}
<|user|>{{ message.content }}
{%- elif message.role == "assistant" -%}
<|assistant|>{{ message.content }}<|end|>
{%- else -%}
{{ raise_exception("Roles are user and assistant, not " + message.role) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
"""


def main(folder: Path):
  folder.mkdir(parents=True, exist_ok=True)
  tokenizer = _tokenizer()
  config = dict(
    tokenizer_class="PreTrainedTokenizerFast",
    eos_token=END,
    pad_token=PAD,
    additional_special_tokens=[USER, ASSISTANT],
    clean_up_tokenization_spaces=False,
    model_max_length=2048,
  )
  generation = dict(
    eos_token_id=[tokenizer.token_to_id(END)], pad_token_id=tokenizer.token_to_id(PAD)
  )
  (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n")
  (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
  (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
  (folder / "chat_template.jinja").write_text(_CHAT_TEMPLATE)


def _tokenizer() -> Tokenizer:
  tokenizer = Tokenizer(models.BPE(vocab=_byte_vocabulary(), merges=[]))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
  return tokenizer


def _byte_vocabulary() -> dict[str, int]:
  """Returns GPT-2's printable stand-in for every byte -> the byte."""
  printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
  others = [byte for byte in range(256) if byte not in printable]
  stand_in = {byte: chr(byte) for byte in printable}
  stand_in |= {byte: chr(256 + i) for i, byte in enumerate(others)}
  return {stand_in[byte]: byte for byte in range(256)}


if __name__ == "__main__":
  main(Path(sys.argv[1]))
