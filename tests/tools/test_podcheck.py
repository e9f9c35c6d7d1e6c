"""The pod check: what it compiles is what a run calls, what it says adds up, and TPUs' compiler agrees."""

import json
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import podcheck_toys
import pytest
from objective_toys import recipe

from grpojax import models
from grpojax.config import check as config_lib
from grpojax.learner import batching, logprobs, rows
from grpojax.rollout.dynamic_sampling import Groups
from grpojax.runtime import chips, sharding
from grpojax.tools.podcheck import (
  abstract,
  check,
  compiled,
  known,
  necessary,
  programs,
  search,
  suggest,
  table,
  topology,
)
from grpojax.tools.podcheck.roofline import estimate
from grpojax.train.auto import Machine
from grpojax.types import Prompts, Rollout, Scored


@pytest.fixture(autouse=True)
def _programs_with_their_names():
  """Counts read the names of loops, which the kept programs of other tests may have from an older commit."""
  jax.config.update("jax_compilation_cache_include_metadata_in_key", True)
  yield
  jax.config.update("jax_compilation_cache_include_metadata_in_key", False)


def groups(config, model):
  """Any scored rollout of this config, on the host."""
  c, L = config.rollout, config.data.prompt_budget
  P, G, T = c.prompts, c.group_size, c.max_tokens
  zero = np.zeros((P, G), np.float32)
  routing, extra = None, {}
  if config.routing_replay == "R3":
    shape = (P, G, L + T - 1, model.spec.num_hidden_layers, model.spec.moe.num_experts_per_tok)
    routing = np.zeros(shape, np.int8)
  if config.adaptive_group.stop:
    extra = dict(pool_mean=zero, pool_std=zero)
  if config.process.scorer:
    steps = np.zeros((P, G, config.process.max_steps))
    extra |= dict(step_score=steps.astype(np.float32), step_end=steps.astype(np.int32))
  if config.moment.kind:
    extra |= dict(moment=zero)
  if config.objective.advantage.fn == "gdpo":
    part = np.zeros((P, G, len(config.reward)), np.float32)
    extra |= dict(part=part, part_valid=part == 0, part_weight=part)
  length, tokens = np.full((P, G), T, np.int32), np.zeros((P, G, T), np.int32)
  ids = np.arange(P, dtype=np.int32)
  prompts = Prompts(np.zeros((P, L), np.int32), np.full(P, L, np.int32), ids, [{}] * P)
  kept = np.zeros((P, G, T, min(c.top_k, model.spec.vocab_size)), np.int32) if c.top_k else None
  rollout = Rollout(tokens, length, zero > 0, *[tokens.astype(np.float32)] * 2, routing, kept=kept)
  return Groups(prompts, rollout, Scored(zero, zero, zero == 0, {}, extra))


def passes(config, model):
  """In the place of the log-prob program."""

  def logp(_, tokens, prompt_length, routing, counted, place, context, kept):
    P, G, S = tokens.shape
    out, cost = jnp.zeros((P, G, config.rollout.max_tokens)), None
    if counted is not None:
      cost = jnp.zeros((P, G, model.spec.moe.num_experts))
    if config.routing_replay:
      shape = (P, G, S - 1, model.spec.num_hidden_layers, model.spec.moe.num_experts_per_tok)
      routing = jnp.zeros(shape, jnp.int8)
    return out, out, routing, cost

  return logp


CASES = {
  "dapo": {},
  "gspo": dict(reference="init", rows="single"),
  "moe": {},
  "moe R2": dict(load_balance=0.0, routing_replay="R2"),
  "moe R3": dict(load_balance=0.0, routing_replay="R3"),
  "grpo stale": dict(staleness=1),
  "grpo kept": {"rollout.top_k": 20, "rollout.top_p": 0.9},
  "reinforce_pp_baseline": {},
  "lite_ppo": {"baseline.kind": "mean"},
  "gdpo": {},
  "scale_rl": {},
  "dr_grpo": {"adaptive_group.stop": "balanced", "process.scorer": "grpojax.rewards.learned:steps"},
}


@pytest.mark.parametrize("case", CASES)
def test_the_batch_is_shaped_as_one_that_a_run_deals(case):
  config = recipe(case.split()[0], "tiny")
  config.update_from_flattened_dict(CASES[case])
  mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
  model = models.build(config.model, 30)
  baseline = np.zeros(config.rollout.prompts, np.float32) if config.baseline.kind else None
  pack = rows.pack_spec(config, model, mesh)
  dealt = batching.make_batches(config, mesh, pack, groups(config, model), baseline)
  reference = config.reference and {"some": 1}
  first_pass = logprobs.needs_old_logprobs(config)
  for batch in logprobs.add_logprobs(passes(config, model), {}, reference, dealt, first_pass):
    shape = lambda x: (x.shape, x.dtype)
    assert jax.tree.map(shape, batch) == jax.tree.map(shape, abstract.batch(config, model))


