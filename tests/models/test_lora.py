"""Adapters: the sum by float64, PEFT's own logits, gradients by the chain rule, and runs that resume."""

import functools
import importlib
import json
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict
from model_folders import FOLDERS, loaded, mesh
from safetensors import safe_open
from test_learner import T, V, make_batch

from grpojax import models, train
from grpojax import objective as objective_lib
from grpojax.config import check as config_lib
from grpojax.data import text
from grpojax.learner import logprobs, optimizer, rows
from grpojax.learner.state import create
from grpojax.learner.update import make_update
from grpojax.models import hf, lora, names, peft
from grpojax.recipes import base, gspo
from grpojax.rollout import sampler
from grpojax.runtime import checksums, metrics, sharding
from grpojax.tools import export
from grpojax.train import adapters, manifest
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib

ADAPTERS = Path(__file__).parents[1] / "data" / "adapters"
ALL = "q|k|v|o|gate|up|down"


def with_adapters(model, rank=3, alpha=6.0, modules=ALL):
  c = ConfigDict(dict(rank=rank, alpha=alpha, modules=modules, path=""))
  return model._replace(lora=lora.build(c, model.spec, model.axes, model.shapes))


def noise(model, seed=1):
  """Adapters of which no factor is zero."""
  rng = np.random.default_rng(seed)
  return jax.tree.map(lambda s: jnp.asarray(rng.normal(0, 0.2, s.shape), s.dtype), model.lora.shapes)


def of(config, name):
  """PEFT's own adapters for a stored family, from their file: (model, union of trees)."""
  theirs = json.loads((ADAPTERS / name / "adapter_config.json").read_text())
  modules = "|".join(sorted(m.removesuffix("_proj") for m in theirs["target_modules"]))
  base_model, params, _ = loaded(name)
  config.update(rank=theirs["r"], alpha=float(theirs["lora_alpha"]), modules=modules)
  model = base_model._replace(lora=lora.build(config, base_model.spec, base_model.axes, base_model.shapes))
  peft.check(ADAPTERS / name, config, model)
  return model, params | peft.load(ADAPTERS / name, model, mesh())


def lora_config():
  return base.get_config("tiny").lora


@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
def test_logits_are_those_of_peft_merged_layer_by_layer_or_as_a_whole(family):
  model, params = of(lora_config(), family)
  stored, expected = np.load(FOLDERS / family / "expected.npz"), np.load(ADAPTERS / family / "expected.npz")
  forward = lambda m, p: m.bind(p).logits(m.bind(p)(stored["tokens"], stored["first"]))
  merged = lora.merge_all(params, model.spec, model.lora.scale)
  real = (np.arange(stored["tokens"].shape[1])[None] >= stored["first"][:, None])[:, ::4]
  bare = model._replace(lora=None)
  layered, whole = jax.jit(lambda p, w: (forward(model, p), forward(bare, w)))(params, merged)
  for logits in (layered, whole):
    np.testing.assert_allclose(logits[:, ::4][real], expected["logits"][real], atol=1e-4)
  assert np.abs(stored["logits"][:, ::4][real] - expected["logits"][real]).max() > 0.1  # they do something


@pytest.mark.parametrize(
  ("family", "modules"), [("qwen2_moe", ".*gate|down|head|router"), ("gemma3_text", ALL)]
)
def test_merged_is_the_base_plus_scale_b_a_in_the_layout_of_the_disk(family, modules):
  base_model, params, _ = loaded(family)
  model = with_adapters(base_model, modules=modules)
  params, trained = jax.tree.map(np.asarray, (params, noise(model)))
  assert {p.split(".")[-1] for p in trained["adapters"]} >= {"gate", "down"}
  merge = jax.jit(lambda params: lora.merge_all(params, model.spec, model.lora.scale))
  merged = jax.tree.map(np.asarray, merge(params | trained))
  for path, leaf in jax.tree.leaves_with_path(merged):
    path = ".".join(key.key for key in path)
    row, before = names.row(model.spec, path), functools.reduce(dict.get, path.split("."), params)
    pair = trained["adapters"].get(path)
    for at in np.ndindex(leaf.shape[: row.stacked]):
      weight = row.to_disk(np.asarray(before[at])).astype(np.float64)
      if pair:
        a, b = (np.asarray(pair[k][at], np.float64) for k in "ab")
        a, b = a.reshape(-1, 3).T, b.reshape(3, -1).T  # PEFT's [rank, in] and [out, rank]
        weight += 2.0 * b @ a
      np.testing.assert_allclose(row.to_disk(np.asarray(leaf[at])), weight, atol=1e-5, err_msg=path)


