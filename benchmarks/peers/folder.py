"""Writes the files that every system reads: a model of random weights, its tokenizer, and prompts."""

import json
import sys
from pathlib import Path

import jax
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from benchmarks.peers import workload as w
from grpojax import models
from grpojax.tools import export


def write(path: Path) -> None:
  """Writes path/model and path/prompts.jsonl."""
  letters = sorted(pre_tokenizers.ByteLevel.alphabet())
  vocabulary = [*letters, *(f"<{i}>" for i in range(len(letters), w.VOCAB))]
  backend = Tokenizer(BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=[]))
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = decoders.ByteLevel()
  pad, eos = vocabulary[-2:]
  tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=backend, pad_token=pad, eos_token=eos, padding_side="left"
  )
  bare = path / "bare"
  tokenizer.save_pretrained(bare)
  (bare / "config.json").write_text(json.dumps(w.MODEL))
  model = models.from_spec(models.from_folder(bare))
  params = model.init(jax.random.key(0))
  export.write_folder(params, model.spec, bare, path / "model", 10**9, "float32")
  rows = [json.dumps(dict(prompt=text, answer=str(i))) for i, text in enumerate(w.questions(512))]
  (path / "prompts.jsonl").write_text("\n".join(rows))


if __name__ == "__main__":
  write(Path(sys.argv[1]))
