"""The pod check of GPUs: its sums beside the TPU's compiler, verdicts, the largest that fits, errors."""

import jax
import pytest
import subprocesses
from docs_pages import ROOT

from grpojax.config import commandline
from grpojax.recipes import dapo, gemma_gsm8k, gspo, qwen_gsm8k
from grpojax.runtime import chips
from grpojax.tools.podcheck import gpus, programs, topology
from grpojax.train import footprint
from grpojax.train.auto import Machine

GIB = 2**30
SHORT = {  # the update that docs/pods.md has against length, on v5e:2x2
  "model.path": "Qwen2.5-0.5B", "rollout.max_tokens": 512, "rollout.prompts": 16, "updates_per_rollout": 4,
  "mesh.context": 1, "mesh.sampler.tensor": 0, "microbatches": 8, "rollout.slots": 64, "logprob_chunk": 512,
}  # fmt: skip
LONG = {"rollout.max_tokens": 30_720}
MIXTURE = {  # what the scale `local` chooses on v5p:2x2x2
  "model.path": "Qwen3-30B-A3B", "mesh.data": 1, "mesh.fsdp": 4, "mesh.tensor": 2, "mesh.expert": 1,
  "mesh.context": 1, "mesh.rules.embed": "fsdp,context", "mesh.sampler.tensor": 1, "mesh.sampler.expert": 8,
  "rollout.slots": 1024, "microbatches": 11, "logprob_chunk": 1024, "remat": "attention",
}  # fmt: skip


def changed(config, changes):
  config.update_from_flattened_dict(changes)
  return config


def qwen(machine, **changes):
  return changed(qwen_gsm8k.get_config(machine), {"model.path": "Qwen2.5-0.5B-Instruct"} | changes)


COMPILED = {  # what the TPU's compiler needs for the update, GiB: docs/hardware.md, docs/pods.md
  "v5e1": (lambda: qwen("v5e1"), 1, 11.5),
  "v5e8": (lambda: qwen("v5e8"), 8, 3.17),
  "gemma": (lambda: changed(gemma_gsm8k.get_config("v5e8"), {"model.path": "gemma-3-1b"}), 8, 5.51),
  "2,559 tokens": (lambda: changed(dapo.get_config("paper"), SHORT), 4, 4.89),
  "32,767 tokens": (lambda: changed(dapo.get_config("paper"), SHORT | LONG), 4, 14.3),
  "mixture": (lambda: changed(gspo.get_config("local"), MIXTURE), 8, 88.2),
}


@pytest.mark.parametrize("name", COMPILED)
def test_the_compiler_needs_what_the_sums_say_and_at_most_so_many_times_as_much(name, tmp_path):
  config, devices, needed = COMPILED[name]
  plan = programs.plan(config(), Machine(jax.devices()[:devices], 16e9, attention="splash"), tmp_path)
  phase = footprint.phases(plan)[0]
  assert phase.name == "update" and 0.95 * phase.least <= needed * GIB <= phase.most, phase


def test_the_page_has_the_table_that_the_command_prints(tmp_path, monkeypatch):
  monkeypatch.delenv(gpus.FRACTION, raising=False)
  found = gpus.check(qwen("gpu"), a_gpu("24"), tmp_path)
  table = [line for line in gpus.text(found).splitlines() if line.startswith("|")]
  assert "\n".join(table) in (ROOT / "docs" / "hardware.md").read_text()


def a_gpu(size, count=1):
  return topology.Slice(f"gpu:{size}", jax.devices()[:count], chips.gpu(size), True)


def test_half_a_billion_parameters_fit_24_gb_and_not_8(tmp_path, monkeypatch):
  monkeypatch.delenv(gpus.FRACTION, raising=False)
  config = qwen("gpu")
  assert gpus.check(config, a_gpu("24"), tmp_path).verdict == "fits"
  assert gpus.check(config, a_gpu("14"), tmp_path).verdict == "may fit"
  assert gpus.check(config, a_gpu("8"), tmp_path).verdict == "does not fit"
  monkeypatch.setenv(gpus.FRACTION, "0.95")
  assert gpus.check(config, a_gpu("14"), tmp_path).verdict == "fits"


def test_state_is_what_adam_in_float32_takes_and_kv_what_a_token_has(tmp_path):
  """12 bytes a parameter and 4 of its gradient; 2 x 24 layers x 2 heads x 64 x 2 bytes a token."""
  update, decoding = (phase.parts for phase in gpus.check(qwen("gpu"), a_gpu("24"), tmp_path).phases)
  count = 494_032_768  # https://huggingface.co/Qwen/Qwen2.5-0.5B: 0.49 B
  assert update["parameters"] == update["gradients"] == 4 * count
  assert update["optimiser"] == pytest.approx(8 * count, rel=1e-6)
  assert decoding["keys and values"] == 2 * 24 * 2 * 64 * 2 * (64 * 384 + 256 * 512)


