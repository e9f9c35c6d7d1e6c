"""The cold start's cache: its key is of all that decides the parameters, and of nothing else."""

import builtins
import importlib.util
import io
import json
import shutil
import threading
import time
from importlib import metadata
from pathlib import Path

import cold_start_toy as toy
import data_toys
import jax
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

from grpojax.runtime import metrics
from grpojax.train import cold_start, supervised


def key(module=cold_start, split=None, tokenizer=toy.TOKENIZER, shapes=None, **changes) -> str:
  c = toy.config()
  model = toy.model(c)
  c.update_from_flattened_dict(changes)
  model = model._replace(shapes=shapes(model.shapes)) if shapes else model
  return module.fingerprint(c, model, split or toy.split(), tokenizer)


def other_row(**changes):
  split = toy.split()
  return split._replace(records=[split.records[0] | changes, *split.records[1:]])


CONFIG = [
  {"cold_start.steps": 4}, {"cold_start.batch_size": 8}, {"cold_start.learning_rate": 0.01},
  {"cold_start.warmup_steps": 2}, {"cold_start.seed": 1}, {"rollout.max_tokens": 25},
  {"model.rope_theta": 500.0}, {"model.rms_norm_eps": 1e-5}, {"model.dtype": "bfloat16"},
  {"model.dtype": "bfloat16", "model.head_dtype": "float32"},
]  # fmt: skip
SPLITS = {
  "a demonstration": lambda: other_row(demonstration="=8#8!"),
  "a prompt's tokens": lambda: toy.split()._replace(prompts=toy.split().prompts[::-1]),
  "fewer rows": lambda: toy.split()._replace(ids=toy.split().ids + 1),
  "the prompt budget": lambda: toy.split()._replace(budget=17),
  "whether they are trusted": lambda: toy.split()._replace(split_special_tokens=False),
}


@pytest.mark.parametrize("changes", CONFIG, ids=str)
def test_what_the_config_says_of_it_is_in_the_key(changes):
  assert key(**changes) != key()


def test_a_head_of_the_same_dtype_is_not_in_the_key():
  assert key(**{"model.head_dtype": "float32"}) == key()
  narrow = {"model.dtype": "bfloat16"}
  assert key(**narrow, **{"model.head_dtype": "float32"}) != key(**narrow)


@pytest.mark.parametrize("what", SPLITS)
def test_the_demonstrations_are_in_the_key(what):
  assert key(split=SPLITS[what]()) != key()


@pytest.mark.parametrize(
  "change",
  [
    lambda tree: tree | {"other": tree["final_norm"]},
    lambda tree: tree | {"final_norm": jax.ShapeDtypeStruct((33,), np.float32)},
    lambda tree: tree | {"final_norm": jax.ShapeDtypeStruct((32,), np.float16)},
  ],
  ids=["name", "shape", "dtype"],
)
def test_the_parameters_are_in_the_key(change):
  assert key(shapes=change) != key()


def test_the_tokenizer_is_in_the_key_by_its_content():
  assert key(tokenizer=data_toys.tokenizer()) != key()
  assert key(tokenizer=toy.text.load_tokenizer()) == key()


@pytest.mark.parametrize("name", ["jax", "jaxlib", "optax", "numpy", "flax", "grain"])
def test_the_version_of_a_library_is_in_the_key(monkeypatch, name):
  before, version = key(), metadata.version
  monkeypatch.setattr(cold_start.metadata, "version", lambda of: "0.0" if of == name else version(of))
  assert key() != before


def test_the_objective_and_the_version_are_in_the_key(monkeypatch):
  before = key()
  monkeypatch.setattr(cold_start, "VERSION", cold_start.VERSION + 1)
  raised = key()
  monkeypatch.undo()
  monkeypatch.setitem(supervised.OBJECTIVE.aggregate, "fn", "sequence_mean")
  assert len({before, raised, key()}) == 3


@pytest.mark.parametrize("of_training", ["seed", "steps", "rollout.group_size", "optimizer.b2", "eval.every"])
def test_what_comes_after_the_cold_start_is_not_in_the_key(of_training):
  assert key(**{of_training: 0.5 if of_training == "optimizer.b2" else 9}) == key()


def test_a_renamed_file_and_a_comment_leave_the_key(tmp_path):
  renamed = tmp_path / "warm_up.py"
  renamed.write_text("# A comment.\n" + Path(cold_start.__file__).read_text())
  spec = importlib.util.spec_from_file_location("warm_up", renamed)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  assert key(module) == key()


