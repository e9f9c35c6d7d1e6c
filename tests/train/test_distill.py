"""Whole jobs whose loss has terms of its own: a teacher's log-probs, right answers, pairs."""

import importlib
import json
import shutil
from types import SimpleNamespace

import data_toys
import jax
import numpy as np
import pytest
from model_folders import FOLDERS

from grpojax import models, train
from grpojax.config import check
from grpojax.data import text
from grpojax.learner import batching
from grpojax.models import hf
from grpojax.runtime import metrics
from grpojax.tools import export
from grpojax.train import step
from grpojax.train import teacher as teacher_lib


def tiny(cache, recipe="distill", **changes):
  config = importlib.import_module(f"grpojax.recipes.{recipe}").get_config("tiny")
  config.update(cache_dir=str(cache), verbose=False, **changes)
  config.mesh.data = 1
  return config


def start(config, workdir, kind="train"):
  train.run(train.prepare(config, workdir))
  return [record for record in metrics.read(workdir) if record["kind"] == kind]


def write_teacher(folder, seed: int):
  """A model of other sizes than the student, whose logits are far from flat."""
  config = tiny("").model
  config.update(hidden_size=48, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3)
  tokenizer = text.load_tokenizer()
  model = models.build(config, len(tokenizer))
  params = jax.tree.map(lambda x: 4 * x if x.ndim == 2 else x, jax.jit(model.init)(jax.random.key(seed)))
  export.write_folder(params, model.spec, text.EMBEDDED, folder, 10**9, "float32")
  return folder


def write_teacher_of(family, folder):
  """A model of another family, with a head of 320 tokens, more than the tokenizer's; a folder's path."""
  source = folder.with_name(f"{folder.name}-made-from")
  shutil.copytree(text.EMBEDDED, source)
  described = json.loads((FOLDERS / family / "config.json").read_text()) | dict(vocab_size=320)
  (source / "config.json").write_text(json.dumps(described))
  spec = models.from_folder(source)
  params = jax.jit(models.from_spec(spec).init)(jax.random.key(3))
  params = jax.tree.map(lambda x: 2 * x if x.ndim == 2 else x, params)
  export.write_folder(params, spec, source, folder, 10**9, "float32")
  return str(folder)


def bound(folder, mesh):
  model = models.from_spec(models.from_folder(folder))
  return model.bind(hf.load(folder, model, mesh))


def log_softmax_of(decoder, tokens, temperature=1.0):
  """[S, V] in float64, of one sequence by itself; nothing sees the padding behind it."""
  row = np.pad(tokens, (0, 96 - len(tokens)))[None]
  hidden = decoder(row, np.zeros(1, np.int32))[0, : len(tokens)]
  logits = np.asarray(decoder.logits(hidden), np.float64) / temperature
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
  return write_teacher(tmp_path_factory.mktemp("teacher") / "one", 0)


def test_a_teacher_of_another_tokenizer_is_refused():
  numbers = lambda **tokens: SimpleNamespace(get_vocab=lambda: tokens)
  more = numbers(a=0, b=1, c=2, d=3)
  teacher_lib.check_tokenizer("folder", more, numbers(a=0, b=1))  # what it has beside them is never asked
  for theirs in (numbers(a=1, b=0, c=2), numbers(c=2)):
    with pytest.raises(ValueError) as error:
      teacher_lib.check_tokenizer("folder", theirs, numbers(a=0, b=1, c=2))
    assert str(error.value) == (
      "config.teacher.path = 'folder' has another tokenizer: 2 of the policy's 3 tokens have another number "
      "there, or none, and distillation compares log-probs of tokens; name a teacher of the policy's family."
    )