def test_experts_and_an_untied_head_compute_with_what_is_merged():
  base_model, params, expected = loaded("qwen3_moe")
  model = with_adapters(base_model, modules="gate|down|head")
  params = params | noise(model)
  tokens, first = expected["tokens"][:, :24], expected["first"]

  @jax.jit
  def both(params):
    merged = lora.merge_all(params, model.spec, model.lora.scale)
    decoders = model.bind(params), base_model.bind(merged), base_model.bind(params)
    return [d.logits(d(tokens, first)) for d in decoders]

  ours, merged, bare = both(params)
  np.testing.assert_allclose(ours, merged, atol=1e-5)
  assert np.abs(ours - bare).max() > 0.1


def test_the_sampler_samples_what_the_learner_scores():
  model, params = of(lora_config(), "qwen2")
  tokens, first = np.load(FOLDERS / "qwen2" / "expected.npz")["tokens"][:, :16], np.array([0, 5, 11])
  prefill, decode = sampler.static_batch.build(
    model, group_size=2, max_tokens=12, sampling=sampler.SamplingParams(), eos_ids=(model.spec.vocab_size,)
  )
  prefilled = jax.jit(prefill)(params, tokens, 16 - first)
  rollout = jax.jit(decode)(params, prefilled, jax.random.key(0), jnp.arange(3))
  repeat = lambda x: np.repeat(x[:, None], 2, axis=1)
  rows = np.concatenate([repeat(tokens), rollout.tokens], axis=-1)
  score = logprobs.make_logp(model, response_budget=12, temperature=1.0, chunk=5)
  logp, *_ = jax.jit(score)(params, rows, repeat(16 - first))
  np.testing.assert_allclose(rollout.sampler_logp, logp, atol=1e-5)


MODEL = models.build(base.get_config("tiny").model, V)
ADAPTED = with_adapters(MODEL)


def slopes(model, trained, frozen, batch, **jit_options):
  """Gradient of the batch's mean reward times log-prob, by what is trained."""
  score = logprobs.make_logp(model, response_budget=T, temperature=1.0, chunk=4)

  def mean(trained, frozen, batch):
    logp, *_ = score(frozen | trained, batch.tokens, batch.prompt_length)
    return (logp * batch.mask * batch.reward[..., None]).mean()

  found = jax.jit(jax.grad(mean), **jit_options)(trained, frozen, batch)
  return jax.tree.map(np.asarray, found)


@functools.cache
def adapted():
  """(gradient of the adapters, the adapters, the frozen weights)."""
  frozen, trained = MODEL.init(jax.random.key(0)), noise(ADAPTED)
  return slopes(ADAPTED, trained, frozen, make_batch())["adapters"], trained["adapters"], frozen


@functools.cache
def gradient_where_merged():
  _, trained, frozen = adapted()
  merged = lora.merge_all(frozen | {"adapters": trained}, MODEL.spec, ADAPTED.lora.scale)
  return slopes(MODEL, merged, {}, make_batch())


@pytest.mark.slow
@pytest.mark.parametrize(
  ("path", "of_a", "of_b"),
  [
    ("layers.q", "ldnh,lrnh->ldr", "ldnh,ldr->lrnh"),
    ("layers.o", "lnhd,lrd->lnhr", "lnhd,lnhr->lrd"),
    ("layers.down", "lfd,lrd->lfr", "lfd,lfr->lrd"),
  ],
)
def test_a_factor_s_gradient_is_the_merged_matrix_s_times_the_other_factor(path, of_a, of_b):
  ours, factors, _ = adapted()
  slope = np.asarray(gradient_where_merged()["layers"][path.split(".")[1]], np.float64)
  a, b = (np.asarray(factors[path][k], np.float64) for k in "ab")
  for k, expected in (("a", np.einsum(of_a, slope, b)), ("b", np.einsum(of_b, slope, a))):
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(ours[path][k], 2.0 * expected, rtol=1e-3, atol=2e-6)