def test_the_key_reads_no_file(monkeypatch):
  model, split = toy.model(toy.config()), toy.split()
  monkeypatch.setattr(cold_start.metadata, "version", lambda _: "1")
  for where in (builtins, io):
    monkeypatch.setattr(where, "open", lambda *_, **__: pytest.fail("a file was read"))
  assert len(cold_start.fingerprint(toy.config(), model, split, toy.TOKENIZER)) == 16


def test_the_arithmetic_is_that_of_the_version():
  """A cached cold start of another arithmetic would be taken for one of today's."""
  recorded, now = json.loads(toy.RECORD.read_text()), toy.run()
  assert recorded["version"] == cold_start.VERSION, "record it anew: python tests/cold_start_toy.py"
  remedy = "it computes something else: raise cold_start.VERSION, then python tests/cold_start_toy.py"
  assert recorded["parameters"].keys() == now["parameters"].keys(), remedy
  assert now["loss"] == pytest.approx(recorded["loss"], abs=1e-4), remedy
  for name, expected in recorded["parameters"].items():
    # Compilers round up to 3e-6 apart; updates move an element by 2e-3 and more.
    np.testing.assert_allclose(now["parameters"][name], expected, rtol=0, atol=3e-5, err_msg=remedy)


def test_the_records_count_the_tokens_that_are_learned(tmp_path):
  """Two batches of four are an epoch of eight: each answer once, with the token that ends it."""
  c, split = toy.config(), toy.split()
  c.cold_start.steps = 2
  with metrics.Writer(tmp_path) as writer:
    cold_start.train(c, toy.model(c), toy.sharding.make_mesh(c.mesh), split, toy.TOKENIZER, writer)
  (record,) = metrics.read(tmp_path)
  answers = toy.text.encode_texts(toy.TOKENIZER, [row["demonstration"] for row in split.records])
  assert record["num_tokens"] == sum(len(answer) + 1 for answer in answers)


@pytest.fixture
def cached(tmp_path, monkeypatch):
  """cached(): what a start takes for its cold start, of a `train` that costs nothing; trained: how often."""
  c = toy.config()
  c.cache_dir = str(tmp_path)
  model, mesh = toy.model(c), toy.sharding.make_mesh(c.mesh)
  where = toy.sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  trained = []

  def fake(*_):
    trained.append(True)
    time.sleep(0.2)  # so that another start comes meanwhile
    draw, put = np.random.default_rng(0).normal, jax.device_put
    return jax.tree.map(lambda x, to: put(draw(size=x.shape).astype(x.dtype), to), model.shapes, where)

  monkeypatch.setattr(cold_start, "train", fake)
  return lambda: cold_start.cold_start(c, model, mesh, toy.split(), toy.TOKENIZER, None), trained


def entry(folder):
  (found,) = [one for one in (folder / "cold_start").iterdir() if one.is_dir() and "damaged" not in one.name]
  return found


def biggest(folder):
  return max((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)


def flip(file):
  data = bytearray(file.read_bytes())
  data[len(data) // 2] ^= 4
  file.write_bytes(data)


def another_value(folder):
  """Sound files, other weights."""
  kept = ocp.metadata(folder).custom_metadata
  params = jax.tree.map(lambda x: x + 1, ocp.load(folder))
  ocp.save(folder, params, overwrite=True, custom_metadata=kept)


def another_key(folder):
  kept, params = ocp.metadata(folder).custom_metadata, ocp.load(folder)
  ocp.save(folder, params, overwrite=True, custom_metadata=kept | {"key": "0" * 16})


DAMAGE = {
  "a flipped bit": lambda folder: flip(biggest(folder)),
  "another value": another_value,
  "of another seed": another_key,
  "truncated": lambda folder: biggest(folder).write_bytes(b"half"),
  "empty": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
  "without metadata": lambda folder: [file.unlink() for file in folder.rglob("_*") if file.is_file()],
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_cold_start_is_moved_aside_and_trained_anew(what, cached, tmp_path, capsys):
  start, trained = cached
  whole = start()
  DAMAGE[what](entry(tmp_path))
  jax.tree.map(np.testing.assert_array_equal, start(), whole)
  jax.tree.map(np.testing.assert_array_equal, start(), whole)
  said = capsys.readouterr().out
  assert len(trained) == 2 and f"it is now {entry(tmp_path)}-damaged-" in said and "from" in said


def test_two_starts_at_once_make_one_cold_start(cached, tmp_path, capsys):
  start, trained = cached
  found = []
  threads = [threading.Thread(target=lambda: found.append(start())) for _ in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  jax.tree.map(np.testing.assert_array_equal, *found)
  assert len(trained) == 1 and "waiting for it" in capsys.readouterr().out