def podcheck(*flags):
  return podcheck_toys.python("-m", "grpojax", "podcheck", *flags)


SMALL = ["--config.rollout.prompts=8", *(f"--config.mesh.{axis}=2" for axis in ("data", "fsdp", "tensor"))]


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
  path = tmp_path_factory.mktemp("podcheck") / "made before anything compiles" / "check.json"
  done = podcheck("--config=configs/dapo.py:tiny", "--topology=cpu:8", f"--json={path}", *SMALL)
  assert not done.returncode, done.stderr
  return done.stdout, json.loads(path.read_text())


@pytest.mark.slow
def test_the_command_prints_one_table_and_writes_the_same_as_data(on_cpu):
  text, data = on_cpu
  assert "**fits**" in text and "data 2, fsdp 2, tensor 2" in text
  assert set(data["programs"]) >= {"update", "log-probs", "prefill", "decode"}
  for name, part in data["programs"].items():
    assert f" {name} |" in text
    assert part["flops"] > 0 or name == "weights"
    assert not part["refused"]
    total = sum(part["memory"].values()) - part["memory"]["beside"]
    assert total == pytest.approx(part["of_compiler"], rel=1e-6) or part["memory"]["temporaries"] == 0


@pytest.mark.slow
def test_flops_are_those_of_the_model_and_of_what_is_computed_again(on_cpu):
  _, data = on_cpu
  # four passes' worth of products where three are necessary, and what packing and masks compute in vain
  assert 1.2 < data["update_flops_over_necessary"] < 4
  update, logp = (data["programs"][name]["flops"] for name in ("update", "log-probs"))
  assert 3 < update / logp < 5


def test_log_probs_are_counted_of_the_chunks_that_full_responses_reach(tmp_path):
  """Rows of 126 columns hold two responses of 48: one chunk has all, of chunks of 16 six are computed."""

  def flops(chunk):
    config = recipe("dapo", "tiny")
    config.logprob_chunk = chunk
    one = topology.Slice("cpu", jax.devices()[:1], None, False)
    part = check.check(config, one, tmp_path, ("log-probs",)).parts["log-probs"]
    return podcheck_toys.flops(part.compiled.counts)

  hidden, vocabulary, rows = 32, 260, 4
  assert flops(126) - flops(16) == 2 * hidden * vocabulary * rows * (126 - 6 * 16)


@pytest.mark.slow
@podcheck_toys.needs_libtpu
@pytest.mark.parametrize("slice", ["v5e:2x4", "v6e:2x4"])
def test_a_tpus_compiler_takes_the_same_program(slice, on_cpu, tmp_path):
  """v6e carries collectives out on other cores."""
  path = tmp_path / "check.json"
  same = *SMALL, "--config.attention=reference"  # a TPU's kernel would read whole blocks of 128 columns
  done = podcheck("--config=configs/dapo.py:tiny", f"--topology={slice}", f"--json={path}", *same)
  assert not done.returncode, done.stderr
  data = json.loads(path.read_text())
  assert data["fits"] and data["seconds_per_step"] > 0
  assert data["programs"]["update"]["flops"] == on_cpu[1]["programs"]["update"]["flops"]
  assert {w["axis"] for w in data["programs"]["update"]["wire"]} >= {"data", "fsdp", "tensor"}


@pytest.mark.slow
@podcheck_toys.needs_libtpu
def test_slices_exchange_over_the_network_what_their_data_shares(tmp_path):
  path = tmp_path / "check.json"
  cut = (f"--config.mesh.{key}" for key in ("slices=2", "data=2", "fsdp=4"))
  rows = "--config.rollout.prompts=16", "--config.rollout.slots=16", "--programs=update"
  done = podcheck("--config=configs/dapo.py:tiny", "--topology=v5e:2x2", f"--json={path}", *cut, *rows)
  assert not done.returncode, done.stderr
  wire = json.loads(path.read_text())["programs"]["update"]["wire"]
  assert {w["axis"] for w in wire} == {"slice", "fsdp"}  # `data` is nothing but the two slices


