"""The graph of stages, what makes one stale, what is kept of sampled answers; nothing is trained here."""

import json
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from ml_collections import ConfigDict

from grpojax.config import commandline, recipe
from grpojax.data import text
from grpojax.recipes import distill
from grpojax.recipes.pipelines import on_policy_distill
from grpojax.tools.pipeline import chain, cost, manifest, page, pairing, rejection, stage_page, stages
from grpojax.tools.pipeline.manifest import BEGUN, DONE, LEFT, ROWS, STALE


def config(*entries, **changes):
  c = commandline.config_of(["--config=base:tiny", "--config.mesh.data=1"])
  with c.unlocked():
    c.stages = [ConfigDict(entry) for entry in entries]
    c.update_from_flattened_dict(changes)
  return c


GROW = dict(name="grow", kind="sample", init="base")
LEARN = dict(name="learn", kind="sft", init="base", samples="grow")
RL = dict(name="rl", kind="rl", init="previous")
LOOK = dict(name="look", kind="evaluate", init="previous")
ALL = GROW, LEARN, LOOK, RL
PAIR = dict(name="pair", kind="sample", init="base", sample=dict(rows="pairs"))
PREFER = dict(name="prefer", kind="preference", init="base", samples="pair")
TEACH = dict(name="teach", kind="rl", init="base")
DISTILL = dict(name="near", kind="distill", init="base", teacher="teach")

