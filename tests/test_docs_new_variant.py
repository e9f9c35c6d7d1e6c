"""The page on adding a variant runs: its code blocks as they are, as files of their own."""

import importlib
import re
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from objective_toys import random_batch

from grpojax import objective as lib
from grpojax.config import check as config_lib
from grpojax.learner import rows
from grpojax.learner.state import create
from grpojax.learner.update import make_update

PAGE = (Path(__file__).parents[1] / "docs" / "new_variant.md").read_text()
FUNCTION, CONFIG, CHECK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def dppo(tmp_path, monkeypatch):
  """The page's two files in a folder that Python imports from; the config's module."""
  (tmp_path / "dppo.py").write_text(FUNCTION)
  (tmp_path / "dppo_config.py").write_text(CONFIG)
  monkeypatch.syspath_prepend(tmp_path)
  importlib.invalidate_caches()
  yield importlib.import_module("dppo_config")
  for name in ("dppo", "dppo_config"):
    sys.modules.pop(name, None)


def test_the_config_is_legal_and_the_check_of_the_page_passes(dppo):
  config_lib.check(dppo.get_config(), devices=1)
  exec(compile(CHECK, "new_variant.md", "exec"), {})


def test_it_is_about_twenty_lines_and_ten():
  assert len(FUNCTION.splitlines()) <= 20 and len(CONFIG.splitlines()) <= 14


def test_the_gradient_is_that_of_the_published_loss(dppo):
  """−A · min(r, c) · log π · valid, written once more with numpy, r and valid held constant."""
  batch, theta = random_batch(0)
  o = dppo.get_config().objective
  o.surrogate.update(low=0.05, high=0.08, w_max=1.1)
  with jax.enable_x64(True):
    objective = lib.build(o)
    prepared = jax.jit(lib.prepare)(objective, batch)
    grad = jax.jit(jax.grad(lambda x: lib.loss(objective, x, prepared)[0]))(theta["logp"])
  new, old = np.exp(theta["logp"]), np.exp(batch.sampler_logp)
  advantage, on = np.asarray(prepared.advantage), np.asarray(prepared.mask) > 0
  valid = np.where(advantage > 0, new - old <= 0.08, new - old >= -0.05)
  wanted = -advantage * np.minimum(new / old, 1.1) * valid * on / on.sum()
  np.testing.assert_allclose(grad, wanted, atol=1e-12)
  pulled = on & (advantage != 0)
  assert 0.2 < valid[pulled].mean() < 0.95 and (new / old > 1.1)[pulled & valid].any()


def test_five_updates_make_right_answers_likelier(dppo):
  batch, _ = random_batch(0)
  batch = jax.tree.map(lambda x: np.float32(x) if x.dtype == np.float64 else x, batch)
  numbered = np.arange(batch.mask.size, dtype=np.int32).reshape(batch.mask.shape)
  start = np.float32(batch.sampler_logp)
  batch = batch._replace(tokens=numbered, prompt_length=np.zeros(batch.valid.shape, np.int32))
  look_up = lambda table, tokens, *_: (table.ravel()[tokens], 0 * table.ravel()[tokens], None)
  tx, schedule = optax.sgd(2.0), optax.constant_schedule(2.0)
  update = jax.jit(make_update(rows.single(look_up, microbatches=2), tx, schedule))
  objective, state = lib.build(dppo.get_config("tiny").objective), create(start, tx)
  for _ in range(5):
    state, metrics = update(state, objective, batch)
    assert np.isfinite(metrics["loss"])
  moved, counted = np.asarray(state.params) - start, (batch.mask > 0) & batch.valid[..., None]
  advantage = np.asarray(jax.jit(lib.prepare)(objective, batch).advantage)
  assert (moved * advantage >= 0).all() and np.abs(moved[counted & (advantage != 0)]).min() > 0