@pytest.mark.parametrize("slots, prompts", [(16, 4), (8, 2), (6, 2), (1, 1)])
def test_a_decoded_token_needs_the_prompts_that_slots_work_on(slots, prompts, tmp_path):
  """Of 4 prompts with 4 samples each."""
  config = recipe("grpo", "tiny")
  config.rollout.slots = slots
  plan = programs.plan(config, Machine(jax.devices()[:1], 16e9), tmp_path)
  own, L = slots * (config.rollout.max_tokens - 1), config.data.prompt_budget
  assert necessary.decode(0, 1.0, plan) == pytest.approx((own + prompts * L) / (own + 4 * L))


@pytest.mark.slow
def test_what_no_compiler_knows_is_said_in_one_sentence():
  with pytest.raises(ValueError, match=r"--topology=v5p is no|--topology=tpu:4 is no slice"):
    topology.find("tpu:4")
  for name in "cpu:0", "cpu:x":
    with pytest.raises(ValueError, match=f"--topology={name} has no devices; it is cpu:N"):
      topology.find(name)
  done = podcheck("--config=configs/dapo.py:tiny", "--topology=cpu:8", "--config.mesh.data=3")
  assert done.returncode and "Traceback" not in done.stderr and "config.mesh" in done.stderr


# Parameters of the released checkpoints: the totals of their safetensors; Gemma's by KerasHub's presets.
RELEASED = {
  "Qwen2.5-0.5B": 494_032_768, "Qwen2.5-1.5B": 1_543_714_304, "Qwen2.5-3B": 3_085_938_688,
  "Qwen2.5-7B": 7_615_616_512, "Qwen2.5-14B": 14_770_033_664, "Qwen2.5-32B": 32_763_876_352,
  "Qwen2.5-72B": 72_706_203_648, "Qwen3-30B-A3B": 30_532_122_624, "gemma-3-1b": 999_885_952,
}  # fmt: skip


@pytest.mark.parametrize("name", known.MODELS)
def test_a_model_known_by_name_has_the_parameters_of_the_released_one(name, tmp_path):
  shapes = models.from_spec(models.from_folder(known.folder(name, tmp_path))).shapes
  assert sum(x.size for x in jax.tree.leaves(shapes)) == RELEASED[name]


def test_gemmas_layers_alternate_as_the_released_ones(tmp_path):
  """Five of a window of 512 and rotary base 10,000, then one that sees all, of base 1,000,000."""
  spec = models.from_folder(known.folder("gemma-3-1b", tmp_path))
  whole = [layer % 6 == 5 for layer in range(26)]
  assert spec.windows == tuple(0 if sees_all else 512 for sees_all in whole)
  assert [spec.ropes[i].theta for i in spec.rope_of] == [1e6 if sees_all else 1e4 for sees_all in whole]


@pytest.mark.parametrize("tuned", ["Qwen/Qwen2.5-0.5B-Instruct", "google/gemma-3-1b-it"])
def test_a_hubs_id_of_a_tuned_model_has_the_shapes_of_the_one_it_is_tuned_from(tuned, tmp_path):
  folder = known.folder(tuned, tmp_path)
  assert folder.parent == tmp_path and folder.name in known.MODELS
  assert known.folder("me/Other-Instruct", tmp_path).name == "Other-Instruct"


def test_chips_are_found_by_what_devices_call_themselves():
  assert chips.of_device("NVIDIA H100 80GB HBM3") == chips.GPUS["H100"]
  assert chips.of_device("TPU v5 lite") == chips.TPUS["v5e"]
  assert chips.of_device("TPU v5") == chips.TPUS["v5p"]
  assert chips.of_device("TPU7x") == chips.TPUS["tpu7x"]
  assert chips.of_device("cpu") is None


@pytest.mark.parametrize("staleness, seconds", [(1, 6.0), (0, 10.0)])
def test_devices_that_sample_count_as_chips_and_work_beside_those_that_learn(tmp_path, staleness, seconds):
  config = recipe("dapo", "tiny")
  config.update(staleness=staleness, updates_per_rollout=1)
  config.mesh.rollout_devices = 2
  where = topology.Slice("cpu", jax.devices()[:4], None, False)
  plan = programs.plan(config, where.machine, tmp_path)
  counts = SimpleNamespace(open_loops=[])
  done, none = compiled.Compiled(1.0, "", 0.0, 0.0, 0.0, counts), float("nan")

  def taking(calls, seconds):
    of_call = estimate.Estimate(1.0, 0.0, 1.0, {}, none, none, none, seconds, seconds)
    return check.Checked(calls, done, {}, 0.0, of_call)

  parts = {"update": taking(2, 3.0), "prefill": taking(1, 4.0)}
  data = table.data(check.Check(where, plan, parts))
  assert data["chips"] == 4 and data["seconds_per_step"] == seconds
  assert (data["seconds_learning"], data["seconds_sampling"]) == (6.0, 4.0)
  tokens = config.rollout.prompts * config.rollout.group_size * config.rollout.max_tokens
  assert data["tokens_per_second_per_chip"] == tokens / seconds / 4