@pytest.mark.slow
def test_devices_and_layout_change_no_gradient():
  ours, trained, frozen = adapted()
  sizes = dict.fromkeys((*sharding.AXES, "slices"), 1) | dict(data=2, fsdp=2, tensor=2)
  on = sharding.make_mesh(ConfigDict(sizes))
  where = optimizer.state_shardings(ADAPTED, optax.identity(), on).params
  where = where, programs_lib.frozen_layout(ADAPTED, on)
  trained, frozen = jax.device_put(({"adapters": trained}, frozen), where)
  for factor, axis in (("a", 1), ("b", 2)):  # embed over fsdp, mlp over tensor
    gate = trained["adapters"]["layers.gate"][factor]
    assert gate.addressable_shards[0].data.shape[axis] == gate.shape[axis] // 2
  batch, inside = sharding.to_device(on, make_batch()), (*where, sharding.batch_sharding(on))
  cut = slopes(ADAPTED, trained, frozen, batch, in_shardings=inside)["adapters"]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), cut, ours)


@pytest.mark.slow
def test_an_update_moves_every_adapter_and_holds_none_of_them_as_a_constant():
  tx = optimizer.make_optimizer(
    base.get_config("tiny").optimizer, optax.constant_schedule(0.1), ADAPTED.trained.axes
  )
  score = logprobs.make_logp(ADAPTED, response_budget=T, temperature=1.0, chunk=4)
  update = make_update(rows.single(score), tx, optax.constant_schedule(0.1))
  traced, seen = [], []
  step = jax.jit(lambda *args: (traced.append(1), update(*args))[1])
  objective = objective_lib.build(gspo.get_config("tiny").objective)
  batch, frozen = make_batch(), adapted()[2]
  for scale, seed in ((1.0, 1), (1.1, 1), (1.0, 2)):
    trained = noise(ADAPTED, seed)
    state = create(trained, tx)
    assert sum(x.size for x in jax.tree.leaves(state.opt_state)) <= 2 * sum(
      x.size for x in jax.tree.leaves(trained)
    ) + 3  # moments of the adapters, and of nothing else
    state, found = step(state, objective, batch, jax.tree.map(lambda x, s=scale: x * s, frozen))
    moved = jax.tree.map(lambda a, b: (np.asarray(a) != np.asarray(b)).all(), state.params, trained)
    assert all(jax.tree.leaves(moved)), moved
    seen.append(float(found["ppo_kl"]))
  assert len(set(seen)) == 3 and len(traced) == 1


def test_new_adapters_are_drawn_as_peft_draws_them_and_change_nothing():
  start = lora.init(ADAPTED.lora, MODEL.spec, jax.random.key(1))["adapters"]
  params = MODEL.init(jax.random.key(0))
  merged = lora.merge_all(params | {"adapters": start}, MODEL.spec, ADAPTED.lora.scale)
  jax.tree.map(np.testing.assert_array_equal, merged, params)
  for path, inside in (("layers.q", 32), ("layers.o", 32), ("layers.down", 64)):
    a = np.asarray(start[path]["a"])
    assert 0.9 * inside**-0.5 < np.abs(a).max() <= inside**-0.5
    assert a.std() == pytest.approx((3 * inside) ** -0.5, rel=0.15)
  assert not np.array_equal(start["layers.q"]["a"], start["layers.k"]["a"])


def tensors(folder):
  with safe_open(folder / "adapter_model.safetensors", framework="np") as opened:
    return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
