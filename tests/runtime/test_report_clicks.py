"""The report as a person uses it: a browser moves, drags, chooses and clicks in it."""

import json
import threading

import browser
import numpy as np
import pytest
from test_report import ATTACK, a_run

from grpojax.runtime import metrics, report
from grpojax.tools import watch

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not browser.BROWSER, reason="needs chromium"),
]
REWARD = "figure[data-chart='Reward']"


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  workdir = a_run(tmp_path_factory.mktemp("run"), steps=20)
  report.write(workdir)
  return workdir


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
  with browser.tab(tmp_path_factory.mktemp("profile")) as tab:
    yield tab


@pytest.fixture
def page(tab, workdir):
  tab.errors.clear()
  tab.open((workdir / "report.html").as_uri())
  yield tab
  assert tab.errors == []
  assert ATTACK.split(" & ")[0] in tab.run("document.body.innerText")  # as text, whatever was clicked
  assert tab.run("[...document.querySelectorAll('script')].length") == 1 + len(report.SCRIPTS)


def legend(tab, chart=REWARD):
  """{label: value as shown} of a chart's legend."""
  rows = f"[...document.querySelectorAll(\"{chart} .u-series:not(.unsmoothed)\")]"
  pairs = f"{rows}.map(row => [row.querySelector('th').innerText.trim(), row.lastChild.innerText])"
  return dict(tab.run(pairs))


def hover(tab, share, chart=REWARD):
  tab.mouse("mouseMoved", tab.place(f"{chart} .u-over", share), 0)
  tab.run("new Promise(requestAnimationFrame)")
  return legend(tab, chart)


def rewards(workdir):
  return {r["step"]: r["reward"] for r in metrics.read(workdir) if r["kind"] == "train"}


def test_charts_show_the_values_under_the_pointer(page, workdir):
  assert page.run("document.querySelectorAll('figure:not(.drawn)').length") == 0
  found = hover(page, 0.5)
  assert float(found["reward"]) == pytest.approx(rewards(workdir)[int(found["step"])], rel=1e-3)
  page.mouse("mouseMoved", (2, 2), 0)
  page.run("new Promise(requestAnimationFrame)")
  assert legend(page)["step"] == "20"  # the last one, where no pointer is


def test_dragging_zooms_and_a_double_click_goes_back(page):
  assert int(hover(page, 0.02)["step"]) <= 1
  page.drag(f"{REWARD} .u-over", 0.5, 0.9)
  assert int(hover(page, 0.02)["step"]) >= 10
  page.click(f"{REWARD} .u-over", clicks=2)
  assert int(hover(page, 0.02)["step"]) <= 1


