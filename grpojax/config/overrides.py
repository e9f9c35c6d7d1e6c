"""Single keys of a recipe, set by flags or by keyword.

A slot is a dict of `fn` and that function's knobs.  Who names another function means it with its own
defaults: the recipe's knobs belong to the function before, and are left out, which is said.  What a slot
keeps beside the function stays: `beta` of a penalty, `weight` and `only` of a reward, `coef` of a component.
The beta of a preference is its function's own.
"""

from collections.abc import Iterable

from ml_collections import ConfigDict

from grpojax.objective.build import LISTS, SLOTS

KEPT = ("fn", "beta", "coef", "stream", "weight", "only", "renormalize", "batch_normalize")  # of any function
ENTRIES = ("reward", *(f"objective.{name}" for name in LISTS))  # sections of any name -> a slot


def make_room(config: ConfigDict, keys: Iterable[str]) -> None:
  """Adds the sections that the keys lie in and that `config` has not.

  Also where no recipe has such a section: check_keys refuses it, with those that there are.  Raises
  ValueError for a key below a value.
  """
  for key in keys:
    node, at = config, "config"
    for name in key.split(".")[:-1]:
      if not isinstance(node, ConfigDict):
        break
      if name not in node:
        node[name] = ConfigDict()
      node, at = node[name], f"{at}.{name}"
    if not isinstance(node, ConfigDict):
      raise ValueError(f"config.{key}: {at} = {node!r} is a value and has no keys.")


def apply(config: ConfigDict, changes: dict) -> list[str]:
  """Sets keys, {"rollout.prompts": 8}, in place; returns what to say of it.

  Any key and any kind of value: check_keys refuses those that cannot be.
  """
  recipe = config.copy_and_resolve_references()
  with config.unlocked(), config.ignore_type():
    make_room(config, changes)
    for key, value in changes.items():
      *path, leaf = key.split(".")
      node = config
      for name in path:
        node = node[name]
      node[leaf] = value
  return drop_knobs(config, recipe, changes)


def changed(config: ConfigDict, changes: dict) -> ConfigDict:
  """Returns a copy with other values of keys that there are: {"rollout.prompts": 8}."""
  config = config.copy_and_resolve_references()
  config.update_from_flattened_dict(changes)
  return config


def drop_knobs(config: ConfigDict, recipe: ConfigDict, changed: Iterable[str]) -> list[str]:
  """Leaves out, in place, the recipe's knobs of functions that it no longer has; says so, a sentence a slot.

  `recipe` is the config before, `changed` are the keys that were set since.
  """
  changed, said = set(changed), []
  for slot in sorted(key.removesuffix(".fn") for key in changed if key.endswith(".fn")):
    before, now = _section(recipe, slot), _section(config, slot)
    if not _is_slot(slot) or slot in changed or before.get("fn") in (None, now.fn):
      continue
    kept = [key for key in KEPT if key != "beta" or "preference" not in slot]
    gone = [knob for knob in before if knob not in kept and f"{slot}.{knob}" not in changed and knob in now]
    with config.unlocked():
      for knob in gone:
        del now[knob]
    if gone:
      said.append(f"config.{slot}.fn = '{now.fn}' leaves out the recipe's {', '.join(gone)} of {before.fn}")
  return said


def _is_slot(key: str) -> bool:
  section, _, name = key.rpartition(".")
  return section in ENTRIES or (section == "objective" and name in SLOTS) or key == "preference.loss"


def _section(config: ConfigDict, key: str) -> ConfigDict:
  """Returns the section of a dotted key; an empty one where there is none."""
  for name in key.split("."):
    config = config.get(name, ConfigDict()) if isinstance(config, ConfigDict) else ConfigDict()
  return config
