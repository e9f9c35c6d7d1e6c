"""The table of config keys against configs/base.py; and each of its rows refuses what it does not allow."""

import math

import pytest
from ml_collections import ConfigDict

from grpojax.config import check_keys, schema, workdir
from grpojax.recipes import base, games

SCALES = ("mini", "local")  # between them they have every key
CONFIGS = {scale: base.get_config(scale) for scale in SCALES}
DEFAULTS = {scale: schema.flatten(config.to_dict()) for scale, config in CONFIGS.items()}


def scale_of(key: str) -> str:
  """A scale that has the key."""
  return next((scale for scale in SCALES if key in DEFAULTS[scale]), SCALES[0])


def with_value(key: str, value) -> ConfigDict:
  """The default config with any value at one key."""
  config = CONFIGS[scale_of(key)].copy_and_resolve_references()
  *path, leaf = key.split(".")
  node = config
  for name in path:
    node = node[name]
  with config.unlocked(), config.ignore_type():
    node[leaf] = value
  return config


def refusal(key: str, value) -> str:
  """The sentence that a value of a key ends in."""
  with pytest.raises(ValueError, match=r"^config") as error:
    check_keys.check(with_value(key, value))
  said = str(error.value)
  assert said.startswith(f"config.{key} = ") and said.endswith(".") and "\n" not in said
  return said


def kind_of(key: str) -> type:
  return type(DEFAULTS[scale_of(key)][key])


RANGES = [key for key, row in schema.KEYS.items() if row.range]
CHOICES = [key for key, row in schema.KEYS.items() if row.choices]
OPEN = [key for key, row in schema.KEYS.items() if row.open]


def test_every_key_has_a_row_and_every_row_a_key():
  keys = {key for values in DEFAULTS.values() for key in values}
  keys |= {f"{section}.x" for section in OPEN}  # some are empty by default
  rows = {key: schema.row(key) for key in keys}
  assert [key for key in keys if rows[key] is None] == []
  assert [name for name, row in schema.KEYS.items() if not any(row is other for other in rows.values())] == []
  assert all(key in schema.KEYS or rows[key].open for key in keys)


def test_a_row_has_one_rule():
  for key, row in schema.KEYS.items():
    assert (row.range is not None) + bool(row.choices) + row.open <= 1, key
    assert not row.choices or kind_of(key) is str, key
    assert not row.range or kind_of(key) in (int, float), key


def test_a_key_without_range_or_choices_is_a_text_a_switch_or_known_to_take_any_number():
  bare = {key for key, row in schema.KEYS.items() if row[:2] == (None, ()) and not row.open}
  numbers = {"adaptive_group.positive", "env.success"}
  assert {key for key in bare if kind_of(key) not in (str, bool)} == numbers


@pytest.mark.parametrize("scale", ["mini", "tiny", "small", "local", "paper", *games.SCALES])
def test_every_scale_passes(scale):
  check_keys.check(base.get_config(scale))


@pytest.mark.parametrize("key", RANGES)
def test_a_number_below_or_above_its_range_is_refused(key):
  range_, kind = schema.KEYS[key].range, kind_of(key)
  below = [range_.least - (1 if kind is int else 1e-6)] + [range_.least] * range_.above
  above = [range_.most + (1 if kind is int else 1e-6)] if range_.most < math.inf else []
  for value in below + above:
    assert refusal(key, kind(value)) == f"config.{key} = {kind(value)} {range_.refusal}"
  edges = [range_.least + (1e-6 if range_.above else 0), min(range_.most, 2**31 - 1)]
  for value in edges:
    check_keys.check(with_value(key, kind(value)))


@pytest.mark.parametrize("key", RANGES)
def test_a_number_that_is_none_or_too_large_is_refused(key):
  if kind_of(key) is int:
    assert schema.KEYS[key].range.most < 2**31 or "more than 2147483647" in refusal(key, 2**31)
  else:
    for value in (math.nan, math.inf, -math.inf):
      assert refusal(key, value) == f"config.{key} = {value} is no finite number."


@pytest.mark.parametrize("key", CHOICES)
def test_another_choice_is_refused_with_those_there_are(key):
  said, choices = refusal(key, "none of them"), schema.KEYS[key].choices
  assert said == f"config.{key} = 'none of them'; it is {' or '.join(map(repr, choices))}."
  for choice in choices:
    check_keys.check(with_value(key, choice))


@pytest.mark.parametrize("key", sorted(schema.KEYS.keys() - {"scale"}))  # base.py refuses other scales
def test_a_value_of_another_kind_is_refused(key):
  wrong = 7 if schema.KEYS[key].open or kind_of(key) is str else "seven"
  assert f"is {type(wrong).__name__}, but must be" in refusal(key, wrong)


@pytest.mark.parametrize("key", ["steps", "rollout.top_p", "data.chat", "mesh.rules.mlp", "objective.veto"])
def test_a_missing_key_is_named(key):
  config = base.get_config()
  *path, leaf = key.split(".")
  node = config
  for name in path:
    node = node[name]
  with config.unlocked():
    del node[leaf]
  with pytest.raises(ValueError, match=rf"^config\.{key} is missing; override single keys"):
    check_keys.check(config)


@pytest.mark.parametrize("section", ["", "rollout.", "objective.", "mesh.rules.", "process."])
def test_a_key_that_is_not_there_is_refused_with_those_that_are(section):
  with pytest.raises(ValueError, match=r"^config.* has no 'x'; it takes \w+, "):
    check_keys.check(with_value(f"{section}x", 1))


@pytest.mark.parametrize("section", OPEN)
def test_an_open_section_takes_any_key_and_any_number_but_nan(section):
  key = f"{section}.x"
  check_keys.check(with_value(key, -math.inf))
  assert "is no finite number" in refusal(key, math.nan)


@pytest.mark.parametrize("key", [key for key, row in schema.KEYS.items() if not row.open])
def test_what_is_free_may_change_in_a_workdir_and_nothing_else(tmp_path, key):
  config = base.get_config(scale_of(key))
  before = DEFAULTS[scale_of(key)][key]
  after = f"{before}x" if isinstance(before, str) else not before if isinstance(before, bool) else before + 1
  workdir.claim(tmp_path, config)
  said = workdir.differences(tmp_path, with_value(key, after))
  assert said == ("" if schema.KEYS[key].free else f"{key}: {before!r} -> {after!r}")


def test_the_keys_that_a_continuation_may_change():
  """How long, how often, on what, how loudly: none of them is in the numbers of a step."""
  free = {key for key, row in schema.KEYS.items() if row.free}
  mesh = {key for key in schema.KEYS if key.startswith("mesh.")}
  assert mesh < free
  assert free - mesh == {
    "steps", "verbose", "attention", "microbatches", "rows", "remat", "logprob_chunk", "eval.every",
    "eval.on_start", "checkpoint.every", "checkpoint.keep", "checkpoint.allow_changed", "cache_dir",
    "profile_steps",
    "print_sharding", "log.to", "log.project", "log.completions_every",
    "guard.nonfinite", "guard.warn_mismatch", "guard.stop_mismatch", "guard.failed_rewards", "guard.minutes",
    "env.timeout",
  }  # fmt: skip


def test_a_key_that_only_the_old_config_has_is_no_reason_to_take_the_workdir(tmp_path):
  workdir.claim(tmp_path, with_value("other", 1))
  assert workdir.differences(tmp_path, base.get_config()) == "other: 1 -> None"
