"""The model and the sizes that the benchmarks of a processor share: those of performance.md's first table."""

from ml_collections import ConfigDict

from benchmarks.peers.workload import GROUP as G
from benchmarks.peers.workload import MODEL
from benchmarks.peers.workload import NEW as T
from benchmarks.peers.workload import PROMPT as L
from benchmarks.peers.workload import PROMPTS as P
from benchmarks.peers.workload import VOCAB as V
from grpojax import models
from grpojax.recipes import base

SIZES = (
  "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
)  # fmt: skip
__all__ = ["G", "L", "P", "T", "V", "architecture", "config", "model"]


def architecture() -> ConfigDict:
  """Returns the config of grpojax's own model, in float32."""
  c = base.get_config().model
  c.update({name: MODEL[name] for name in SIZES})
  c.head_dim = MODEL["hidden_size"] // MODEL["num_attention_heads"]
  return c


def model() -> models.Model:
  """Builds it, with the vocabulary of all systems."""
  return models.build(architecture(), V)


def config(rows: str, microbatches: int) -> ConfigDict:
  """Returns the config of one update of all sequences, in these rows."""
  c = base.get_config()
  c.data.prompt_budget = L
  c.rollout.update(prompts=P, group_size=G, max_tokens=T)
  c.update(updates_per_rollout=1, rows=rows, microbatches=microbatches, logprob_chunk=T)
  return c