def test_what_peft_wrote_is_written_again_bit_for_bit(family, tmp_path):
  c = lora_config()
  model, params = of(c, family)
  peft.write({"adapters": params["adapters"]}, model, c, family, tmp_path / "out")
  before, after = tensors(ADAPTERS / family), tensors(tmp_path / "out")
  assert before.keys() == after.keys()
  for name in before:
    np.testing.assert_array_equal(before[name], after[name])
  both = (ADAPTERS / family, tmp_path / "out")
  theirs, ours = (json.loads((folder / "adapter_config.json").read_text()) for folder in both)
  assert set(theirs.pop("target_modules")) == set(ours.pop("target_modules"))
  assert ours.items() <= theirs.items()
  with pytest.raises(ValueError, match="exists already"):
    peft.write({"adapters": params["adapters"]}, model, c, family, tmp_path / "out")


@pytest.mark.parametrize(
  ("change", "sentence"),
  [
    (dict(r=5), "r = 5 for 3"),
    (dict(use_rslora=True), "use_rslora = True for False"),
    (dict(alpha_pattern={"q_proj": 2}), "alpha_pattern = "),
  ],
)
def test_adapters_of_another_kind_are_refused(tmp_path, change, sentence):
  c = lora_config()
  model, _ = of(c, "qwen2")
  folder = tmp_path / "adapters"
  shutil.copytree(ADAPTERS / "qwen2", folder)
  config = json.loads((folder / "adapter_config.json").read_text())
  (folder / "adapter_config.json").write_text(json.dumps(config | change))
  with pytest.raises(ValueError, match=re.escape(sentence)):
    peft.check(folder, c, model)


def test_missing_unexpected_and_mis_shaped_adapters_are_named(tmp_path):
  base_model, c = loaded("qwen2")[0], lora_config()
  c.update(rank=3, alpha=8.0)
  missing = r"no base_model\.model\.lm_head\.lora_A"
  for modules, sentence in (("q", "unexpected base_model"), (f"{ALL}|head", missing)):
    c.modules = modules
    model = base_model._replace(lora=lora.build(c, base_model.spec, base_model.axes, base_model.shapes))
    with pytest.raises(ValueError, match=sentence):
      peft.check(ADAPTERS / "qwen2", c, model)
  with pytest.raises(ValueError, match=r"lacks adapter_config.json and adapter_model.safetensors"):
    peft.check(tmp_path, c, model)
  with pytest.raises(ValueError, match="part of a mixture"):
    peft.tensors(with_adapters(loaded("qwen3_moe")[0], modules="up"))


@pytest.mark.parametrize("modules", ["queries", "head", "embedding", ".*norm", "q_bias"])
def test_a_pattern_that_matches_no_matrix_is_refused(modules):
  with pytest.raises(ValueError, match=r"matches no matrix of the model; it has layers.down, "):
    with_adapters(MODEL, modules=modules)  # a tied model has no head


@pytest.mark.parametrize(
  ("changes", "sentence"),
  [
    (dict(rank=-1), "config.lora.rank = -1"),
    (dict(rank=2, alpha=0.0), "config.lora.alpha = 0.0 must be positive"),
    (dict(rank=2, modules="("), "no regular expression"),
    (dict(path="somewhere"), "set config.lora.rank"),
  ],
)
def test_an_illegal_config_is_refused(changes, sentence):
  config = base.get_config("tiny")
  config.lora.update(changes)
  with pytest.raises(ValueError, match=sentence):
    config_lib.check(config, devices=1)


def test_factors_are_not_averaged():
  config = base.get_config("tiny")
  config.reference, config.lora.rank = "init", 2
  config.reference_sync.every = 3
  config_lib.check(config, devices=1)
  config.reference_sync.rate = 0.5
  with pytest.raises(ValueError, match=r"config.reference_sync.rate < 1"):
    config_lib.check(config, devices=1)