def test_each_row_has_the_log_probs_of_its_own_teacher():
  """Of three teachers, in the order of their names; "*" has the rows that no other is named for."""
  config = tiny("")
  config.teacher.column = "task"
  config.teacher.paths = {"words": "w", "digits": "d", "*": "any"}
  rows = [dict(task=task) for task in ("digits", "poems", "words", "digits")]
  numbers = np.array([batching.teacher_of(config, row) for row in rows])
  assert numbers.tolist() == [1, 0, 2, 1] and "teacher" in batching.extra_fields(config)
  logp = lambda params, tokens, *_: (params + tokens, None)
  of = lambda n: teacher_lib.Teacher("", None, logp, lambda: 100.0 * n, lambda: {"w": n})
  teachers = tuple(map(of, range(3)))
  tokens = np.arange(24.0).reshape(4, 2, 3)
  batch = SimpleNamespace(
    tokens=tokens, prompt_length=None, packing_index=None, context=None, kept=None,
    extra=dict(teacher=np.broadcast_to(numbers[:, None], (4, 2))),
  )  # fmt: skip
  batch._replace = lambda **fields: fields
  (found,) = teacher_lib.add_logprobs(teachers, [batch])
  np.testing.assert_array_equal(found["teacher_logp"], tokens + 100.0 * numbers[:, None, None])
  assert teacher_lib.checksums_of(teachers) == {"0/w": 0, "1/w": 1, "2/w": 2}
  assert teacher_lib.checksums_of(teachers[1:2]) == {"w": 1}

  config.teacher.paths = {"words": "w"}
  with pytest.raises(ValueError, match=r"a row has task = 'digits' .* names teachers of words; add one"):
    teacher_lib.check_rows(config, rows)


def test_several_teachers_have_no_path_beside_them_and_a_divergence_has_a_component():
  config = tiny("")
  config.teacher.update(path="a", paths={"*": "b"})
  with pytest.raises(ValueError, match=r"config.teacher.path = 'a' and config.teacher.paths both name"):
    check.check(config, 1)
  config.teacher.update(path="", divergence="jsd")
  with pytest.raises(ValueError, match=r"divergence = 'jsd' needs config.teacher.path or .paths, and a comp"):
    check.check(config, 1)


