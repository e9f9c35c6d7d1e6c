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


def open_keys(config: ConfigDict) -> list[str]:
  """Returns the keys that are left open."""
  values = flatten(config.to_dict())
  return [key for key, value in OPEN.items() if values[key] == value]


def changed(config: ConfigDict, values: dict) -> ConfigDict:
  """Returns a copy of the config with other values of some dotted keys."""
  config = config.copy_and_resolve_references()
  config.update_from_flattened_dict(values)
  return config


def describe(asked: ConfigDict, closed: ConfigDict) -> str:
  """Returns "key=value, ..." of what was chosen; "" where nothing was open."""
  values = flatten(closed.to_dict())
  return ", ".join(f"{key}={values[key]}" for key in open_keys(asked))
