"""What keys ask of each other, refused in one sentence that names the key; and a workdir's config."""

import importlib

import pytest

from grpojax.config import check, recipe, workdir
from grpojax.recipes import base, smollm2


def changed(**changes):
  c = base.get_config()
  c.unlock()
  for key, value in changes.items():
    *path, leaf = key.split("__")
    node = c
    for part in path:
      node = node[part]
    node[leaf] = value
  return c


def test_the_default_is_legal():
  check.check(base.get_config(), devices=1)
  check.check(base.get_config(), devices=8)


@pytest.mark.parametrize(
  ("changes", "sentence"),
  [
    (dict(rollout__max_tokens=0), "config.rollout.max_tokens = 0 must be at least 1"),
    (dict(guard__spike=-1.0), "config.guard.spike = -1.0 must not be negative"),
    (dict(rollout__group_size=0), "config.rollout.group_size = 0 must be at least 1"),
    (dict(model__path="me/mine"), "config.model.path is for a model and data of one's own, .* add ':local'"),
    (dict(data__path="rows.jsonl"), "config.data.path is for .*, and scale 'mini' is the embedded"),
    (dict(data__task="reasoning_gym:gcd"), "config.data.task is for .* add ':local' to the recipe"),
    (dict(rollout__prompts=31), "config.rollout.prompts = 31 must be divisible by"),
    (dict(rows="groups"), "config.rows = 'groups'"),
    (dict(microbatches=5, rows="single"), "config.microbatches = 5 must divide the 16 prompts of one update"),
    (dict(rollout__temperature=0.0), "config.rollout.temperature = 0.0 must be positive"),
    (dict(rollout__slots=-2), "config.rollout.slots = -2 must be -1, 0 or a number of slots"),
    (dict(rollout__slots=0, rollout__kv_memory_gb=1.0), "config.rollout.slots = 0 has none"),
    (dict(mesh__data=3, mesh__tensor=-1), "does not fit the 8 device"),
    (dict(mesh__tensor=16), "does not fit the 8 device"),
    (dict(mesh__fsdp=-1), "at most one may be -1"),
    (dict(mesh__fsdp=-2), "config.mesh.fsdp = -2 is no size of a mesh axis"),
    (dict(mesh__sampler__tensor=-2), "must be a size, 0 for no own mesh, or -1 to choose one"),
    (dict(mesh__sampler__tensor=3), "must divide the 8 devices"),
    (dict(mesh__sampler__tensor=8, mesh__slices=2), "must divide; lower its tensor or expert"),
    (dict(mesh__sampler__tensor=2, rollout__prompts=6, mesh__data=2, mesh__fsdp=1, mesh__context=4,
          updates_per_rollout=1), "divisible by the 4 shards of prompts"),
    (dict(mesh__slices=3), "config.mesh.slices = 3 must divide it"),
    (dict(mesh__rules__embed="fsdp,model"), "'model' is no axis of the mesh"),
    (dict(mesh__rules__heads="auto"), "'auto' is no axis of the mesh"),
    (dict(mesh__rules__embed="auto", mesh__rules__vocab="fsdp"), "embed and .vocab both name 'fsdp'"),
    (dict(mesh__rules__vocab="fsdp"), "config.mesh.rules.embed and .vocab both name 'fsdp'"),
    (dict(mesh__rules__layers="tensor"), "both name 'tensor'"),
    (dict(mesh__rules__mlp="fsdp"), "config.mesh.rules.mlp = 'fsdp'; it is 'tensor' or ''"),
    (dict(mesh__rules__expert="tensor"), "config.mesh.rules.expert = 'tensor'; it is 'expert' or ''"),
    (dict(rollout__prompts=4), "config.mesh.expert = 8 must divide"),
    (dict(cold_start__batch_size=12), "config.cold_start.batch_size = 12 must be divisible"),
    (dict(model__num_key_value_heads=3), "must be divisible by config.model.num_key_value_heads"),
    (dict(model__head_dim=7), "config.model.head_dim = 7 must be even"),
    (dict(model__num_experts=2, model__num_experts_per_tok=3), "must lie in 1 to config.model.num_experts"),
    (dict(routing_replay="R1"), "config.routing_replay = 'R1'; it is '' or 'R2' or 'R3'"),
    (dict(load_balance=-0.1), "config.load_balance = -0.1 must not be negative"),
    (dict(load_balance=0.1, routing_replay="R2"), "would count no token"),
    (dict(routing_replay="R3", difficulty__kind="beta"), "routing by the sampler is not k"),
    (dict(rollout__top_k=513), "config.rollout.top_k = 513 records as many numbers"),
    (dict(rollout__top_k=8, difficulty__kind="beta"), "of which config.rollout.top_k = 8 keeps no sets"),
    (dict(reference="ref"), "config.reference = 'ref' is neither '' nor 'init' nor a policy's folder"),
    (dict(eval__top_p=0.0), "config.eval.top_p = 0.0 must lie in"),
    (dict(baseline__kind="median"), "config.baseline.kind = 'median'; it is '' or 'mean' or 'prompt'"),
    (dict(baseline__kind="prompt"), "needs config.difficulty.kind"),
    (dict(baseline__rate=0.0), "config.baseline.rate = 0.0 is the weight of the new value"),
    (dict(difficulty__weighted=True), "config.difficulty.weighted, .offline and .drop_solved need"),
    (dict(difficulty__drop_solved=0.9), "config.difficulty.weighted, .offline and .drop_solved need"),
    (dict(difficulty__kind="ema", difficulty__offline=3), "multiple of config.rollout.group_size = 8"),
    (dict(difficulty__kind="ema", difficulty__weighted=True, difficulty__floor=0.0), "must be positive"),
    (dict(difficulty__kind="beta", dynamic_sampling__enabled=True), "compares a prompt's last completions"),
    (dict(adaptive_group__stop="enough"), "config.adaptive_group.stop = 'enough'"),
    (dict(adaptive_group__stop="balanced", dynamic_sampling__enabled=True), "turn one of them off"),
    (dict(reference_sync__every=5), "set config.reference = 'init'"),
    (
      dict(
        reference="init", objective__penalty={"kl": {"fn": "kl_k3", "beta": 0.1}}, kl_control__target=0.1,
        kl_control__horizon=2,
      ),
      "config.kl_control.horizon = 2 is completions, and a step has",
    ),
    (dict(kl_control__target=0.1), "config.kl_control.target moves the coefficient of a KL term"),
    (dict(process__scorer="rules:nothing"), "config.process.scorer = 'rules:nothing' must be"),
    (dict(objective__advantage=dict(fn="mixed_baseline")), "set config.baseline.kind"),
    (dict(objective__advantage=dict(fn="pooled")), "set config.adaptive_group.stop"),
    (dict(objective__advantage=dict(fn="process_supervision")), "set config.process.scorer"),
  ],
)
def test_one_sentence_that_names_the_key(changes, sentence):
  with pytest.raises(ValueError, match=sentence) as error:
    check.check(changed(**changes), devices=8)
  assert "\n" not in str(error.value)


