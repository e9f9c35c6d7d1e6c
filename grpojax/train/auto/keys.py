"""The keys that a config may leave open, none of which changes a number."""

from ml_collections import ConfigDict

from grpojax.config.schema import flatten
from grpojax.runtime import sharding

OPEN = {f"mesh.{axis}": 0 for axis in sharding.AXES} | {
  "mesh.rules.embed": "auto",
  "mesh.sampler.tensor": -1,
  "mesh.sampler.expert": 0,
  "rollout.slots": -1,
  "microbatches": 0,
  "logprob_chunk": 0,
  "remat": "auto",
}
NONE_FITS = 1e9  # seconds of a step that stand for a phase that does not fit: more than any takes


def open_keys(config: ConfigDict) -> list[str]:
  """Returns the keys that are left open."""
  values = flatten(config.to_dict())
  return [key for key, value in OPEN.items() if values[key] == value]


def describe(asked: ConfigDict, closed: ConfigDict) -> str:
  """Returns "key=value, ..." of what was chosen; "" where nothing was open."""
  values = flatten(closed.to_dict())
  return ", ".join(f"{key}={values[key]}" for key in open_keys(asked))
