"""The graph of stages, what makes one stale, what is kept of sampled answers; nothing is trained here."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from ml_collections import ConfigDict
from pipeline_toys import (
  ALL,
  DISTILL,
  GROW,
  LEARN,
  LOOK,
  MIXED,
  PAIR,
  PREFER,
  RL,
  TEACH,
  answer,
  chain_of,
  config,
  done_chain,
  finish,
  item,
  whats,
)

from grpojax.config import commandline, recipe
from grpojax.config import workdir as workdir_lib
from grpojax.data import text
from grpojax.recipes import base, distill
from grpojax.recipes.pipelines import on_policy_distill
from grpojax.tools.pipeline import chain, manifest, pairing, rejection, stages
from grpojax.tools.pipeline.manifest import BEGUN, DONE, ROWS, STALE

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


@pytest.fixture
def done(tmp_path):
  return done_chain(tmp_path)


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


def test_data_that_is_missing_and_a_bucket_are_refused_before_anything_runs(tmp_path):
  mine = dict(name="mine", kind="sft", sft=dict(path=str(tmp_path / "none.jsonl")))
  with pytest.raises(ValueError, match=r"stage 'mine': config.sft.path = .* is not on this machine"):
    chain.find(config(mine), tmp_path)
  with pytest.raises(ValueError, match="is a bucket"):
    chain.find(config(RL), "gs://x/y")
  (tmp_path / "run.json").touch()
  with pytest.raises(ValueError, match="has a run; a pipeline needs a folder of its own"):
    chain.find(config(RL), tmp_path)


def test_a_run_is_refused_in_the_folder_of_a_pipeline_and_not_in_a_stages(done):
  _, workdir = done
  with pytest.raises(ValueError, match="has a pipeline; a run needs a folder of its own"):
    workdir_lib.check(workdir, base.get_config())
  workdir_lib.check(workdir / "learn", base.get_config())


# Rejection sampling.


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