def test_smoothing_is_a_debiased_moving_average(page, workdir):
  page.choose("#controls [name=smooth]", "0.9")
  found = hover(page, 0.5)
  step = int(found["step"])
  weights = 0.9 ** np.arange(step)[::-1]
  expected = np.average([rewards(workdir)[s] for s in range(1, step + 1)], weights=weights)
  assert float(found["reward"]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("unit", ["tokens", "seconds"])
def test_the_x_axis_has_other_units(page, workdir, unit):
  page.choose("#controls [name=x]", unit)
  seconds = sum(r["time/step"] for r in metrics.read(workdir))
  last = legend(page)[unit]
  assert float(last.replace(",", "")) == pytest.approx(seconds if unit == "seconds" else 0, rel=0.2)
  page.click("#controls [name=log]")
  assert page.run("document.querySelectorAll('figure:not(.drawn)').length") == 0


def test_filters_pick_completions_from_all_steps(page):
  facts = "[...document.querySelectorAll('.completion .soft')].map(line => line.innerText)"
  assert page.run("document.querySelectorAll('.completion').length") == 4  # the last step's group
  page.choose("#browser [name=step]", "0")
  assert "step 1 " in page.run("document.querySelector('.question').innerText")
  page.choose("#browser [name=filter]", "truncated")
  assert len(page.run(facts)) == 10 and all("truncated" in line for line in page.run(facts))
  page.click("#browser [name=more]")
  assert len(page.run(facts)) == 20
  page.choose("#browser [name=filter]", "best")
  assert all(line.startswith("reward 1 ") for line in page.run(facts))
  page.choose("#browser [name=filter]", "worst")
  assert all(line.startswith("reward 0 ") for line in page.run(facts))


def test_a_click_colours_tokens_by_what_is_known_of_them(page):
  text = "[...document.querySelectorAll('.completion pre')].map(box => box.innerText)"
  tokens = "[...document.querySelectorAll('.completion:nth-of-type({}) pre span')].map(t => {})"
  alpha = "Number((getComputedStyle(t).backgroundColor.match(/[/] ([0-9.]+)/) || [0, 1])[1])"
  plain = page.run(text)
  assert page.run("document.querySelectorAll('.completion span').length") == 0
  page.click("#browser [value=logp]")
  assert page.run(text) == plain and page.run("document.querySelectorAll('.completion span').length") == 8
  titles, shades = (page.run(tokens.format(2, each)) for each in ("t.title", alpha))
  assert titles[:2] == ["log-prob -0.01 · entropy 0.2", "log-prob -1.5 · entropy 3"]
  assert titles[2:] == ["not sampled", "log-prob -50 · entropy 1"]
  assert shades == pytest.approx([0, 0.27, 0, 0.9], abs=0.01)  # 0.9 at 5 nats
  page.click("#browser [value=entropy]")
  assert page.run(tokens.format(2, alpha)) == pytest.approx([0.06, 0.9, 0, 0.3], abs=0.01)
  page.choose("#browser [name=step]", "0")  # a step without entropies
  assert page.run("document.querySelectorAll('.completion span').length") == 0 and len(page.run(text)) == 4
  page.click("#browser [value='']")
  page.choose("#browser [name=step]", "19")
  assert page.run(text) == plain and page.run("document.querySelectorAll('.completion span').length") == 0


def test_a_trajectory_is_shown_turn_by_turn_and_token_by_kind(tab, tmp_path):
  seen = [dict(seen="", action="left", reward=0.0, valid=True, advantage=-0.5)]
  seen.append(dict(seen=ATTACK, action="up", reward=1.0, valid=True, advantage=1.0, ending="done"))
  tokens = dict(tokens=[["left", ATTACK, "up"]], sampler_logp=[[-1.0, None, -2.0]], kinds=["aoa"])
  with metrics.Writer(tmp_path) as writer:
    writer.write("train", 1, {"reward": 0.25})
    group = dict(prompt="PF", completions=["x"], rewards=[1.0], lengths=[3], ended=[True], turns=[seen])
    writer.completions(1, [group | tokens])
  tab.errors.clear()
  tab.open(report.write(tmp_path).as_uri())
  boxes = tab.run("[...document.querySelectorAll('#completions .turns > *')].map(box => box.innerText)")
  first = ["1", "(the prompt)", "left", "reward 0 · advantage -0.5"]
  assert boxes == [*first, "2", ATTACK, "up", "reward 1 · advantage 1"]
  assert "2 turns · ended: done" in tab.run("document.querySelector('.completion').innerText")
  colour = "getComputedStyle(document.querySelectorAll('#completions .action')[{}]).backgroundColor"
  assert len({tab.run(colour.format(0)), tab.run(colour.format(1))}) == 2
  tab.click("#browser [value=kind]")
  spans = "[...document.querySelectorAll('#completions pre span')].map(one => [one.className, one.title])"
  assert tab.run(spans) == [
    ["kind-a", "action · log-prob -1"], ["kind-o", "observation"], ["kind-a", "action · log-prob -2"],
  ]  # fmt: skip
  assert tab.errors == []


def test_without_scripts_the_pictures_are_there(tab, workdir):
  tab.send("Emulation.setScriptExecutionDisabled", value=True)
  try:
    tab.send("Page.navigate", url=(workdir / "report.html").as_uri())
    tab.wait("document.readyState === 'complete'")
    seen = "[...document.querySelectorAll('{}')].filter(one => one.getClientRects().length).length"
    assert tab.run(seen.format("figure > svg")) == tab.run(seen.format("figure")) > 10
    assert tab.run(seen.format("form")) == 0 and tab.run(seen.format("#samples")) == 1
  finally:
    tab.send("Emulation.setScriptExecutionDisabled", value=False)


def test_a_live_page_follows_its_runs(tab, tmp_path):
  runs = [tmp_path / "a", tmp_path / "b"]
  for run in runs:
    with metrics.Writer(run) as writer:
      writer.write("train", 1, {"reward": 0.25})
  server = watch.serve(runs, 0)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  tab.errors.clear()
  try:
    tab.open(f"http://127.0.0.1:{server.server_port}/")
    tab.wait("document.getElementById('state').textContent.includes('looked')")
    with (runs[1] / "metrics.jsonl").open("a") as file:
      file.write(json.dumps({"step": 2, "kind": "train", "wall": 0, "reward": 0.75}) + "\n")
    tab.wait(f"document.querySelector(\"{REWARD}\").innerText.includes('0.75')")
    assert legend(tab) == {"step": "2", "a": "0.25", "b": "0.75"}
    with (runs[0] / "metrics.jsonl").open("a") as file:
      file.write(json.dumps({"step": 2, "kind": "eval", "wall": 0, "eval/pass@1": 0.5}) + "\n")
    tab.wait("document.querySelector('table') && document.body.innerText.includes('pass@1, %')")  # made anew
    assert tab.errors == []
  finally:
    server.shutdown()
    server.server_close()