@pytest.mark.parametrize(("key", "value", "off"), [("top_p", 0.9, "1.0"), ("min_p", 0.1, "0.0")])
def test_truncation_in_training_needs_a_bound_of_what_it_keeps(key, value, off):
  check.check(changed(**{f"eval__{key}": value}), devices=1)
  check.check(changed(**{f"rollout__{key}": value, "rollout__top_k": 512}), devices=1)
  with pytest.raises(ValueError, match=rf"config\.rollout\.{key} = {value} samples from part of") as error:
    check.check(changed(**{f"rollout__{key}": value}), devices=1)
  assert f"set config.rollout.top_k, at most 512, or config.rollout.{key} = {off}." in str(error.value)


@pytest.mark.parametrize("depth", [0, 1, 2, 7])
def test_rollouts_may_be_any_number_of_steps_ahead(depth):
  check.check(changed(staleness=depth), devices=1)


@pytest.mark.parametrize("name", [name for name in recipe.variants() if name != "base"])
def test_the_pretrained_model_learns_by_any_recipe(name):
  c = smollm2.get_config(name)
  check.check(c, devices=1)
  own = importlib.import_module(f"grpojax.recipes.{name}").get_config().objective
  assert all(c.objective[slot] == own[slot] for slot in ("advantage", "ratio", "surrogate", "correct"))


def test_unknown_scale_names_the_choices():
  with pytest.raises(ValueError, match="Config scale 'huge' is unknown; choose one of mini, tiny"):
    base.get_config("huge")


def test_a_group_of_one_has_no_baseline():
  with pytest.raises(ValueError, match="group_size"):
    check.check(changed(rollout__group_size=1), devices=1)


def test_a_workdir_of_another_config_names_the_differing_keys(tmp_path):
  workdir.claim(tmp_path, base.get_config())
  workdir.claim(tmp_path, changed(steps=99, verbose=False, mesh__tensor=2))
  with pytest.raises(ValueError, match=r"model\.hidden_size: 64 -> 32") as error:
    workdir.claim(tmp_path, changed(model__hidden_size=32, seed=1))
  assert "seed: 0 -> 1" in str(error.value) and "steps" not in str(error.value)
