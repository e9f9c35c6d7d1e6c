"""Programs that runs of one process share: those of policies that differ in weights alone, and no others."""

from types import SimpleNamespace

import pytest

from grpojax.recipes import base
from grpojax.tools.pipeline.stages import from_folder
from grpojax.train import shared


def folder(path, **files):
  """A policy's folder, of which a file may be other than that of the others."""
  path.mkdir()
  for name, text in (dict(config="{}", tokenizer="{}", generation_config="{}") | files).items():
    (path / f"{name}.json").write_text(text)
  (path / "model.safetensors").write_text(path.name)
  return from_folder(base.get_config("tiny"), str(path))


@pytest.fixture
def build():
  """Builds programs as `shared` has them built: a number, the same for the same ones."""
  numbers = iter(range(99))
  share, make = shared.sharing({}), lambda *_: next(numbers)
  return lambda config, lora=None, *more: share(
    make, config, SimpleNamespace(lora=lora), "tokenizer", "mesh", *more
  )


def test_stages_share_programs_whose_policies_differ_in_weights(build, tmp_path):
  first, second = folder(tmp_path / "grow"), folder(tmp_path / "learn")
  second.reward.accuracy.fn, second.steps = "rules:format", 7
  assert build(first) == build(second) == 0


@pytest.mark.parametrize("name", ["config", "tokenizer", "generation_config"])
def test_another_file_that_decides_a_program_is_another_program(build, name, tmp_path):
  other = folder(tmp_path / "b", **{name: '{"eos_token_id": 3}'})
  assert build(folder(tmp_path / "a")) == 0 and build(other) == 1


def test_adapters_and_what_a_config_decides_are_other_programs(build, tmp_path):
  first, second = folder(tmp_path / "a"), folder(tmp_path / "b")
  second.rollout.temperature = 0.5
  assert [build(first), build(first, lora="adapters"), build(second), build(first)] == [0, 1, 2, 0]


def test_what_no_config_says_decides_too(build, tmp_path):
  """As the number of a run's updates, which its learning rate follows."""
  config = folder(tmp_path / "a")
  assert [build(config, None, 8), build(config, None, 9), build(config, None, 8)] == [0, 1, 0]
