"""The model and the sizes that the benchmarks of a processor share: those of performance.md's first table."""

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
__all__ = ["G", "L", "P", "T", "V", "model"]


def model() -> models.Model:
  """Builds grpojax's own model, in float32."""
  c = base.get_config().model
  c.update({name: MODEL[name] for name in SIZES})
  c.head_dim = MODEL["hidden_size"] // MODEL["num_attention_heads"]
  return models.build(c, V)