def test_a_part_of_a_slice_that_the_compiler_does_not_take_is_said_in_one_sentence():
  class Lowered:
    def compile(self, compiler_options):
      raise jax.errors.JaxRuntimeError("INTERNAL: RET_CHECK failure: target has 32 device_id")

  where = topology.Slice("v6e:8x8", jax.devices()[:4], chips.TPUS["v6e"], True)
  of = lambda devices: programs.Program(None, (), Lowered(), {}, 1, {"fsdp": devices})
  with pytest.raises(ValueError, match=r"config.mesh.rollout_devices leaves a part of v6e:8x8 to each"):
    compiled.compile_for(where, of(2))
  with pytest.raises(jax.errors.JaxRuntimeError):
    compiled.compile_for(where, of(4))


def pretend(monkeypatch, gib):
  """check.check without a compiler: a program takes gib(config), on a chip of 16 GiB."""
  mesh = sharding.make_mesh(recipe("dapo", "tiny").mesh, jax.devices()[:1])
  seen = []

  def checked(config, where, scratch, only=()):
    seen.append((config.to_dict(), only))
    config_lib.check(config, 1)
    needed = gib(config) * chips.GIB
    done = compiled.Compiled(1.0, "", needed, 0.0, 0.0, None)
    parts = {name: check.Checked(1, done, {}, needed, None) for name in only or ("update", "decode")}
    sizes = config, mesh, None, None, config.rollout.slots, config.microbatches, 100
    plan = programs.Plan(*sizes, None, {}, "")
    return check.Check(where, plan, parts)

  monkeypatch.setattr(check, "check", checked)
  return topology.Slice("v5e:8x8", [], chips.TPUS["v5e"], True), seen


def suggestions(monkeypatch, tmp_path, gib, **changes):
  config = recipe("dapo", "tiny")
  config.update_from_flattened_dict(changes)
  where, seen = pretend(monkeypatch, gib)
  tried = list(suggest.suggest(config, check.check(config, where, tmp_path), tmp_path))
  assert all(only == ("update", "decode") for _, only in seen[1:])
  return tried


def test_suggestions_stop_at_the_first_that_fits(monkeypatch, tmp_path):
  tried = suggestions(monkeypatch, tmp_path, lambda c: 10 if c.rollout.kv_cache == "int8" else 17)
  assert [t.fits for t in tried] == [False] * (len(tried) - 1) + [True]
  assert table.flags(tried[-1].change) == "--config.rollout.kv_cache=int8"
  assert tried[-1].needed == 10 * chips.GIB
  assert not suggestions(monkeypatch, tmp_path, lambda c: 15)


def test_suggestions_end_with_all_that_is_possible_together(monkeypatch, tmp_path):
  halves = lambda c: 40 / 2 ** ((c.rollout.kv_cache == "int8") + (c.optimizer.state_dtype == "bfloat16"))
  tried = suggestions(monkeypatch, tmp_path, halves, remat="none")
  assert tried[-1].fits and {"rollout.kv_cache", "optimizer.state_dtype", "remat"} <= tried[-1].change.keys()
  alone = [t for t in tried[:-1] if not t.error]
  assert all(len(t.change) <= 2 and not t.fits for t in alone)


def test_a_search_looks_at_every_mesh_once_and_lists_the_fastest_that_fit():
  found = [tuple(sizes.values()) for sizes in search.meshes(8, mixture=True)]
  assert len(found) == len(set(found)) == 20  # ways to write 8 as a product of four
  assert all(math.prod(sizes) == 8 for sizes in found)
  assert {sizes[3] for sizes in (tuple(s.values()) for s in search.meshes(8, mixture=False))} == {1}

  def candidate(seconds, fits=True):
    part = SimpleNamespace(estimate=SimpleNamespace(seconds=seconds), needed=1.0)
    return search.Candidate({}, SimpleNamespace(fits=fits, parts={"update": part}), "")

  times = [3.0, 1.0, 7.0, 2.0, 6.0, 5.0]
  listed = search.best([candidate(0.5, fits=False), search.Candidate({}, None, "no"), *map(candidate, times)])
  assert [c.seconds for c in listed] == [1.0, 2.0, 3.0, 5.0, 6.0]