@pytest.mark.slow
def test_other_weights_in_the_folder_are_noticed(tmp_path):
  config = base.get_config("local")
  config.model.path, config.lora.rank = str(tmp_path / "qwen3"), 2
  shutil.copytree(FOLDERS / "qwen3", tmp_path / "qwen3")
  model = policy_lib.with_adapters(config, loaded("qwen3")[0])
  params = hf.load(tmp_path / "qwen3", model, mesh())
  frozen, trained = adapters.begin(config, tmp_path, model, mesh(), params)
  assert set(trained) == {"adapters"} and frozen is params
  jax.tree.map(np.testing.assert_array_equal, adapters.frozen(config, tmp_path, model, mesh(fsdp=2)), params)
  moved = params | {"final_norm": params["final_norm"] * 2}
  shutil.rmtree(tmp_path / "qwen3")
  export.write_folder(moved, model.spec, FOLDERS / "qwen3", tmp_path / "qwen3", 10**9, "bfloat16")
  other = manifest.frozen_differences(
    checksums.of_leaves(params), adapters.frozen(config, tmp_path, model, mesh()), config
  )
  assert other == f"config.model.path = '{tmp_path / 'qwen3'}' holds other weights: final_norm"


def even(sample):
  """Right or wrong by a coin that every policy can flip."""
  return float(sample.length % 2 == 0)


def job_config(cache, steps):
  config = importlib.import_module("grpojax.recipes.grpo").get_config("tiny")  # with a reference
  config.update(cache_dir=str(cache), verbose=False, steps=steps, updates_per_rollout=1)
  config.mesh.data = 1
  config.eval.every = 9
  config.lora.rank, config.cold_start.steps = 2, 0
  config.optimizer.update(learning_rate=0.01, warmup_steps=0)
  with config.unlocked():
    config.reward.accuracy = dict(fn=f"{__name__}:even")
  return config


def run(config, workdir):
  train.run(train.prepare(config, workdir))
  return [r for r in metrics.read(workdir) if r["kind"] == "train"]


def final(workdir):
  config = ConfigDict(json.loads((workdir / "config.json").read_text()))
  model = policy_lib.build_model(config, text.load_tokenizer())
  on = sharding.make_mesh(config.mesh)
  return model, export.trained_params(workdir, model, on)[1], adapters.frozen(config, workdir, model, on)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_a_run_resumes_bit_for_bit_and_leaves_what_others_read(cache, tmp_path):
  whole = run(job_config(cache, 3), tmp_path / "whole")
  for r in whole:  # the sampler runs the adapters of now: the second step's are far from the first's
    assert r["sampling/sampling_logp_difference/max"] < 1e-4 and r["grad_norm"] > 0
  assert whole[0]["kl"] < 1e-9 and whole[2]["kl"] > 1e-3  # the reference is what is frozen
  run(job_config(cache, 2), tmp_path / "cut")
  resumed = run(job_config(cache, 3), tmp_path / "cut")
  timed = ("time/", "tokens_per_second/", "memory/", "wall")
  comparable = lambda rs: [{k: v for k, v in r.items() if not k.startswith(timed)} for r in rs]
  assert comparable(resumed) == comparable(whole)
  model, trained, frozen = final(tmp_path / "whole")
  jax.tree.map(np.testing.assert_array_equal, (trained, frozen), final(tmp_path / "cut")[1:])

  for flag, out in (("--adapters", "adapters"), ("--dtype=float32", "merged")):
    export.main([f"--workdir={tmp_path / 'cut'}", f"--out={tmp_path / out}", flag])
  merged = models.from_spec(models.from_folder(tmp_path / "merged"))
  expected = lora.merge_all(frozen | trained, model.spec, model.lora.scale)
  again = hf.load(tmp_path / "merged", merged, mesh())
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), again, expected)
  assert np.abs(again["layers"]["q"] - frozen["layers"]["q"]).max() > 1e-3
  config = job_config(cache, 1)
  config.lora.path = str(tmp_path / "adapters")
  jax.tree.map(np.testing.assert_array_equal, adapters.start(config, model, mesh()), trained)


def test_a_run_without_adapters_has_none_to_export(tmp_path):
  (tmp_path / "config.json").write_text(base.get_config("tiny").to_json_best_effort())
  with pytest.raises(ValueError, match=r"has none \(config.lora.rank = 0\)"):
    export.main([f"--workdir={tmp_path}", f"--out={tmp_path / 'out'}", "--adapters"])
