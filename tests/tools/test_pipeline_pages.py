"""The reports of a chain and of its stages, of records that are made up."""

import json
import re

import pytest
from pipeline_toys import GROW, MIXED, answer, config, done_chain, item, written

from grpojax.tools.pipeline import cost, manifest, page, pairing, rejection, stage_page, stages
from grpojax.tools.pipeline.manifest import DONE


@pytest.fixture
def done(tmp_path):
  return done_chain(tmp_path)


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


def test_a_judges_stage_shows_what_the_judge_said(tmp_path):
  """Its `right` is no verdict on an answer, so the score is shown, and the scale's end as no answer."""
  asked = dict(rows="pairs", by="judge")
  (judged,) = (s for s in stages.read(config(GROW | dict(sample=asked))) if s.name == "grow")
  manifest.begin(judged._replace(init=""), tmp_path)
  said = [answer("Score: 4", right=False) | dict(answer="4"), answer("hm", right=None) | dict(answer=None)]
  written(tmp_path / "grow" / "judge", "items", item(*said) | dict(question="Is it?", answer="5"))
  html = stage_page.write("toy", judged, tmp_path).read_text()
  assert "<h3>says 4</h3>" in html and "<h3>not of the form</h3>" in html and "Is it?\nthe most: 5" in html
  assert "wrong, 3 tokens" not in html and "pairs by the judge, by 3 judgements of each answer" in html


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
  assert cost.of_stage(found[0], workdir / "base", DONE, []) == "took 200 tokens and 4.0 s"
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
