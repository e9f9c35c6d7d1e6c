"""The policy's model: its folder, its architecture with adapters, the tokens that end a response.

Nothing here runs on the device.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models
from grpojax.data import pipeline, text
from grpojax.models import gguf, kernels, lora
from grpojax.rollout import sampler, turns
from grpojax.runtime import fetch, storage


class Policy(NamedTuple):
  """A named model of a run.  The parameters that training changes are in RunState, by the same name."""

  model: models.Model
  tokenizer: Any
  logp: Callable  # log-probs of a whole optimiser batch: update.make_old_logp's program


def model_folder(config: ConfigDict) -> Path:
  """Returns the tokenizer's folder: the model's own, fetched or converted first, or the embedded one."""
  if "path" not in config.model:
    return text.EMBEDDED
  return folder(config.model.path, "config.model.path", config.cache_dir)


def folder(name: str, key: str, cache_dir: str) -> Path:
  """Returns a model's folder: fetched from the hub, or converted from GGUF, where config.<key> says so."""
  path = fetch.fetch(gguf.find(name, key), key, cache_dir)
  return gguf.to_folder(path, cache_dir) if path.suffix == ".gguf" else path


def build_model(config: ConfigDict, tokenizer, mesh: Mesh | None = None) -> models.Model:
  """Returns the architecture of the folder config.model.path, or of the small model in config.model."""
  c, rules = config.model, config.mesh.rules.to_dict()
  if "path" in c:
    spec = models.from_folder(model_folder(config), c.dtype, c.param_dtype, c.head_dtype)
    model = models.from_spec(spec, mesh, rules)
  else:
    model = models.build(c, len(tokenizer), mesh, rules)
  # Tokenizer classes add special tokens of their own; those that are never used need no embedding.
  used = max(tokenizer.vocab_size, tokenizer.pad_token_id + 1, *(i + 1 for i in eos_ids(config, tokenizer)))
  if model.spec.vocab_size < used:
    raise ValueError(
      f"config.model.path = '{model_folder(config)}': the tokenizer has {used} tokens, and the model knows"
      f" {model.spec.vocab_size}; they do not belong together."
    )
  for key, off in ("routing_replay", ""), ("load_balance", 0.0):
    if config[key] != off and not model.spec.moe:
      raise ValueError(f"config.{key} = {config[key]!r} is for mixtures, and this is none; set {off!r}.")
  attention = kernels.choose(config.attention, model.spec, mesh)[0] if mesh else "reference"
  return with_adapters(config, model._replace(remat=config.remat, attention=attention))


def with_adapters(config: ConfigDict, model: models.Model) -> models.Model:
  """Returns the model, with the adapters of `config.lora` if it asks for some."""
  return model._replace(lora=lora.build(config.lora, model.spec, model.axes, model.shapes))


def eos_ids(config: ConfigDict, tokenizer) -> tuple[int, ...]:
  """Returns every token that ends a response of the policy."""
  return text.eos_ids(tokenizer, model_folder(config))


def check_prompts(model: models.Model, *splits: pipeline.Split) -> None:
  """Raises ValueError if a prompt has a token that the model does not know."""
  for split in splits:
    row = int(np.argmax([prompt.max() for prompt in split.prompts]))
    token = int(split.prompts[row].max())
    if token >= model.spec.vocab_size:
      raise ValueError(
        f"Row {split.ids[row]} of split '{split.name}' has token {token}, and config.model knows"
        f" {model.spec.vocab_size}; its tokenizer is another model's."
      )


def check_length(config: ConfigDict) -> None:
  """Raises ValueError where a sequence could be longer than the model of a folder is made for."""
  if "path" not in config.model:
    return
  most = storage.read_json(model_folder(config) / "config.json").get("max_position_embeddings")
  prompt = config.data.prompt_budget
  for key, spec in ("rollout", sampler.build.rollout_spec), ("eval", sampler.build.eval_spec):
    response = turns.build.context_tokens(config, spec(config))
    whole = response == config[key].max_tokens
    what = f"config.{key}.max_tokens" if whole else "a context by config.env.memory"
    if most and prompt + response > most:
      raise ValueError(
        f"config.data.prompt_budget = {prompt} and {what} = {response} are"
        f" {prompt + response} tokens, and '{config.model.path}' is made for {most}"
        " (max_position_embeddings); lower one of them."
      )
