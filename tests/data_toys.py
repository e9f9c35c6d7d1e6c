"""What the tests of local data share: files in a public layout, and a tokenizer for any text."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHATML = (
  r"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
  r"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tokenizer():
  """One token a byte, with the roles that chat models have."""
  alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
  backend = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = decoders.ByteLevel()
  special = dict(eos_token="<|im_end|>", pad_token="<|pad|>")
  made = PreTrainedTokenizerFast(
    tokenizer_object=backend, additional_special_tokens=["<|im_start|>"], **special
  )
  made.chat_template = CHATML
  return made


def write(path, rows):
  """The rows as the file's suffix says; a row that is bytes goes into a .jsonl as it is."""
  if path.suffix == ".parquet":
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
  elif path.suffix == ".json":
    path.write_text(json.dumps(rows))
  else:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
  return path
