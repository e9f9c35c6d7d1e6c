"""The report shows what was measured, hides nothing, and trusts no text of the run."""

import base64
import hashlib
import html
import json
import math
import re
import shlex
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes

from grpojax import __main__ as commands
from grpojax.runtime import console, metrics, report
from grpojax.runtime.report import completions, curves, figures, specs

ALL_FIGURES = {
  "Held-out accuracy",
  "Reward",
  "Reward by part",
  "Groups",
  "Reward spread",
  "Completion length",
  "Truncated completions",
  "Entropy",
  "Clipped tokens",
  "KL from the reference",
  "KL from the old policy",
  "Gradient norm",
  "Sampler against learner",
  "Speed",
  "Time by phase",
}
ATTACK = "<script>alert(1)</script> & </pre>"


def a_run(workdir, steps=60, without=()):
  """A made-up run that looks real; names that begin like one of `without` are not measured."""
  rng = np.random.default_rng(0)

  def record(writer, kind, step, values):
    writer.write(kind, step, {n: v for n, v in values.items() if not n.startswith(tuple(without))})

  with metrics.Writer(workdir) as writer:
    for step in range(steps + 1):
      skill = 1 / (1 + math.exp(-6 * (step / steps - 0.45)))
      noise = rng.normal(size=20)
      if step:
        record(writer, "train", step, training(skill, noise))
        prompt = f"What is {step} + 17? {ATTACK}"
        texts = [f"<think>{step} and 17</think> # {step + 17}", ATTACK, "one line\ntwo lines", ""]
        group = dict(rewards=[1.0, 0.0, 0.0, 0.0], lengths=[31, 22, 80, 80])
        group |= dict(ended=[True, True, False, False]) | tokens(step)
        writer.completions(step, [dict(prompt=prompt, completions=texts, **group)])
      if step % max(steps // 6, 1) == 0:
        record(writer, "eval", step, evaluation(skill, noise))
  config = {"name": "grpo", "scale": "mini", "seed": 0, "steps": steps}
  config["objective"] = {"ratio": {"fn": "token"}}
  (workdir / "config.json").write_text(json.dumps(config, indent=2))
  return workdir


def tokens(step):
  """Of the first three completions; entropies of even steps alone."""
  first = ["<think>", f"{step} and", " 17</think> # ", f"{step + 17}"]
  found = dict(tokens=[first, [ATTACK], ["one line", "\n", "two lines"]])
  found["sampler_logp"] = [[-0.01, -1.5, None, -50.0], [-2.0], [-0.5, 0.0, -3.0]]
  return found | (dict(entropy=[[0.2, 3.0, None, 1.0], [0.0], [2, 1, 0]]) if step % 2 == 0 else {})


def training(skill, noise):
  rollout, update = 2.1 - 0.5 * skill + 0.05 * noise[0], 0.9 + 0.03 * noise[1]
  return {
    "reward": 0.1 + 0.75 * skill + 0.04 * noise[2],
    "accuracy": 0.08 + 0.72 * skill + 0.04 * noise[3],
    "reward_std": 0.4,
    "prompts/all_wrong": np.clip(0.3 - 0.3 * skill + 0.05 * noise[4], 0, 1),
    "prompts/all_right": np.clip(0.5 * skill + 0.05 * noise[18], 0, 1),
    "rewards/accuracy/mean": 0.08 + 0.72 * skill + 0.04 * noise[3],
    "rewards/format/mean": 0.02 + 0.03 * skill,
    "completions/mean_length": 46 - 14 * skill + noise[5],
    "completions/mean_terminated_length": 41 - 10 * skill + noise[6],
    "completions/clipped_ratio": np.clip(0.15 * (1 - skill) + 0.01 * noise[7], 0, 1),
    "entropy": 0.9 - 0.6 * skill + 0.02 * noise[8],
    "clip_ratio/low_mean": abs(0.004 + 0.001 * noise[9]),
    "clip_ratio/high_mean": abs(0.006 + 0.001 * noise[10]),
    "kl": 0.03 * skill + abs(0.002 * noise[11]),
    "ppo_kl": abs(3e-4 + 1e-4 * noise[12]),
    "grad_norm": 0.6 + 0.1 * abs(noise[13]),
    "sampling/sampling_logp_difference/mean": 1.2e-7 * (1 + 0.1 * abs(noise[14])),
    "sampling/sampling_logp_difference/max": 3e-6 * (1 + 0.2 * abs(noise[15])),
    "tokens_per_second/rollout": 2400 + 60 * noise[16],
    "tokens_per_second/update": 6100 + 60 * noise[17],
    "time/rollout": rollout,
    "time/reward": 0.05,
    "time/logprob": 0.3,
    "time/update": update,
    "time/host": 0.04,
    "time/step": rollout + update + 0.45,
  }


def evaluation(skill, noise):
  return {
    "eval/pass@1": 0.09 + 0.68 * skill,
    "eval/pass@1_ci95": 0.021,
    "eval/avg@8": 0.09 + 0.68 * skill,
    "eval/pass@8": 0.31 + 0.6 * skill,
    "eval/maj@8": 0.14 + 0.7 * skill,
    "eval/mean_length": 45 - 14 * skill,
    "eval/clipped_ratio": 0.13 * (1 - skill),
    "time/eval": 3.2,
    "time/checkpoint": 0.2,
    "time/step": 3.5,
  }


@pytest.fixture(scope="module")
def page(tmp_path_factory):
  return report.write(a_run(tmp_path_factory.mktemp("run"))).read_text(encoding="utf-8")


def titles(page):
  return set(re.findall(r"<figcaption><h3>(.*?)</h3>", page))


def test_every_figure_is_there(page):
  assert titles(page) == ALL_FIGURES


@pytest.mark.parametrize(
  ("without", "missing"),
  [
    pytest.param(["kl"], {"KL from the reference"}, marks=pytest.mark.slow),
    pytest.param(["eval/"], {"Held-out accuracy"}, marks=pytest.mark.slow),
    pytest.param(["rewards/format"], {"Reward by part"}, marks=pytest.mark.slow),  # one part is the reward
    pytest.param(["clip_ratio"], {"Clipped tokens"}, marks=pytest.mark.slow),
    pytest.param(["time/", "tokens_per_second"], {"Time by phase", "Speed"}, marks=pytest.mark.slow),
    (["sampling", "grad_norm", "entropy"], {"Sampler against learner", "Gradient norm", "Entropy"}),
  ],
)
def test_a_figure_is_there_if_its_metric_was_measured(tmp_path, without, missing):
  drawn = figures.draw(metrics.read(a_run(tmp_path, steps=4, without=without)))
  assert {figure["title"] for figure in drawn} == ALL_FIGURES - missing


def test_a_figure_is_the_same_on_axes_that_showed_another(tmp_path):
  records = metrics.read(a_run(tmp_path, steps=4))
  charts = list(specs.charts(records))
  assert any(chart.log for chart in charts[:-1])
  with matplotlib.rc_context(figures.STYLE):
    alone = [figures._draw(figures.axes("")[1], chart, chart.own(records)) for chart in charts]
  assert figures.draw(records) == [figure for figure in alone if figure]


def test_what_was_drawn_is_shown_not_what_dynamic_sampling_kept():
  record = {"kind": "train", "step": 1, "reward": 0.5, "accuracy": 0.5}
  record |= {"drawn/reward": 0.1, "drawn/accuracy": 0.1}
  record |= {"frac_reward_zero_std/all_wrong": 0.0, "prompts/all_wrong": 0.8, "prompts/all_right": 0.0}
  legends = {figure["title"]: [text for _, _, text in figure["legend"]] for figure in figures.draw([record])}
  assert legends["Groups"] == ["all wrong 80", "all right 0"]
  assert legends["Reward"] == ["reward 0.1", "accuracy 0.1"]


def test_a_run_that_was_just_started_has_a_report(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    writer.write("train", 1, {"reward": 0.5})
  text = report.write(tmp_path).read_text()
  assert titles(text) == {"Reward"}
  assert "step 1 of 1" in text
  assert "Held-out questions" not in text


def test_a_folder_that_is_no_run_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match="has no records"):
    report.write(tmp_path)


def test_the_table_compares_the_first_and_the_last_evaluation(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    for step, accuracy, length in ((0, 0.25, 40.0), (10, 0.9, 99.0), (20, 0.5, 30.5)):
      values = {"eval/pass@1": accuracy, "eval/pass@1_ci95": 0.031, "eval/avg@4": accuracy}
      writer.write("eval", step, {**values, "eval/mean_length": length, "eval/clipped_ratio": 0.0})
  text = report.write(tmp_path).read_text()
  cells = re.findall(
    r"<t[hd](?: [^>]*)?>([^<]*)", text[text.index("<table>") : text.index("</table>")]
  )
  assert cells == [
    *("", "before (step 0)", "after (step 20)", "difference"),
    *("pass@1, %", "25.0 ± 3.1", "50.0 ± 3.1", "+25.0 ± 4.4"),
    *("mean length, tokens", "40.0", "30.5", "-9.5"),
    *("truncated, %", "0.0", "0.0", "+0.0"),
  ]


def test_the_table_of_one_evaluation_compares_nothing(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    writer.write("eval", 0, {"eval/pass@1": 0.25, "eval/pass@1_ci95": 0.031})
  text = report.write(tmp_path).read_text()
  cells = re.findall(r"<t[hd](?: [^>]*)?>([^<]*)", text[text.index("<table>") : text.index("</table>")])
  assert cells == ["", "step 0", "pass@1, %", "25.0 ± 3.1"]


def scripts(page):
  """Returns (the page without them, {attributes: text} of its scripts), as a browser reads it."""
  found = re.findall(r"<script([^>]*)>(.*?)</script", page, flags=re.DOTALL)
  return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL), found


def test_text_of_the_run_is_escaped(page):
  rest, found = scripts(page)
  ours = [(report.PAGES / name).read_text() for name in report.SCRIPTS]
  assert [text for kind, text in found if not kind] == ours
  assert [kind for kind, _ in found if kind] == [' type="application/json" id="data"']
  assert "<script" not in rest
  assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;/pre&gt;" in rest


def test_the_page_needs_nothing_but_itself(page):
  rest, found = scripts(page)
  fetched = re.findall(r"""(?:src|href)=["']?[^#"'][^ >]*|url\([^#)][^)]*|@import""", rest)
  assert fetched == [] and not [kind for kind, _ in found if "src" in kind]
  assert "default-src 'none'" in page


def test_the_policy_lets_the_pages_own_scripts_run_and_no_others(page):
  """By their checksums, so that not even a mistake in escaping would run a model's text."""
  policy = re.search(r'script-src ([^;"]*)', html.unescape(page))[1].split()
  texts = [text for kind, text in scripts(page)[1] if not kind]
  digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
  assert policy == [f"'sha256-{digest}'" for digest in digests]


def test_uplot_is_the_released_file():
  """npm's uplot 1.6.32, dist/uPlot.iife.min.js, with its licence beside it."""
  folder = report.PAGES / "uplot"
  digest = hashlib.sha256((folder / "uPlot.iife.min.js").read_bytes()).hexdigest()
  assert digest == "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
  assert "MIT" in (folder / "LICENSE").read_text()


@pytest.mark.parametrize("attack", ["</script><b>", "<!--<script>", "\u2028", "]]>", "\ud800", "&quot;"])
def test_no_text_ends_the_element_that_holds_the_data(attack):
  text = curves.script_json({"completions": [attack]})
  assert not set(text) & set("<>&\u2028") and text.isascii()
  assert json.loads(text) == {"completions": [attack]}


def test_the_scripts_are_given_the_numbers_of_the_pictures(page):
  data = json.loads(scripts(page)[1][0][1])
  assert {chart["title"] for chart in data["charts"]} == ALL_FIGURES
  (run,) = data["runs"]
  x, y = run["main"]["x"], run["main"]["y"]
  assert x["step"][:3] == [0, 1, 2] and len(x["step"]) == 61 + 6  # steps 10, 20, ... have two records
  assert x["seconds"][:2] == [3.5, pytest.approx(3.5 + 3.4, abs=0.3)]  # the evaluation before training first
  assert y["eval/pass@1"][1] == "" and isinstance(y["eval/pass@1"][0], float)  # not measured; measured
  assert data["completions"]["of"] == 60


def test_a_value_that_is_not_finite_and_one_that_was_not_measured_are_two_things():
  records = [{"step": 1, "kind": "train", "reward": None}, {"step": 2, "kind": "train", "kl": 1.0}]
  run = curves.of_run("a", records, {"reward", "kl"})["main"]
  assert run["y"] == {"reward": [None, ""], "kl": ["", 1.0]}


def test_a_long_run_is_thinned_by_means(monkeypatch):
  monkeypatch.setattr(curves, "POINTS", 4)
  records = [
    {"step": step, "kind": "train", "reward": float(step), "num_tokens": 10, "time/step": 2.0}
    for step in range(1, 11)
  ]
  run = curves.of_run("a", records, {"reward"})["main"]
  assert run["mean_of"] == 3
  assert run["x"] == dict(step=[3, 6, 9, 10], tokens=[30, 60, 90, 100], seconds=[6, 12, 18, 20])
  assert run["y"] == {"reward": [2, 5, 8, 10]}


def test_the_cold_start_keeps_its_own_steps():
  records = [{"step": step, "kind": "cold_start", "loss": 2.0} for step in (1, 2)]
  records += [{"step": 1, "kind": "train", "loss": 0.0, "reward": 0.5}]
  data = curves.payload({"a": records})
  assert [(chart["title"], chart["part"]) for chart in data["charts"]] == [
    ("Reward", "main"), ("Cold start", "cold_start"),
  ]  # fmt: skip
  assert data["runs"][0]["cold_start"]["y"] == {"loss": [2.0, 2.0]}


def test_completions_beyond_the_bound_are_left_out_and_counted(monkeypatch):
  group = dict(prompt="p", completions=["x" * 500], rewards=[1.0], lengths=[1], ended=[True])
  groups = [group | {"step": step} for step in range(1, 101)]
  monkeypatch.setattr(completions, "CHARACTERS", 10_000)
  found = completions.payload(list(map(completions.to_json, groups)))
  steps = [group["step"] for group in found["groups"]]
  assert found["of"] == 100 and steps[0] == 1 and steps[-1] == 100 and 5 < len(steps) < 20
  assert len(json.dumps(found["groups"])) <= 10_000
  assert len(set(np.diff(steps[:-1]))) == 1  # evenly spread


def test_spoilt_parts_of_a_group_are_left_out():
  group = dict(step=1, prompt="p", completions=["x"], rewards=[None], lengths=[1], ended=[1], sent=3)
  shown = json.loads(completions.to_json(group | dict(parts={"a": [1, 2], "b": [2.0]}, answer=None)))
  assert shown["parts"] == {"b": [2.0]} and shown["prompt"] == "p" and shown["answer"] == ""


def test_tokens_are_shown_with_the_numbers_that_belong_to_them():
  group = dict(step=1, prompt="p", completions=["ab", "c"], rewards=[0, 1], lengths=[2, 1], ended=[1, 1])
  texts, logps = [["a", "b\x00"], ["c"]], [[-1.0, None], [-0.5]]
  shown = json.loads(completions.to_json(group | dict(tokens=texts, sampler_logp=logps, entropy=[[0.5]])))
  assert shown["tokens"] == [["a", "b\\x00"], ["c"]] and shown["logp"] == logps and "entropy" not in shown
  for spoilt in [["a", 3]], "ab", [["a"]] * 3, [None]:
    shown = json.loads(completions.to_json(group | dict(tokens=spoilt, sampler_logp=[[-1.0, -2.0]])))
    assert not shown.keys() & {"tokens", "logp", "entropy"}


def test_trajectories_are_shown_turn_by_turn(tmp_path):
  turn = dict(seen="\n[PF]\x07", action="left", reward=0.0, valid=True, advantage=-0.25)
  last = dict(seen="[FP]", action=ATTACK, reward=1.0, valid=False, ending="done")
  group = dict(completions=["left[FP]"], rewards=[1.0], lengths=[8], ended=[1], turns=[[turn, last]])
  (first, second) = json.loads(completions.to_json(dict(group, step=1, prompt="p")))["turns"][0]
  assert first == dict(turn, seen="\n[PF]\\x07", ending="") and "advantage" not in second
  for spoilt in ([[turn]] * 2, [[3]], [turn], "turns", None):
    assert "turns" not in json.loads(completions.to_json(dict(group, step=1, prompt="p", turns=spoilt)))
  with metrics.Writer(tmp_path) as writer:
    writer.write("train", 1, {"reward": 0.0})
    writer.completions(1, [dict(prompt="", **group)])
    writer.completions(2, [dict(prompt="", **group | dict(turns=[3]))])
  page = report.write(tmp_path).read_text()
  samples = page[page.index('id="samples"') : page.index("<h2>Command")]
  assert samples.count('class="turns"') == 1 and "reward 0 advantage -0.25" in samples
  assert "reward 1 not valid" in samples and "&lt;script&gt;" in samples and "(the prompt)" not in samples


def test_tokens_have_kinds_where_all_of_them_have_one():
  group = dict(step=1, prompt="p", completions=["abc"], rewards=[0], lengths=[3], ended=[1])
  group |= dict(tokens=[["a", "b", "c"]], sampler_logp=[[-1.0, None, -2.0]])
  assert json.loads(completions.to_json(group | dict(kinds=["aoa"])))["kind"] == ["aoa"]
  for spoilt in (["ao"], ["aox"], [3], "aoa", []):
    assert "kind" not in json.loads(completions.to_json(group | dict(kinds=spoilt)))


def test_the_head_says_what_the_run_is(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    writer.write("train", 1, {"reward": 0.5})
  (tmp_path / "about.json").write_text(json.dumps({"objective": f"loss(θ) = {ATTACK}", "model": 3}))
  page = report.write(tmp_path).read_text()
  assert "<dt>objective</dt><dd>loss(θ) = &lt;script&gt;" in page and "<dt>model" not in page
  for spoilt in ("[", "[3]", "3"):
    (tmp_path / "about.json").write_text(spoilt)
    assert "<dl>" not in report.write(tmp_path).read_text()


def test_other_runs_are_on_the_same_charts(tmp_path):
  runs = [tmp_path / "a", tmp_path / "b"]
  for run, last in zip(runs, (4, 9), strict=True):
    with metrics.Writer(run) as writer:
      writer.write("train", last, {"reward": 0.5})
      writer.completions(last, [dict(prompt="", completions=[], rewards=[], lengths=[], ended=[])])
  page = report.write(runs[0], runs[1:]).read_text()
  data = json.loads(scripts(page)[1][0][1])
  assert [(run["name"], run["main"]["x"]["step"][-1]) for run in data["runs"]] == [("a", 4), ("b", 9)]
  assert "completions are of a." in page


def test_a_broken_surrogate_pair_does_not_stop_the_report(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    writer.write("train", 1, {"reward": 0.0})
    group = dict(completions=["\ud800"], rewards=[math.nan], lengths=[1], ended=[True])
    writer.completions(1, [dict(prompt="", **group)])
  assert "reward not finite" in report.write(tmp_path).read_text()


def test_values_that_are_not_finite_are_gaps_and_are_named(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    for step in (1, 2, 3, 5):
      writer.write("train", step, {"reward": math.nan if step == 2 else 1.0, "kl": math.inf})
  steps, values = figures.points(metrics.read(tmp_path), "reward")
  np.testing.assert_array_equal(steps, [1, 2, 3, 5])
  np.testing.assert_array_equal(values, [1, math.nan, 1, 1])
  text = report.write(tmp_path).read_text()
  assert "reward was not finite in 1 records, first at step 2" in text
  assert "kl was not finite in 4 records, first at step 1" in text
  assert "1 training steps have no record, the first is 4." in text
  assert titles(text) == {"Reward"}


def test_a_band_is_as_wide_as_the_interval(monkeypatch):
  bands = []
  monkeypatch.setattr(Axes, "fill_between", lambda self, *args, **_: bands.append(args))
  values = {"eval/pass@1": 0.5, "eval/pass@1_ci95": 0.125, "eval/pass@8": 0.75}
  figures.draw([dict(step=step, kind="eval", **values) for step in (0, 10)])
  np.testing.assert_array_equal(bands, [([0, 10], [37.5, 37.5], [62.5, 62.5])])


def test_phases_stack_to_the_whole_step(monkeypatch):
  tops = []
  monkeypatch.setattr(Axes, "stairs", lambda self, top, edges, **_: tops.append((top, edges)))
  times = {"time/rollout": 2.0, "time/update": 1.0, "time/host": 1.0, "time/step": 4.0}
  records = [dict(step=step, kind="train", **times) for step in range(1, 251)]
  records += [dict(step=step, kind="eval", **{"time/eval": 6.0, "time/step": 6.0}) for step in (0,)]
  figure = figures.draw(records)[-1]
  (top, edges) = tops[
    -1
  ]  # 251 steps in bars of 3: the last one holds 2 steps, the first one 0, 1, 2
  assert (len(top), edges[0], edges[-1]) == (84, -0.5, 250.5)
  np.testing.assert_allclose(top, [14 / 3] + [4] * 83)
  words = [label for _, _, label in figure["legend"]]
  assert words == ["rollout 8 min 20 s", "update 4 min 10 s", "host 4 min 10 s", "eval 6.0 s"]


def test_drawings_have_no_colour_of_their_own(page):
  for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
    ElementTree.fromstring(svg)
    assert set(re.findall(r"#[0-9a-f]{6}", svg)) <= {"#ffffff"}


def test_the_config_and_the_command_are_at_the_bottom(page):
  bottom = page[page.index("<h2>Command</h2>") :]
  assert shlex.join(sys.orig_argv) in html.unescape(bottom)
  assert "&#34;fn&#34;: &#34;token&#34;" in bottom


def test_the_command_says_where_the_report_is(tmp_path, monkeypatch, capsys):
  a_run(tmp_path, steps=2)
  monkeypatch.setattr(sys, "argv", ["grpojax", "report", str(tmp_path)])
  commands.main()
  assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"


def test_comparison_says_what_is_missing():
  rows = console.comparison({}, {"eval/pass@1": None, "eval/pass@4": 0.5})
  assert rows == [
    ("pass@1, %", "-", "not finite", "-"),
    ("pass@4, %", "-", "50.0", "-"),
  ]


def test_a_first_step_that_compiles_does_not_flatten_the_others():
  seconds = [50.0, 2.0, 2.0, 2.0]
  records = [
    {"step": step, "kind": "train", "time/update": s, "time/step": s}
    for step, s in enumerate(seconds, start=1)
  ]
  (figure,) = figures.draw(records)
  assert figure["note"] == "Beyond the top: 1 of 4 bars, up to 50.0 s."
  assert ">8<" in figure["svg"].replace(" ", "")  # the axis ends at four times the median
  assert ">10<" not in figure["svg"].replace(" ", "")


def test_a_spoilt_run_has_a_report_that_says_so(tmp_path):
  a_run(tmp_path, steps=8)
  for name, at in (("metrics.jsonl", 5), ("completions.jsonl", 2)):
    lines = (tmp_path / name).read_text().splitlines()
    lines[at] = lines[at][:20]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
  (tmp_path / "config.json").write_text('{"name": ')
  (tmp_path / "commands.txt").write_bytes(b"python \xff\n")
  page = html.unescape(report.write(tmp_path).read_text())
  for said in ("metrics.jsonl: 1 spoilt lines", "completions.jsonl: 1 spoilt lines", "config.json is spoilt"):
    assert said in page


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "1" + 400 * "0"])
def test_a_number_that_is_none_costs_its_line(tmp_path, value):
  with metrics.Writer(tmp_path) as writer:
    writer.write("train", 1, {"reward": 0.5})
  with (tmp_path / "metrics.jsonl").open("a") as file:
    file.write(f'{{"step": 2, "kind": "train", "wall": 0, "reward": {value}}}\n')
  assert "metrics.jsonl: 1 spoilt lines" in report.write(tmp_path).read_text()


def test_control_and_bidi_characters_are_shown_as_escapes(tmp_path, capsys):
  attack = "a\0b\x1b[31mred\x9b\u202eevil\u2066\r\ud800 tab\tline\n"
  shown = r"a\x00b\x1b[31mred\x9b\u202eevil\u2066\r\ud800 tab" + "\tline\n"
  a_run(tmp_path, steps=2)
  with (tmp_path / "completions.jsonl").open("a") as file:
    group = dict(step=2, prompt=attack, completions=[attack], rewards=[1.0], lengths=[1], ended=[True])
    file.write(json.dumps(group) + "\n")
  page = html.unescape(report.write(tmp_path).read_text())
  assert shown in page and not set(scripts(page)[0]) & set("\0\x1b\x9b\u202e\u2066")
  console.say(attack)
  assert capsys.readouterr().out == f"{shown}\n"
  assert console.visible("plain é 漢字 \U0001f600") == "plain é 漢字 \U0001f600"


def test_a_report_that_cannot_be_drawn_does_not_fail_a_finished_run(tmp_path, monkeypatch, capsys):
  from grpojax.train import banner

  monkeypatch.setattr(figures, "draw", lambda records: records["none"])
  a_run(tmp_path, steps=2)
  banner._draw(tmp_path, tmp_path)
  said = capsys.readouterr().out
  assert "note: the report could not be drawn (TypeError in grpojax/runtime/report/__init__.py:" in said
  assert said.endswith(f"the run has saved; grpojax report {tmp_path} tries again\n")