def test_a_teacher_that_nothing_reads_is_refused(cache, tmp_path):
  config = tiny(cache, "grpo")
  config.teacher.path = "anywhere"
  with pytest.raises(ValueError, match=r"config.teacher.path = .anywhere. is read by nothing in"):
    train.prepare(config, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
@pytest.mark.parametrize("rows", ["packed", "single"])
def test_a_student_comes_nearer_to_its_teacher_and_no_other_takes_its_place(
  cache, tmp_path, teacher, rows, monkeypatch
):
  """The teacher's log-probs are those of its own forward pass over each completion alone."""
  seen, add = [], teacher_lib.add_logprobs
  monkeypatch.setattr(step.teacher, "add_logprobs", lambda *args: seen.append(add(*args)) or seen[-1])
  config = tiny(cache, steps=12, rows=rows, microbatches=2)
  config.teacher.path = str(teacher)
  config.optimizer.update(learning_rate=1e-2, warmup_steps=1)
  config.rollout.update(prompts=8, group_size=4)
  config.checkpoint.every = config.eval.every = 12
  found = [record["teacher_kl"] for record in start(config, tmp_path / "run")]
  assert len(found) == 12 and found[-1] < 0.75 * found[0]

  decoder = bound(teacher, train.prepare(config, tmp_path / "other").mesh)
  batch = jax.tree.map(np.asarray, seen[0][0])
  L = config.data.prompt_budget
  for p, g in ((0, 0), (3, 2), (7, 3)):
    first, n = L - batch.prompt_length[p, g], batch.length[p, g]
    tokens = batch.tokens[p, g, first : L + n]
    logp = log_softmax_of(decoder, tokens)
    expected = np.take_along_axis(logp[:-1], tokens[1:, None], 1)[-n:, 0]
    np.testing.assert_allclose(batch.teacher_logp[p, g, :n], expected, atol=2e-5)

  config.steps = 13
  config.teacher.path = str(write_teacher(tmp_path / "two", 1))
  config.checkpoint.allow_changed = "config"
  with pytest.raises(ValueError, match=r"differs in frozen .config.teacher.path = .* holds other weights"):
    start(config, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
@pytest.mark.parametrize("rows", ["packed", "single"])
def test_teachers_of_other_families_and_sizes_are_read_as_they_are(cache, tmp_path, rows, monkeypatch):
  """A Llama learns from a Gemma 2, with its windows and caps, and from a mixture, each on its own rows."""
  seen, update = [], step.update
  monkeypatch.setattr(step, "update", lambda *of: seen.append(of[-1]) or update(*of))
  config = tiny(cache, steps=2, rows=rows, microbatches=2)
  config.model.attention_bias = False
  of = {form: str(tmp_path / form) for form in ("digits", "words")}
  families = dict(digits="gemma2", words="qwen3_moe")
  paths = {"expression": of["digits"], "*": of["words"]}
  config.teacher.update(paths=paths, column="task")
  config.rollout.update(prompts=8, group_size=2)
  for form, family in families.items():
    write_teacher_of(family, tmp_path / form)
  job = train.prepare(config, tmp_path / "run")
  specs = [job.policies["policy"].model.spec, *(teacher.model.spec for teacher in job.teachers)]
  assert [spec.family for spec in specs] == ["llama", "qwen3_moe", "gemma2"]
  train.run(job)

  decoders, found = {form: bound(folder, job.mesh) for form, folder in of.items()}, dict(digits=[], words=[])
  batch, L = jax.tree.map(np.asarray, seen[0]), config.data.prompt_budget
  for p, g in np.ndindex(batch.length.shape):
    first, n = L - batch.prompt_length[p, g], batch.length[p, g]
    tokens = batch.tokens[p, g, first : L + n]
    form = "digits" if "=?" in job.data.tokenizer.decode(tokens[:-n]) else "words"
    logp = log_softmax_of(decoders[form], tokens)[-n - 1 : -1]
    found[form].append((batch.teacher_logp[p, g, :n], logp[np.arange(n), tokens[-n:]]))
  for of_form in found.values():
    read, expected = map(np.concatenate, zip(*of_form, strict=True))
    np.testing.assert_allclose(read, expected, rtol=1e-5, atol=1e-5)
    assert np.ptp(expected) > 1
  records = [record for record in metrics.read(tmp_path / "run") if record["kind"] == "train"]
  assert all(record["grad_norm"] > 0 for record in records)


@pytest.mark.usefixtures("quick_jobs")
def test_a_folder_of_another_tokenizer_is_refused_before_its_weights_are_read(cache, tmp_path):
  data_toys.tokenizer().save_pretrained(tmp_path / "other")
  config = tiny(cache)
  config.teacher.paths = {"*": str(tmp_path / "other")}
  with pytest.raises(ValueError, match=r"config.teacher.path = .*other' has another tokenizer"):
    train.prepare(config, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_components_of_a_config_are_parts_of_the_loss_that_is_logged(cache, tmp_path, teacher):
  """Beside GRPO's term: cross-entropy of the right answers, and two forms of distillation."""
  config = tiny(cache, "grpo", steps=2, updates_per_rollout=1)
  config.teacher.path = str(teacher)
  config.objective.component = dict(
    right=dict(fn="ce", coef=0.1, stream="right"),
    all=dict(fn="ce", coef=0.5, stream="actions"),
    near=dict(fn="ref_kl", coef=1.0, stream="actions"),
    policy=dict(fn="opd", coef=2.0, stream="actions"),
  )
  for record in start(config, tmp_path):
    parts = [record[f"loss/{name}"] for name in ("policy", "kl_k3", "ce", "ref_kl", "opd")]
    np.testing.assert_allclose(record["loss"], sum(parts), rtol=1e-5)
    gap = record["teacher_kl"]  # on-policy, where every ratio is 1
    np.testing.assert_allclose(parts[3:], [gap, 2 * gap], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_pairs_of_completions_at_the_reference_cost_log_two(cache, tmp_path):
  """DPO beside no policy term; the shorter completion is the better one here."""
  config = tiny(cache, "grpo", steps=3, updates_per_rollout=1)
  config.objective.advantage = dict(fn="none")
  config.objective.penalty = dict()
  config.objective.preference = dict(dpo=dict(fn="dpo", coef=1.0, beta=0.5))
  config.reward.short = dict(fn="shaping:soft_overlong", max_tokens=48, cache=48)
  config.optimizer.update(learning_rate=1e-2, warmup_steps=1)
  one, two, three = start(config, tmp_path)  # the first update of a warm-up has a learning rate of 0
  np.testing.assert_allclose([one["loss/dpo"], two["loss/dpo"]], np.log(2), rtol=1e-4)
  assert one["loss/policy"] == 0 and one["grad_norm"] > 0
  assert abs(three["loss/dpo"] - np.log(2)) > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_of_the_whole_vocabulary_the_divergence_is_logged_and_falls(cache, tmp_path, teacher):
  config = tiny(cache, "base", steps=6, updates_per_rollout=1, rows="single", microbatches=2)
  config.teacher.update(path=str(teacher), divergence="jsd", beta=0.1)
  config.objective.advantage = dict(fn="none")
  config.objective.component.kd = dict(fn="gkd", coef=1.0, stream="actions")
  config.optimizer.update(learning_rate=1e-2, warmup_steps=1)
  found = [record["loss/gkd"] for record in start(config, tmp_path)]
  assert 0 < found[-1] < 0.8 * found[0]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_each_row_is_compared_with_its_own_of_several_teachers_over_the_whole_vocabulary(
  cache, tmp_path, teacher, monkeypatch
):
  """The KL that is logged is the mean over tokens, of each completion by itself; temperature is 0.9."""
  seen, update = [], step.update
  keep = lambda state, batch: seen.append(jax.tree.map(np.array, (state.policy, batch)))  # before it moves
  monkeypatch.setattr(step, "update", lambda job, *of: keep(*of) or update(job, *of))
  config = tiny(cache, steps=1, rows="single", microbatches=2)
  folders = dict(words=teacher, digits=write_teacher(tmp_path / "digits", 1))
  paths = {"expression": str(folders["digits"]), "*": str(folders["words"])}
  config.teacher.update(paths=paths, column="task", divergence="reverse_kl")
  config.rollout.update(prompts=8, group_size=2, temperature=0.9)
  config.objective.rescale = dict(fn="identity")
  config.objective.component.kd = dict(fn="gkd", coef=1.0, stream="actions")
  job = train.prepare(config, tmp_path / "run")
  train.run(job)
  (record,) = (record for record in metrics.read(tmp_path / "run") if record["kind"] == "train")

  ((params, batch),) = seen
  student, decoders = job.policies["policy"].model.bind(params), {}
  for name, folder in folders.items():
    decoders[name] = bound(folder, job.mesh)
  costs, L, sampled = dict(words=[], digits=[]), config.data.prompt_budget, []
  for p, g in np.ndindex(batch.length.shape):
    first, n = L - batch.prompt_length[p, g], batch.length[p, g]
    tokens = batch.tokens[p, g, first : L + n]
    form = "digits" if "=?" in job.data.tokenizer.decode(tokens[:-n]) else "words"
    log_s, log_t = (log_softmax_of(one, tokens, 0.9)[-n - 1 : -1] for one in (student, decoders[form]))
    costs[form] += (np.exp(log_s) * (log_s - log_t)).sum(-1).tolist()
    sampled.append((batch.teacher_logp[p, g, :n], log_t[np.arange(n), tokens[-n:]]))
  np.testing.assert_allclose(*map(np.concatenate, zip(*sampled, strict=True)), atol=2e-5)
  assert costs["words"] and costs["digits"]
  np.testing.assert_allclose(record["loss/gkd"], np.mean(costs["words"] + costs["digits"]), rtol=1e-5)
