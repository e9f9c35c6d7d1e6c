"""Numbers that no machine can honour are refused in one sentence, before anything compiles."""

import jax
import pytest

from grpojax import train
from grpojax.data import pipeline
from grpojax.recipes import base
from grpojax.runtime import limits


def config(cache, **changes):
  c = base.get_config("tiny")
  c.update(verbose=False, cache_dir=str(cache))
  c.mesh.data = 1
  for key, value in changes.items():
    *path, leaf = key.split("__")
    node = c
    for name in path:
      node = node[name]
    node[leaf] = value
  return c


@pytest.mark.parametrize(
  ("changes", "said"),
  [
    (dict(data__prompt_budget=2**31 - 1), r"config\.data\.prompt_budget = 2147483647 .* at most 4,194,304"),
    (dict(rollout__prefill_chunk=2**31 - 1), r"config\.rollout\.prefill_chunk = 2147483647 .* at most"),
    (dict(guard__minutes=1e9), r"config\.guard\.minutes = 1000000000\.0 .* at most 527,040"),
    (dict(optimizer__weight_decay=1e39), r"config\.optimizer\.weight_decay = 1e\+39 is more than 3\.4e\+38"),
    (dict(mesh__rules__embed="fsdp,fsdp"), r"config\.mesh\.rules\.embed = 'fsdp,fsdp' names an axis twice"),
    (dict(cold_start__batch_size=512), r"config\.cold_start\.batch_size = 512 is more than the \d+ rows"),
    (dict(rollout__prefill_chunk=2**22), r"config\.rollout\.prefill_chunk .* need at least .* GB"),
    (dict(rollout__max_tokens=2**22, rollout__prompts=128), r"max_tokens.* need at least .* GB of a device"),
    (dict(model__hidden_size=2**20, model__num_hidden_layers=4096), r"config\.model need at least .* GB"),
  ],
)
def test_what_cannot_be_is_refused_with_its_key(cache, tmp_path, changes, said):
  with pytest.raises(ValueError, match=said):
    train.prepare(config(cache, **changes), tmp_path / "run")
  assert not (tmp_path / "run").exists()


def test_a_cold_start_without_demonstrations_is_refused_at_once(cache, tmp_path, monkeypatch):
  read = pipeline.load_split

  def without(*args):
    split = read(*args)
    rows = [{k: v for k, v in row.items() if k != "demonstration"} for row in split.records]
    return split._replace(records=rows)

  monkeypatch.setattr(pipeline, "load_split", without)
  with pytest.raises(ValueError, match=r"no demonstrations to imitate; set config\.cold_start\.steps = 0"):
    train.prepare(config(cache), tmp_path / "run")


@pytest.mark.parametrize(
  ("name", "value", "said"),
  [
    ("jax_enable_x64", True, r"JAX_ENABLE_X64\), and grpojax computes .* in 32 bits; leave it at False"),
    ("jax_debug_nans", True, "NaN marks here what is not known yet"),
    ("jax_debug_infs", True, "-inf marks here"),
    ("jax_disable_jit", True, "compiled ahead"),
    ("jax_default_prng_impl", "rbg", r"is rbg \(JAX_DEFAULT_PRNG_IMPL\), .* leave it at threefry2x32"),
    ("jax_threefry_partitionable", False, "the same seed samples other completions; leave it at True"),
  ],
)
def test_a_setting_of_jax_that_no_run_can_do_with_is_refused(name, value, said):
  before = getattr(jax.config, name)
  jax.config.update(name, value)
  try:
    with pytest.raises(ValueError, match=said):
      limits.check()
  finally:
    jax.config.update(name, before)
