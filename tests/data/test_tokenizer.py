"""The embedded tokenizer: any text survives, and the folder is what its script writes."""

import filecmp
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from grpojax.data import make_tokenizer, text

TOKENIZER = text.load_tokenizer()
USER, ASSISTANT, END, PAD = 256, 257, 258, 259


@settings(max_examples=30)
@given(st.text())
def test_a_token_is_a_byte_and_any_text_survives(words):
  assume(not any(mark in words for mark in make_tokenizer.SPECIAL))
  ids = TOKENIZER(words, add_special_tokens=False)["input_ids"]
  assert ids == list(words.encode())
  assert text.decode(TOKENIZER, ids, len(ids)) == words


def test_the_marks_are_single_tokens_behind_the_bytes():
  assert len(TOKENIZER) == 260
  ids = TOKENIZER("<|user|><|assistant|><|end|><|pad|>", add_special_tokens=False)["input_ids"]
  assert ids == [USER, ASSISTANT, END, PAD]
  assert (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id) == (END, PAD)


def test_chat_template_closes_the_turns_of_the_assistant_only():
  chat = [
    {"role": "user", "content": "1+1=?\n"},
    {"role": "assistant", "content": "1+1=2\n#2"},
    {"role": "user", "content": "Sure?"},
  ]
  rendered = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
  expected = "<|user|>1+1=?\n<|assistant|>1+1=2\n#2<|end|><|user|>Sure?<|assistant|>"
  assert rendered == expected
  with pytest.raises(Exception, match="not system"):
    TOKENIZER.apply_chat_template([{"role": "system", "content": ""}], tokenize=False)


def test_prompt_then_response_is_the_whole_conversation():
  question, answer = "Ann has 3 figs\nor 4?", "3+4=7\n#7"
  (prompt,) = text.encode_chats(TOKENIZER, [[dict(role="user", content=question)]])
  (response,) = text.encode_responses(TOKENIZER, [answer])
  chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
  whole = TOKENIZER.apply_chat_template(chat, return_dict=False)
  assert [*prompt, *response] == whole
  assert prompt.dtype == response.dtype == np.int32
  assert list(prompt[[0, -1]]) == [USER, ASSISTANT] and response[-1] == END


def test_decode_reads_length_tokens_and_skips_special_ones():
  tokens = np.array([[[65, 66, END, 67], [68, PAD, 69, 70]]])  # [P=1, G=2, T=4]
  assert text.decode(TOKENIZER, tokens, np.array([[3, 1]])) == [["AB", "D"]]
  assert text.decode(TOKENIZER, tokens[0, 0], 4) == "ABC"
  assert text.decode(TOKENIZER, tokens[0, 0], 0) == ""


def test_decode_of_half_a_character_is_no_error():
  half = "é".encode()[:1]
  assert text.decode(TOKENIZER, list(half), 1) == "\ufffd"


def test_rebuilding_writes_the_same_folder(tmp_path):
  make_tokenizer.main(tmp_path)
  names = sorted(path.name for path in tmp_path.iterdir())
  assert names == sorted(path.name for path in text.EMBEDDED.iterdir())
  _, different, errors = filecmp.cmpfiles(tmp_path, text.EMBEDDED, names, shallow=False)
  assert not different and not errors


def _with_generation_config(folder, content):
  make_tokenizer.main(folder)
  path = folder / "generation_config.json"
  path.unlink() if content is None else path.write_text(json.dumps(content))
  return text.eos_ids(AutoTokenizer.from_pretrained(folder), folder)


def test_every_eos_is_honoured(tmp_path):
  assert json.loads((text.EMBEDDED / "generation_config.json").read_text())["eos_token_id"] == [END]
  assert text.eos_ids(TOKENIZER) == (END,)
  assert _with_generation_config(tmp_path, {"eos_token_id": [10, END, 7]}) == (7, 10, END)
  assert _with_generation_config(tmp_path, {"eos_token_id": 10}) == (10, END)
  assert _with_generation_config(tmp_path, {"eos_token_id": None}) == (END,)
  assert _with_generation_config(tmp_path, None) == (END,)


def test_without_a_generation_config_the_models_own_counts(tmp_path):
  (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [10, 7]}))
  assert text.eos_ids(TOKENIZER, tmp_path) == (7, 10, END)


def test_a_tokenizer_without_eos_has_the_models(tmp_path):
  make_tokenizer.main(tmp_path)
  settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
  del settings["eos_token"], settings["pad_token"]
  (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
  assert text.load_tokenizer(tmp_path).pad_token_id == END  # of generation_config.json
  (tmp_path / "generation_config.json").unlink()
  with pytest.raises(ValueError, match=r"nor config.json of .* has an EOS"):
    text.load_tokenizer(tmp_path)


def test_folders_that_will_not_do_are_refused_with_a_sentence(tmp_path):
  with pytest.raises(ValueError, match="no tokenizer folder"):
    text.load_tokenizer(tmp_path)
  make_tokenizer.main(tmp_path)
  (tmp_path / "chat_template.jinja").unlink()
  with pytest.raises(ValueError, match="no chat template"):
    text.encode_chats(text.load_tokenizer(tmp_path), [[dict(role="user", content="1+1=?")]])