def test_adapters_need_neither_moments_nor_gradients_of_the_model(tmp_path):
  whole, few = (
    gpus.check(qwen("gpu", **change), a_gpu("24"), tmp_path).phases[0].parts
    for change in ({}, {"lora.rank": 16})
  )
  assert few["parameters"] > whole["parameters"] and few["optimiser"] < 0.05 * whole["optimiser"]


def test_attention_without_a_kernel_makes_its_scores(tmp_path):
  config = qwen("gpu", **{"rows": "single", "rollout.max_tokens": 8192})
  machine = lambda attention: Machine(jax.devices()[:1], 24e9, attention=attention)
  plan = lambda attention: programs.plan(config, machine(attention), tmp_path)
  kernel, plain = (footprint.phases(plan(attention))[0].parts for attention in ("cudnn", ""))
  assert plain["a layer, or logits"] > kernel["a layer, or logits"]


def test_devices_that_add_up_alone_hold_what_they_sum_twice(tmp_path):
  """Their own gradient and the sum; where parameters are cut, or a kernel needs the mesh, the sum alone."""
  config = lambda **cut: qwen("gpu", **{"mesh.data": 1, **{f"mesh.{axis}": n for axis, n in cut.items()}})
  machine = lambda attention="": Machine(jax.devices()[:2], 24e9, attention=attention)
  parts = lambda c, where: footprint.phases(programs.plan(c, where, tmp_path))[0].parts
  alone = parts(config(data=2), machine())
  assert alone[footprint.SUMMED] == alone["gradients"] > 0
  assert footprint.SUMMED not in parts(config(fsdp=2), machine())
  assert footprint.SUMMED not in parts(config(data=2), machine("cudnn"))


def test_the_largest_values_fit_and_twice_as_much_does_not(tmp_path, monkeypatch):
  monkeypatch.delenv(gpus.FRACTION, raising=False)
  config, where = qwen("gpu"), a_gpu("40")
  for one in gpus.largest(gpus.check(config, where, tmp_path), tmp_path):
    assert gpus.check(config, where, tmp_path, {one.key: one.value}).verdict == "fits"
    if one.key == "rollout.max_tokens":
      assert gpus.check(config, where, tmp_path, {one.key: 2 * one.value}).verdict != "fits"
    if one.key == "microbatches":
      assert one.value < one.now, "a card of 40 GB has room for larger pieces"


def test_what_does_not_fit_is_changed_until_it_does(tmp_path, monkeypatch):
  monkeypatch.delenv(gpus.FRACTION, raising=False)
  config, where = qwen("gpu"), a_gpu("14")
  found = gpus.check(config, where, tmp_path)
  tried = [(change, gpus.check(config, where, tmp_path, change).verdict) for change in gpus.changes(found)]
  assert found.verdict != "fits" and tried[0] == ({"microbatches": 32}, "may fit")
  assert ({"lora.rank": 16}, "fits") in tried


def test_seconds_are_said_of_a_gpu_with_a_name_alone(tmp_path):
  """docs/hardware.md: 1,815 TFLOP and 3.2 TB a step, at 0.4 of 989 TFLOP/s, when prompts were not shared."""
  named = gpus.check(qwen("gpu"), a_gpu("H100"), tmp_path)
  assert 3 < sum(named.seconds.values()) < 12 and "A step: " in gpus.text(named)
  assert "A step: " not in gpus.text(gpus.check(qwen("gpu"), a_gpu("24"), tmp_path))


@pytest.mark.parametrize("name", ["gpu:V100", "gpu:0xH100", "gpu:1.2.3"])
def test_a_gpu_without_a_number_is_refused(name):
  with pytest.raises(ValueError, match=f"--topology={name} is no GPU; it is gpu:GB or one of gpu:H100"):
    topology.find(name)


def test_the_command_prints_the_table_and_the_flags(capsys, tmp_path):
  from grpojax.tools.podcheck import command

  data = command._of_gpus(commandline.config_of(["--config=configs/grpo.py:tiny"]), a_gpu("24"), tmp_path)
  out = capsys.readouterr().out
  assert "**fits** in 18.0 GB" in out and "--config.rollout.max_tokens=" in out
  assert data["verdict"] == "fits" and set(data["phases"]) == {"update", "decoding"}


def test_a_search_compiles_so_a_gpu_has_none():
  flags = "--config=configs/gspo.py:local", "--config.model.path=Qwen2.5-0.5B", "--search"
  done = subprocesses.run_one("grpojax", "podcheck", *flags, "--topology=gpu:24")
  assert done.code and "--search compiles updates, and none is for --topology=gpu:24" in done.err