REFUSED = {
  "config.stages has no stage": (),
  "stage 1 has name = ''": (dict(kind="rl", init="base"),),
  "stage 1 has name = 'base'": (dict(name="base", kind="rl"),),
  "two stages have the name 'rl'": (RL, RL),
  "stage 'x' has kind = 'judge'; the kinds are base, sft, rl, preference, distill, sample, evaluate": (
    dict(name="x", kind="judge"),
  ),
  "stage 'rl' has init = 'b'; it is base, previous or one of rl": (RL | dict(init="b"),),
  r"stages start from each other \('a' -> 'b' -> 'a'\); let one of them have init = 'base'": (
    dict(name="a", kind="rl", init="b"), dict(name="b", kind="rl", init="a"),
  ),
  "stage 'a' has init = 'b', which comes later": (
    dict(name="a", kind="rl", init="b"), dict(name="b", kind="rl", init="base"),
  ),
  "stage 'rl' has samples and kind = 'rl'": (GROW, RL | dict(samples="grow")),
  "stage 'learn' has samples = 'grow', and the sample stages before it are none": (LEARN, GROW),
  "stage 'learn' learns answers or judgements, and stage 'pair' leaves pairs; set sample.rows": (
    PAIR, LEARN | dict(samples="pair"),
  ),
  "stage 'prefer' learns pairs, and stage 'grow' leaves answers": (GROW, PREFER | dict(samples="grow")),
  "stage 'prefer' has no pairs; name stages that make some by samples": (PREFER | dict(samples=""),),
  r"stage 'prefer': config.preference.loss.fn = 'dop'": (
    PAIR, PREFER | dict(preference=dict(loss=dict(fn="dop"))),
  ),
  "stage 'near': it has no teacher; name a stage before it": (DISTILL | dict(teacher=""),),
  "stage 'near' has teacher = 'teach', which is neither one of the stages before it, base, nor": (DISTILL,),
  "stage 'small' makes a policy of its own and has init; drop it": (
    dict(name="small", kind="base", init="base"),
  ),
  "stage 'pair': config.judge.marker is empty": (
    PAIR | dict(sample=dict(rows="pairs", by="judge"), judge=dict(marker="")),
  ),
  "stage 'rl' sets model.hidden_size, which says what the base is": (RL | dict(model=dict(hidden_size=8)),),
  "stage 'rl' sets data.template: its prompts": (RL | dict(data=dict(template="boxed")),),
  r"stage 'rl': config has no 'stpes'; did you mean config\.steps\?": (RL | dict(stpes=3),),
  r"stage 'rl': config.rollout.prompts = 3 must be divisible": (RL | dict(rollout=dict(prompts=3)),),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_one_sentence_names_the_stage_and_what_to_change(sentence):
  with pytest.raises(ValueError, match=sentence) as error:
    stages.read(config(*REFUSED[sentence]))
  assert "\n" not in str(error.value)


def test_stages_that_train_nothing_hand_on_the_policy_that_they_have():
  found = {one.name: one for one in stages.read(config(*ALL))}
  assert list(found) == ["base", "grow", "learn", "look", "rl"]
  assert {name: one.init for name, one in found.items()} == {
    "base": "", "grow": "base", "learn": "base", "look": "learn", "rl": "learn",
  }  # fmt: skip
  assert found["learn"].parents == ("base", "grow") and found["rl"].config.name == "grpo-rl"


def test_a_stage_sets_keys_of_its_own_alone():
  found = stages.read(config(RL | dict(steps=7, reward=dict(form=dict(fn="shaping:r1_format"))), LOOK))
  assert found[1].config.steps == 7 and found[2].config.steps == 2
  longer = stages.read(config(RL | dict(rollout=dict(max_tokens=64))))[1].config
  assert longer.eval.max_tokens == 64  # as in any run, where it is not set
  assert "form" in found[1].config.reward and "form" not in found[2].config.reward


def test_a_reference_is_the_policy_that_the_stage_starts_from_or_that_of_another_stage():
  learn = dict(name="learn", kind="sft", init="base")
  of = lambda reference: stages.read(config(learn, RL | dict(reference=reference)))[-1]
  assert (of("init").reference, of("init").config.reference) == ("", "init")
  assert (of("base").reference, of("base").config.reference, of("base").parents) == (
    "base", "init", ("learn", "base"),
  )  # fmt: skip
  c = config(learn, RL, reference="base")
  assert [(one.reference, one.config.reference) for one in stages.read(c)] == [
    ("", "init"), ("", "init"), ("base", "init"),
  ]  # fmt: skip
  with pytest.raises(ValueError, match=r"stage 'rl': config\.reference = 'x' is neither '' nor 'init' nor"):
    of("x")


def test_a_folder_as_the_base_is_no_stage():
  c = commandline.config_of(["--config=base:local", "--config.model.path=/models/x", "--config.data.path=x"])
  with c.unlocked():
    c.stages = [ConfigDict(RL)]
  (only,) = stages.read(c)
  assert only.init == "base" and only.parents == ("base",)


def test_r1_with_a_model_of_ones_own_has_demonstrations_of_ones_own():
  own = "--config.model.path=/models/x", "--config.data.path=x", "--config.sft.path=demos"
  c = commandline.config_of(["--config=r1:local", *own], recipe.PIPELINES, stages.check_keys_of)
  found = {stage.name: stage for stage in stages.read(c)}
  assert found["cold"].config.sft.path == "demos" and found["again"].samples == ("reject",)


@pytest.mark.parametrize("name", recipe.names(recipe.PIPELINES))
@pytest.mark.parametrize("scale", ["mini", "tiny"])
def test_every_pipeline_is_legal(name, scale):
  c = commandline.config_of([f"--config={name}:{scale}"], recipe.PIPELINES, stages.check_keys_of)
  assert c.name == name and len(stages.read(c)) > 3


def test_pairs_are_learned_against_the_policy_that_the_stage_starts_from_or_another_stages():
  learn = dict(name="learn", kind="sft", init="base")
  of = lambda **more: stages.read(config(PAIR, learn, PREFER | dict(init="learn") | more))[-1]
  assert of().parents == ("learn", "pair") and of().run_config.reference == "init"
  assert of(reference="base").parents == ("learn", "pair", "base")
  simpo = dict(loss=dict(fn="simpo", beta=2.0, gamma=0.5))
  assert of(preference=simpo).run_config.reference == ""
  assert of(preference=dict(loss=dict(fn="simpo"))).run_config.objective.preference.pairs.to_dict() == dict(
    fn="simpo", coef=1.0
  )  # with SimPO's own beta


def test_a_distillation_has_its_own_objective_and_a_stage_as_its_teacher():
  of = lambda **more: stages.read(config(TEACH, DISTILL | more))[-1]
  near = of()
  assert near.parents == ("base", "teach") and near.teachers == (("teacher.path", "teach"),)
  plain = distill.get_config("tiny").objective
  assert near.config.objective.to_dict() == plain.to_dict() and near.config.reference == ""
  assert of(objective=dict(rescale=dict(scale=2.0))).config.objective.rescale.scale == 2.0
  paths = dict(column="task", paths={"expression": "teach", "*": "base"})
  gkd = on_policy_distill.GKD | dict(teacher=paths | dict(divergence="jsd"))
  for several in (of(teacher=paths), of(**gkd)):
    assert set(several.teachers) == {("teacher.paths.expression", "teach"), ("teacher.paths.*", "base")}
  folder = of(teacher="some/folder")
  assert folder.teachers == () and folder.folders == (("teacher.path", "some/folder"),)


def test_a_base_of_another_size_is_a_stage_that_others_start_from():
  small = dict(name="small", kind="base", model=dict(hidden_size=16))
  found = {one.name: one for one in stages.read(config(small, TEACH, DISTILL | dict(init="small")))}
  assert found["small"].init == "" and found["small"].config.model.hidden_size == 16
  assert found["base"].config.model.hidden_size == 32 and found["near"].parents == ("small", "teach")
  folder = dict(name="small", kind="base", model=dict(path="/x"))
  given = stages.read(config(folder))[-1].config
  assert given.model.path == "/x" and given.cold_start.steps == 0


def test_a_teacher_of_another_tokenizer_is_refused_before_a_stage_runs(tmp_path, monkeypatch):
  (tmp_path / "other").mkdir()
  embedded = text.load_tokenizer()
  other = SimpleNamespace(get_vocab=lambda: {"x": 0})
  monkeypatch.setattr(text, "load_tokenizer", lambda folder: embedded if folder == text.EMBEDDED else other)
  sentence = r"stage 'near': config.teacher.path = .*other' has another tokenizer"
  with pytest.raises(ValueError, match=sentence):
    chain.find(config(DISTILL | dict(teacher=str(tmp_path / "other"))), tmp_path)
  small = dict(name="small", kind="base", model=dict(path=str(tmp_path / "other")))
  with pytest.raises(ValueError, match=r"config\.teacher\.path = 'small' has another tokenizer"):
    chain.find(config(small, DISTILL | dict(init="base", teacher="small")), tmp_path)
  chain.find(config(TEACH, DISTILL), tmp_path)


# Which stages are done, stale or left.  The files that stages leave are made up.

FILES = {"base": "policy/w", "sample": ROWS, "sft": "policy/w", "rl": "policy/w", "evaluate": "summary.json"}


def finish(found, workdir, content="x"):
  """Every stage that is left leaves a file."""
  for stage in found:
    if manifest.states(found, workdir)[stage.name].what == LEFT:
      file = workdir / stage.name / FILES[stage.kind]
      manifest.begin(stage, workdir)
      file.parent.mkdir(exist_ok=True)
      file.write_text(f"{stage.name} {content}")
      manifest.finish(stage, workdir, [FILES[stage.kind]])


def whats(found, workdir):
  return {name: state.what for name, state in manifest.states(found, workdir).items()}


@pytest.fixture
def done(tmp_path):
  found = stages.read(config(*ALL))
  finish(found, tmp_path)
  return found, tmp_path


def test_a_chain_that_is_done_is_done_and_its_manifests_have_no_clock_and_no_path(done, tmp_path):
  found, workdir = done
  assert set(whats(found, workdir).values()) == {DONE}
  elsewhere = tmp_path / "elsewhere"
  finish(found, elsewhere)
  for stage in found:
    assert (workdir / stage.name / manifest.NAME).read_bytes() == (
      elsewhere / stage.name / manifest.NAME
    ).read_bytes()


@pytest.mark.parametrize(
  "changes, stale",
  [
    ({"sample.keep": 3}, {"grow", "learn", "look", "rl"}),
    ({"sft.steps": 9}, {"learn", "look", "rl"}),
    ({"eval.samples": 2}, {"grow", "learn", "look", "rl"}),
    ({"steps": 9}, {"rl"}),
    ({"optimizer.learning_rate": 1e-3}, {"rl"}),
    ({"objective.surrogate.high": 0.3}, {"rl"}),
    ({"seed": 1}, {"grow", "learn", "look", "rl"}),
    ({"cold_start.steps": 5}, {"base", "grow", "learn", "look", "rl"}),
    ({"checkpoint.every": 2, "verbose": False, "eval.every": 7, "cache_dir": "/x", "microbatches": 1}, set()),
    ({"name": "other"}, set()),
  ],
)
def test_what_was_made_from_something_else_is_stale_and_says_why(done, changes, stale):
  _, workdir = done
  found = stages.read(config(*ALL, **changes))
  states = manifest.states(found, workdir)
  assert {name for name, state in states.items() if state.what == STALE} == stale
  whys = [state.why for state in states.values() if state.what == STALE]
  key = next(iter(changes))
  assert not stale or any(f"config.{key}: " in why for why in whys)


def test_edited_rows_make_stale_what_learned_them_and_nothing_else(done):
  found, workdir = done
  assert not manifest.edited(workdir, "grow")
  (workdir / "grow" / ROWS).write_text("mended")
  assert manifest.edited(workdir, "grow")
  states = manifest.states(found, workdir)
  assert whats(found, workdir) == {"base": DONE, "grow": DONE, "learn": STALE, "look": STALE, "rl": STALE}
  assert states["learn"].why == f"grow/{ROWS} has changed" and "'learn'" in states["rl"].why


def of_files(folder):
  """A chain on files from outside: a base, questions, a judge's folder and conversations."""
  for name in ("questions", "base", "judge", "tests"):
    (folder / name).mkdir()
  for name in ("questions/a.jsonl", "base/config.json", "base/w", "judge/w", "tests/1.jsonl", "chats.jsonl"):
    (folder / name).write_text(name)
  at = [f"--config.data.path={folder}/questions", f"--config.data.test_path={folder}/tests/*.jsonl"]
  c = commandline.config_of(["--config=base:local", f"--config.model.path={folder}/base", *at])
  learn = dict(name="learn", kind="sft", init="base", sft=dict(path=str(folder / "chats.jsonl")))
  judged = dict(reward=dict(judge=dict(fn="learned:score", path=str(folder / "judge"))))
  with c.unlocked():
    c.stages = [ConfigDict(one) for one in (learn, LOOK, RL | judged, GROW)]
  return stages.read(c)


EDITS = {  # what is edited -> the stage that says so, and its sentence
  "chats.jsonl": ("learn", "config.sft.path: chats.jsonl has changed"),
  "questions/a.jsonl": ("learn", "config.data.path: a.jsonl has changed"),
  "questions/b.jsonl": ("grow", "config.data.path: b.jsonl is new"),
  "tests/1.jsonl": ("learn", "config.data.test_path: 1.jsonl has changed"),
  "judge/w": ("rl", "config.reward.judge.path: w has changed"),
  "base/w": ("learn", "config.model.path: w has changed"),
}
OF_EDIT = {  # else all are stale
  "chats.jsonl": {"learn", "look", "rl"},
  "judge/w": {"rl"},
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_file_from_outside_makes_stale_what_reads_it_and_says_so_by_name(tmp_path, name):
  found, workdir = of_files(tmp_path), tmp_path / "run"
  finish(found, workdir)
  os.utime(tmp_path / "chats.jsonl", (1, 1))
  assert set(whats(found, workdir).values()) == {DONE}  # touched, and the same
  (tmp_path / name).write_text("edited")
  states = manifest.states(found, workdir)
  stale = {one for one, state in states.items() if state.what == STALE}
  stage, sentence = EDITS[name]
  assert stale == OF_EDIT.get(name, {"learn", "look", "rl", "grow"}) and sentence in states[stage].why
  (tmp_path / name).unlink()
  assert ("has gone" in manifest.states(found, workdir)[stage].why) == ("b.jsonl" not in name)


def test_a_name_on_the_hub_counts_as_it_is_and_a_folder_wherever_it_lies(tmp_path):
  (tmp_path / "here").mkdir()
  found = of_files(tmp_path / "here")
  hub = [one._replace(config=stages.copy.deepcopy(one.config)) for one in found]
  for one in hub:
    one.config.model.path = "Qwen/Qwen2.5-0.5B"
  files = manifest.describe(hub[0], tmp_path)["files"]
  assert files["config.model.path"] == "Qwen/Qwen2.5-0.5B"
  shutil.copytree(tmp_path / "here" / "base", tmp_path / "moved")
  before = manifest.describe(found[0], tmp_path)
  for one in found:
    one.config.model.path = str(tmp_path / "moved")
  assert manifest.describe(found[0], tmp_path) == before
  whole = [name for name in before["files"] if name.startswith("config.model.path")]
  assert whole == ["config.model.path: config.json", "config.model.path: w"]


def test_a_stage_that_was_made_anew_to_the_same_bytes_makes_nothing_stale(done):
  found, workdir = done
  shutil.rmtree(workdir / "grow")
  assert whats(found, workdir)["learn"] == STALE
  finish(found, workdir)
  assert set(whats(found, workdir).values()) == {DONE}
  shutil.rmtree(workdir / "grow")
  finish(found, workdir, "other")
  assert whats(found, workdir)["learn"] == STALE


def test_a_file_that_has_gone_and_one_that_is_another_are_noticed(done):
  found, workdir = done
  (workdir / "learn" / "policy" / "w").write_text("other weights")
  with pytest.raises(ValueError, match=r"stage 'learn': .*policy/w is not what the stage had written"):
    manifest.check_policy("learn", workdir)
  (workdir / "learn" / "policy" / "w").unlink()
  assert whats(found, workdir) == {"base": DONE, "grow": DONE, "learn": STALE, "look": STALE, "rl": STALE}


def chain_of(found, workdir):
  return chain.Chain("toy", workdir, found, manifest.states(found, workdir))


def names(wanted):
  return [stage.name for stage in wanted]


def test_what_is_left_is_chosen_and_what_is_stale_only_if_asked_for(done):
  found, workdir = done
  assert chain.choose(chain_of(found, workdir), "", "") == []
  shutil.rmtree(workdir / "rl")
  assert names(chain.choose(chain_of(found, workdir), "", "")) == ["rl"]
  found = stages.read(config(*ALL, **{"sft.steps": 9}))
  changed = chain_of(found, workdir)
  with pytest.raises(ValueError, match=r"stage 'learn' is stale \(config.sft.steps: 4 -> 9\); --from=learn"):
    chain.choose(changed, "", "")
  with pytest.raises(ValueError, match="stage 'learn' is stale"):
    chain.choose(changed, "rl", "")
  assert names(chain.choose(changed, "learn", "")) == ["learn", "look", "rl"]
  assert names(chain.choose(changed, "", "learn")) == ["learn"]
  with pytest.raises(ValueError, match=r"stage 'rl' stands on 'learn', which is stale; run that one first"):
    chain.choose(changed, "", "rl")
  with pytest.raises(ValueError, match="--only=zz: the stages are base, grow"):
    chain.choose(changed, "", "zz")
  with pytest.raises(ValueError, match="leave one of them out"):
    chain.choose(changed, "rl", "rl")


def test_a_stage_that_was_stopped_has_begun_and_goes_on(tmp_path):
  found = stages.read(config(*ALL))
  manifest.begin(found[0], tmp_path)
  assert whats(found, tmp_path)["base"] == BEGUN
  assert names(chain.choose(chain_of(found, tmp_path), "", "")) == ["base", "grow", "learn", "look", "rl"]


def test_a_stale_stage_is_moved_aside_and_never_deleted(done):
  _, workdir = done
  chain._replace(workdir, "learn")
  (workdir / "learn").mkdir()
  chain._replace(workdir, "learn")
  assert {one.name for one in (workdir / "replaced").iterdir()} == {"learn-0", "learn-1"}
  assert (workdir / "replaced" / "learn-0" / "policy" / "w").read_text() == "learn x"


def test_a_dry_run_says_of_each_stage_how_far_it_is(done, capsys):
  _, workdir = done
  shutil.rmtree(workdir / "rl")
  record = {"step": 1, "kind": "train", "wall": 0.0, "num_tokens": 30, "time/update": 2.0}
  (workdir / "base" / "metrics.jsonl").write_text(json.dumps(record) + "\n")
  found = stages.read(config(*ALL, **{"sft.steps": 9}))
  chain.describe(chain_of(found, workdir), [])
  said = capsys.readouterr().out.splitlines()
  shown = [line.split(":")[1].split(";")[0].strip() for line in said]
  assert shown == ["done", "done", "stale", "stale", "left"]
  assert "config.sft.steps: 4 -> 9" in said[2] and "tokens are learned" in said[2]
  assert said[0].endswith("; took 30 tokens and 2.0 s")


def test_what_a_stage_costs_at_most_is_what_its_config_asks_for():
  changes = {"data.test": 8, "data.train": 100, "eval.samples": 3, "rollout.max_tokens": 10}
  changes |= {"cold_start.steps": 5, "cold_start.batch_size": 4, "sample.prompts": 6, "sample.samples": 2}
  asked = dict(rows="pairs", by="judge")
  judged = dict(name="judged", kind="sample", init="base", sample=asked)
  found = stages.read(config(*ALL, judged, **changes, **{"judge.samples": 3, "judge.max_tokens": 7}))
  tokens = {stage.name: cost.at_most(stage) for stage in found}
  assert tokens["base"] == (5 * 4 * 10, "learned") and tokens["look"] == (8 * 3 * 10, "sampled")
  assert tokens["grow"] == (6 * 2 * 10, "sampled")
  assert tokens["judged"] == (6 * 2 * (10 + 3 * 7), "sampled")


def test_data_that_is_missing_and_a_bucket_are_refused_before_anything_runs(tmp_path):
  mine = dict(name="mine", kind="sft", sft=dict(path=str(tmp_path / "none.jsonl")))
  with pytest.raises(ValueError, match=r"stage 'mine': config.sft.path = .* is not on this machine"):
    chain.find(config(mine), tmp_path)
  with pytest.raises(ValueError, match="is a bucket"):
    chain.find(config(RL), "gs://x/y")


# Rejection sampling.


def answer(text, right=True, ended=True):
  return dict(text=text, right=right, ended=ended, length=3)


def item(*samples, number=0):
  correct = sum(one["right"] is True for one in samples)
  return dict(suite="train", id=f"q{number}", correct=correct, n=len(samples), samples=list(samples))


MIXED = item(
  answer("a"), answer("b"), answer(" a\n"), answer("c", right=False), answer("d", right=None),
  answer("e", ended=False), answer("f"), answer("g"), answer("h\ufffd"),
)  # fmt: skip


def test_every_answer_is_kept_or_counted_under_one_reason():
  kept, counts = rejection.select([MIXED], keep=3, balance="none")
  assert [text for _, text in kept] == ["a", "b", "f"]
  reasons = dict(wrong=1, no_verdict=1, cut=1, unreadable=1, repeated=1, over_limit=1, kept=3)
  assert counts == reasons | dict(sampled=9, prompts=1, prompts_kept=1, prompts_solved=0)
  assert "kept 3 of 9 answers, of 1 of 1 prompts (1 wrong, 1 no verdict" in rejection.sentence(counts)


@pytest.mark.parametrize("correct, most", [(1, 4), (4, 2), (5, 2), (7, 1), (8, 1)])
def test_a_hard_prompt_keeps_more_than_an_easy_one(correct, most):
  """ceil(keep · (1 − n/N)), one at least: keep = 4, N = 8."""
  answers = [answer(str(i), right=i < correct) for i in range(8)]
  kept, counts = rejection.select([item(*answers)], keep=4, balance="hard")
  assert rejection.limit(item(*answers), 4, "hard") == most and len(kept) == min(most, correct)
  assert counts["prompts_solved"] == (correct == 8)


def test_what_is_kept_of_a_prompt_depends_on_no_other():
  others = [item(answer("a"), answer("x", right=False), number=i) for i in range(3)]
  alone, _ = rejection.select([MIXED], 3, "hard")
  among, counts = rejection.select([*others, MIXED], 3, "hard")
  assert [one for one in among if one[0] is MIXED] == alone and counts["prompts_kept"] == 4
  assert sum(counts[name] for name in rejection.COUNTS[1:]) == counts["sampled"]


# Pairs.


def test_a_pair_is_the_first_right_and_the_first_wrong_answer_that_ended():
  made, counts = pairing.best_and_worst([MIXED], pairing.by_verifier)
  assert made == [(MIXED, "a", "c")]
  assert counts == dict(
    sampled=9, no_verdict=1, cut=1, unreadable=1, unpaired=4, paired=2, prompts=1, prompts_solved=0,
    prompts_kept=1,
  )  # fmt: skip
  assert sum(counts[name] for name in pairing.COUNTS[1:]) == counts["sampled"]
  assert "made 1 pairs of 9 answers to 1 prompts (1 no verdict, 1 cut" in pairing.sentence(counts)


def test_without_contrast_there_is_no_pair():
  alike = item(answer("a"), answer("b"))
  spaces = item(answer("a"), answer(" a ", right=False))
  made, counts = pairing.best_and_worst([alike, spaces, item(answer("c", ended=False))], pairing.by_verifier)
  assert made == [] and counts["unpaired"] == 4 and counts["prompts_solved"] == 2


def test_a_demonstration_is_chosen_over_the_first_answer_that_is_another():
  same = item(answer("x\n", right=False), answer("y", ended=False), answer("z"), answer("w"))
  made, counts = pairing.against_demonstration([same], {"q0": "x"})
  assert made == [(same, "x", "z")] and (counts["unpaired"], counts["cut"], counts["paired"]) == (2, 1, 1)
  assert pairing.against_demonstration([item(answer("x"))], {"q0": "x"})[0] == []


def test_scores_and_lengths_are_correlated_within_questions():
  """Against numpy's correlation of the numbers less their question's means."""
  of = lambda length, right: answer("a", right) | dict(length=length)
  one = [of(5, True), of(2, False), of(3, True)]
  two = [of(50, True), of(80, False), of(7, None)]
  scores, lengths = [1 / 3, -2 / 3, 1 / 3, 0.5, -0.5], [5 / 3, -4 / 3, -1 / 3, -15, 15]
  found = pairing.length_correlation([item(*one), item(*two)], pairing.by_verifier)
  assert found == pytest.approx(np.corrcoef(scores, lengths)[0, 1])
  assert pairing.length_correlation([item(answer("a"))], pairing.by_verifier) == 0
  pairs = [({}, "long", "x"), ({}, "ab", "c"), ({}, "z", "yz")]  # apart by 3, 1 and -1
  within = np.corrcoef([1, -1, 1, -1, 1, -1], [1.5, -1.5, 0.5, -0.5, -0.5, 0.5])[0, 1]
  assert pairing.length_preference(pairs) == pytest.approx(within)
  assert pairing.length_preference([]) == 0


# The report.


def test_the_report_has_each_stage_with_its_interval_and_escapes_what_was_sampled(done):
  found, workdir = done
  at = lambda kind, step, **more: json.dumps(dict(step=step, wall=1.0, kind=kind) | more) + "\n"
  evals = {"eval/pass@1": 0.25, "eval/pass@1_ci95": 0.05, "eval/mean_length": 9.0}
  trained = at("eval", 0, **evals) + at("train", 1, num_tokens=100, **{"time/update": 5.0})
  trained += at("eval", 1, **evals | {"eval/pass@1": 0.5})
  for name in ("learn", "rl"):
    (workdir / name / "metrics.jsonl").write_text(trained)
  _, counts = rejection.select([MIXED], 3, "none")
  counts |= {"pass@1": 0.25, "pass@8": 0.75, "length_correlation": -0.125}
  said = {f"sample/{name}": n for name, n in counts.items()}
  (workdir / "grow" / "metrics.jsonl").write_text(at("eval", 0, num_tokens=24, **said))
  items = [item(answer("<script>"), answer("b", right=False)) | dict(question="1?", answer="1")]
  value = dict(value=0.5, low=0.4, high=0.6)
  summary = dict(suites=dict(test=dict(metrics={"pass@1": value})))
  (workdir / "look" / "summary.json").write_text(json.dumps(summary))
  (workdir / "look" / "items.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
  (workdir / "look" / "metrics.jsonl").write_text(at("eval", 0, num_tokens=6))
  html = page.write("toy", found, workdir).read_text()
  seen = "50.0 [45.0, 55.0]", "50.0 [40.0, 60.0]", "kept 3 of 9 answers", "Accuracy after each stage"
  of_answers = "pass@1 25.0 %, pass@8 75.0 %; correlation of reward and length -0.12"
  for wanted in (*seen, of_answers):
    assert wanted in html
  assert "&lt;script&gt;" in html and "<script>" not in html


def written(folder, name, *records):
  folder.mkdir(exist_ok=True)
  (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


def cells(html):
  """Lines of a page's tables."""
  rows = re.findall(r'<tr><th scope="row">(.*?)</tr>', html)
  return [[re.sub("<.*?>", "", cell) for cell in re.split("<td[^>]*>", row)] for row in rows]


def test_a_sample_stage_says_what_it_kept_and_why_not_the_rest_with_intervals(done):
  found, workdir = done
  (grow,) = (stage for stage in found if stage.name == "grow")
  items = [MIXED | dict(question="<b>1+1</b>?", answer="2"), item(*[answer("z", right=False)] * 9, number=1)]
  items[1] |= dict(question="?", answer="1")
  written(workdir / "grow", "items", *(one | dict(samples=stated(one)) for one in items))
  _, counts = rejection.select(items, 3, "none")
  said = {f"sample/{name}": n for name, n in (counts | {"pass@1": 0.5, "length_correlation": 0.0}).items()}
  record = dict(step=0, wall=1.0, kind="eval", num_tokens=54, **said, **{"time/eval": 2.0})
  written(workdir / "grow", "metrics", record)
  html = stage_page.write("toy", grow, workdir).read_text()
  rows = {row[0]: row[1:] for row in cells(html)}
  assert rows["wrong"][:2] == ["10", "55.6"] and rows["kept"][:2] == ["3", "16.7"]
  assert rows["all"][:2] == ["18", "100.0"]
  assert sum(int(rows[name.replace("_", " ")][0]) for name in rejection.COUNTS[1:]) == 18
  assert rows["pass@1 = avg@9, %"][0].startswith("38.9 [")  # (7/9 + 0/9) / 2
  assert "54 tokens sampled, 2.0 s, 27 tokens a second" in html and "4 answers to each of 2 questions" in html
  assert "&lt;b&gt;1+1" in html and "<b>" not in html and "grow x" in html
  assert "wrong, 3 tokens" in html and "no verdict, 3 tokens" not in html  # of the first answers alone
  assert set(stage_page.REASONS) == {*rejection.COUNTS[1:], *pairing.COUNTS[1:]}


def stated(item):
  return [one | dict(answer=one["text"]) for one in item["samples"]]


def test_a_stage_that_failed_says_why_with_the_answers_that_it_has(tmp_path):
  (grow,) = (stage for stage in stages.read(config(GROW)) if stage.name == "grow")
  manifest.begin(grow._replace(init="", samples=()), tmp_path)
  html = stage_page.write("toy", grow, tmp_path, "kept 0 of 9 answers").read_text()
  assert "kept 0 of 9 answers" in html and "nothing is recorded" in html and "Kept and dropped" not in html
  only = item(answer("q", right=None)) | dict(question="?", answer="1")
  written(tmp_path / "grow", "items", only | dict(samples=stated(only)))
  html = stage_page.write("toy", grow, tmp_path, "kept 0 of 9 answers").read_text()
  assert "no verdict, 3 tokens" in html and cells(html)[0][0].startswith("pass@1")


def test_a_base_says_what_it_learned_or_that_it_is_from_the_cache(done):
  found, workdir = done
  at = lambda step, **more: dict(step=step, wall=1.0, kind="cold_start", **more)
  start = at(40, **{"time/start": 4.0})
  written(workdir / "base", "metrics", *(at(n, loss=9 / n, num_tokens=100) for n in (20, 40)), start)
  html = stage_page.write("toy", found[0], workdir).read_text()
  assert "200 tokens learned, 4.0 s, 50 tokens a second" in html and "Cold start" in html
  assert "from the cache" not in html
  assert cost.of_stage(found[0], workdir / "base", True) == "took 200 tokens and 4.0 s"
  written(workdir / "base", "metrics", start)
  assert "4.0 s, from the cache of cold starts" in stage_page.write("toy", found[0], workdir).read_text()


def test_curves_over_k_are_those_of_the_first_and_the_last_evaluation(tmp_path):
  found = stages.read(config(*(dict(name=name, kind="evaluate") for name in "abc")))
  right = {"a": (0, 1, 2, 2), "b": (0, 0, 0, 0), "c": (4, 4, 0, 0)}
  for name, of in right.items():
    (tmp_path / name).mkdir()
    tried = lambda n: [answer(str(i), right=i < n) | dict(answer=str(i)) for i in range(4)]
    rows = [dict(suite="test", id=str(i), correct=n, n=4, samples=tried(n)) for i, n in enumerate(of)]
    (tmp_path / name / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
  shown = page.curves_over_k(page.answered(found, tmp_path))
  (suite,) = shown["suites"]
  assert "Before: a. After: c;" in shown["about"] and len(suite["figures"]) == 2
  of_k = {row[0]: [cell.split()[0] for cell in row[1:]] for row in suite["rows"]}
  assert of_k["pass@1"] == ["31.2", "50.0", "+18.8"] and of_k["pass@4"] == ["75.0", "50.0", "-25.0"]
  assert any("pass@k: after is ahead at k = 1, before from k = " in said for said in suite["sentences"])
  assert page.curves_over_k(page.answered(found[:1], tmp_path)) is None


def test_evaluations_are_compared_question_by_question(tmp_path):
  found = stages.read(config(dict(name="a", kind="evaluate"), dict(name="b", kind="evaluate")))
  for name, right in (("a", (0, 1, 2)), ("b", (1, 2, 4))):
    (tmp_path / name).mkdir()
    rows = [dict(suite="test", id=str(i), correct=n, n=4, samples=[]) for i, n in enumerate(right)]
    (tmp_path / name / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
  (sentence,) = page.differences(page.answered(found, tmp_path))
  # (25 + 25 + 50) / 3; 1.96 · sd(25, 25, 50; ddof 1) / √3
  assert sentence == "b against a: pass@1 +33.3 ± 16.3 points, on 3 questions"
