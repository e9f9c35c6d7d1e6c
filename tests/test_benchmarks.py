"""The benchmarks that nobody can run here, at tiny sizes, and the arithmetic of their tables."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # benchmarks/ is not installed

from benchmarks import agents, attention, mixture, real, setting  # noqa: E402
from benchmarks.conformance import __main__ as conformance  # noqa: E402
from benchmarks.conformance import asked  # noqa: E402
from benchmarks.gpu import __main__ as gpu  # noqa: E402
from benchmarks.gpu import work  # noqa: E402
from benchmarks.peers import __main__ as peers  # noqa: E402
from grpojax import models  # noqa: E402
from grpojax.models import spec as spec_lib  # noqa: E402
from grpojax.tools.port import command as port  # noqa: E402

SYSTEM = """
import signal, sys
signal.alarm(20)  # a gate that never answers ends too
sys.path.insert(0, {here!r})
import serve
print("what libraries say is no answer")
passed = []
gate = serve.Gate({{"rollout": lambda: 7 + len(passed)}}, lambda: passed.append("settled"), {{"it": "1"}})
while True:
  gate()
  passed.append("step")
  if passed.count("step") > 3:
    raise ValueError("broken")
"""


@pytest.mark.slow
def test_the_accelerators_script_runs_dry_and_counts_what_is_necessary(monkeypatch, capsys):
  small = ["limits", "step:0.5B", "decode:7B", "update:7B"]
  found = {part: work.one(part, dry=True) for part in small}
  found["trl:0.5B"] = dict(found["step:0.5B"], seconds=3.5 * found["step:0.5B"]["seconds"])
  monkeypatch.setattr(gpu, "collect", lambda *_: found)
  gpu.main(["--dry-run"])
  lines = capsys.readouterr().out.splitlines()
  parts = ["step:0.5B", "decode:7B", "update:7B", "trl:0.5B"]
  assert [line.split(" | ")[0] for line in lines if "B |" in line] == [f"| {part}" for part in parts]
  assert any("3.50 times as fast as TRL's (≥ 3.0: reached)" in line for line in lines)

  w, (D, layers, N, K, H, F, _), V = work.DRY, *work.TINY
  layer = D * (N + 2 * K) * H + (N + 2 * K) * H + N * H * D + 3 * D * F + 2 * D
  weights, kv = 2 * (layers * layer + D + V * D), 2 * layers * K * H * 2
  decode, slots = found["decode:7B"], w.prompts * w.group_size
  assert decode["slots"] == slots
  steps = [weights + kv * (w.prompts * w.prompt + slots * own) for own in range(1, w.new)]
  assert decode["necessary_bytes"] == sum(steps)

  T, columns = w.half, 3 * w.half  # a prompt and two responses, as long as it
  pairs = T**2 / 2 + 2 * (T**2 + T**2 / 2)
  of_prompt = 2 * columns * (layers * layer + D) + 4 * layers * N * H * pairs + 2 * 2 * T * V * D
  assert found["update:7B"]["necessary_flops"] == 3 * w.rows * of_prompt
  assert found["update:7B"]["dtype"] == "float32"
  assert found["step:0.5B"]["rows"] == w.step_prompts * w.group_size


@pytest.mark.slow
def test_trajectories_of_many_turns_are_measured_at_tiny_sizes():
  """A cache that goes on computes nothing twice, and a fresh prefill does; who waits leaves it idle."""
  agents.pool.cache_clear()
  try:
    found = agents.measured(agents.calls(agents.TINY), rounds=1)
  finally:
    agents.pool().close()
    agents.pool.cache_clear()
  one, two, waiting = found.values()
  assert all(row["computed"] <= row["tokens"] for row in (one["cache goes on"], two["cache goes on"]))
  assert two["fresh prefill"]["computed"] > two["fresh prefill"]["tokens"] == two["cache goes on"]["tokens"]
  assert two["fresh prefill"]["turns"] == 16 and waiting["10 ms a step"]["turns"] == 16
  assert waiting["10 ms a step"]["idle"] > 0
  rows = agents.table(found).splitlines()
  assert len(rows) == 2 + 6 + 2 and rows[-1].count("reached") == 2


def test_shapes_of_the_accelerators_script_are_those_of_the_models():
  """As many parameters as the published checkpoints have."""
  for name, parameters in ("0.5B", 494_032_768), ("1.5B", 1_543_714_304), ("7B", 7_615_616_512):
    job_sizes, vocab = work.MODELS[name]
    c = work.base.get_config().model
    c.update(dict(zip(work.SIZES, job_sizes, strict=True)))
    shapes = models.from_spec(spec_lib.from_config(c, vocab)).shapes
    assert sum(x.size for x in jax.tree.leaves(shapes)) == parameters


def test_a_part_that_fails_or_has_no_time_is_named(monkeypatch):
  def run(command, timeout, **_):
    if "--part=limits" in command:
      return SimpleNamespace(returncode=1, stderr="Traceback\nOut of memory\n")
    raise gpu.subprocess.TimeoutExpired(command, timeout)

  monkeypatch.setattr(gpu.subprocess, "run", run)
  found = gpu.collect(["limits", "trl:0.5B", "decode:7B"], dry=True, seconds=1)
  assert found == {
    "limits": dict(skipped="Out of memory"),
    "trl:0.5B": dict(skipped="it needs --trl"),
    "decode:7B": dict(skipped="no time was left"),
  }


def test_a_system_lets_as_many_steps_pass_as_were_asked_for(tmp_path):
  script = tmp_path / "system.py"
  script.write_text(SYSTEM.format(here=str(ROOT / "benchmarks" / "peers")))
  system = peers.System([sys.executable, str(script)], tmp_path / "log")
  first = system.ask("step 1")
  assert first["versions"] == {"it": "1"} and first["rss_mb"] > 1 and first["tokens"] == 0
  assert 0 <= first["others"] <= 1 and first["cpu"] >= 0
  system.ask("step 2")
  # three steps passed, and it settled at the gate before, between and after: not amid the two
  assert system.ask("rollout 1")["tokens"] == 7 + 3 + 3
  with pytest.raises(SystemExit, match=r"'step 1' ended .*system.py(.|\n)*broken"):
    system.ask("step 1")
  assert "no answer" in (tmp_path / "log").read_text()


def _numbers(median, **more):
  return dict(median=median, low=median, high=median, cpu_over_wall=1.9, others=0.0) | more


def test_the_table_of_peers_knows_which_way_is_better():
  of = lambda ours, trl, tunix, **more: dict(
    systems={"grpojax": _numbers(ours), "TRL": _numbers(trl), "Tunix": _numbers(tunix)} | more
  )
  busy = _numbers(900.0, cpu_over_wall=1.2, others=0.3)
  rows = {
    "rollout": of(200.0, 100.0, 160.0),
    "heavy": of(2000.0, 500.0, 400.0, **{"grpojax, static batch": busy}),
    "step": of(1.0, 1.4, 1.9),
    "start": of(6.0, 5.0, 9.0, **{"grpojax, cold cache": _numbers(21.0)}),
  }
  lines = peers.table(rows).splitlines()[2:]
  cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
  got = [(row[0].split(",")[0], row[1], row[3], row[5], row[7:]) for row in cells]
  no = ["**not reached**"]
  assert got == [
    ("rollout", "grpojax", "Tunix", "1.25", no),  # the better of two
    ("rollout", "grpojax", "grpojax, static batch", "2.22", ["reached"]),
    ("rollout", "grpojax", "TRL", "4.00", ["reached"]),
    ("whole step", "grpojax", "TRL", "1.40", ["reached"]),
    ("whole step", "grpojax", "Tunix", "1.90", no),
    ("process start to end of first step", "grpojax", "TRL", "1.20", ["reached"]),
    ("process start to end of first step", "grpojax, cold cache", "TRL", "4.20", no),
    ("process start to end of first step", "grpojax, cold cache", "Tunix", "2.33", []),
  ]
  assert [line.count(" * |") for line in lines] == [0, 1, 0, 0, 0, 0, 0, 0]  # who was contended


def test_what_was_measured_of_the_real_model_is_kept_when_it_is_ended(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(setting, "RESULTS", tmp_path)
  monkeypatch.setattr(setting, "_git", lambda *_: "abc" if _[0] == "describe" else "")
  monkeypatch.setenv("PEERS_MODEL", "")
  monkeypatch.setattr(real, "report", lambda name, text: print(text))
  (tmp_path / "prompts.jsonl").touch()
  (tmp_path / "answers.jsonl").write_text('{"round": 0, "row": "step", "system": "TRL", "commit": "old"}\n')
  asked, wall = [], {"step": {"TRL": 20.0, "grpojax": 12.0}, "rollout": {"TRL": 8.0, "grpojax": 7.0}}

  def measure(system, row, dtype, pythons, work):
    asked.append((row, system, dtype))
    if len(asked) == 3:
      raise KeyboardInterrupt
    faster = 0.5 if (system, dtype) == ("grpojax", "bfloat16") else 1.0
    seconds = {name: faster * wall[name][system] + len(asked) / 1000 for name in wall}
    answer = lambda s: dict(wall=s, cpu=2 * s, rss_mb=4000.0, others=0.0, versions={})
    return {name: answer(s) for name, s in seconds.items()} | dict(start=30.0)

  monkeypatch.setattr(real, "measure", measure)
  command = ["--trl", "python", "--work", str(tmp_path), "--only", "step", "--rounds", "2"]
  with pytest.raises(KeyboardInterrupt):
    real.main(command)
  assert not (tmp_path / f"{real.NAME}.json").exists()
  real.main(command)
  turn = [("step", system, dtype) for dtype in ("float32", "bfloat16") for system in ("TRL", "grpojax")]
  assert asked == turn[:3] + turn[2:] + turn  # what was ended is done again, and nothing else
  kept = json.loads((tmp_path / f"{real.NAME}.json").read_text())["rows"]
  rounds = {name: kept[name]["TRL, float32"]["rounds"] for name in kept}
  assert rounds == dict.fromkeys(kept, 2) | {"start": 1}  # whose first round had an empty cache
  assert kept["update"]["grpojax, float32"]["median"] == pytest.approx(5.0, abs=0.01)
  lines = {line.split(" | ")[0].strip("| "): line for line in capsys.readouterr().out.splitlines()}
  assert lines["whole step, s"].endswith("| 0.30 | 0.55 | reached |") or real.AMX  # 6 of 20 s
  assert lines["peak memory of a process that trains, MB"].endswith("| 1.00 | 0.6 | **not reached** |")
  assert not any("log-prob" in line for line in lines)  # which nobody has measured
  real.main([*command[:-1], "1"])
  assert len(asked) == 9


def test_a_table_replaces_the_last_one_on_the_page(tmp_path, monkeypatch, capsys):
  page = tmp_path / "docs" / "performance.md"
  page.parent.mkdir()
  page.write_text("above\n<!-- it -->\nold\ntable\n<!-- /it -->\nbelow\n<!-- other -->\n<!-- /other -->\n")
  monkeypatch.setattr(setting, "ROOT", tmp_path)
  setting.report("it", r"a \* b")
  setting.report("other", "c")
  want = "above\n<!-- it -->\na \\* b\n<!-- /it -->\nbelow\n<!-- other -->\nc\n<!-- /other -->\n"
  assert page.read_text() == want and capsys.readouterr().out == "a \\* b\nc\n"


@pytest.mark.parametrize("name", ["peers", "real", "real_amx", "packing", "agents", "scaling", "gpu"])
def test_the_page_has_a_place_for_every_table(name):
  page = (ROOT / "docs" / "performance.md").read_text()
  assert page.count(f"<!-- {name} -->\n") == page.count(f"<!-- /{name} -->\n") == 1


def test_a_recorded_command_has_no_path_of_the_machine(monkeypatch):
  monkeypatch.setattr(sys, "argv", ["it", "--trl", "/home/me/trl/bin/python", "--rounds", "7", "here/too"])
  assert setting.setting("benchmarks.peers")["command"] == (
    "python -m benchmarks.peers --trl trl/bin/python --rounds 7 here/too"
  )


SCHEDULE = """
     0   :  { prologue }
   0x1   :  { more }
  0x10 LB: > { the loop }
  0x18 PF: > { nothing to begin }
  0x70 PF: > { a block was here }
  0x80   : > { the end }
"""


def test_a_kernels_time_is_that_of_its_blocks_and_of_what_the_mask_leaves_empty(monkeypatch):
  """Of rows of 8 columns, blocks of 2 queries and 4 keys: two of the eight are empty."""
  found = attention.read(SCHEDULE)
  assert found == (0x70, 0x58)
  monkeypatch.setattr(attention, "COLUMNS", 8)
  assert attention.cycles(found, 2, 4, least=1) == 6 * 0x70 + 2 * (0x70 - 0x58)
  assert attention.cycles(found, 2, 4, least=1000) == 6 * (1000 + 0x18) + 2 * 0x18


PRODUCT = """
   0x2   :  { %1 = sbr.rel (%p0) target = $region85 }
  0x10 LB: > { the loop } /* Start region 91 */
  0x18   : > { %2 = sbr.rel (%p1) target = $region32 } /* no step */
  0x20   : > { %3 = sbr.rel (!%p2) target = $region44 } /* not an expert's first */
  0x30 PF: > { the product } /* Start/End empty region 44 */
  0x90   : > { %4 = sbr.rel (!%p3) target = $region48 } /* not its last */
  0xa0 PF: > { the end of a step } /* Start/End empty region 48 */
  0xa8 PF: > { } /* Start/End empty region 32 */
  0xb0   : > { %5 = sbr.rel (!%p4) target = $region91 }
  0xb8 PF:  { } /* Start/End empty region 85 */
"""


def test_a_mixtures_product_is_a_step_for_every_tile_and_begins_and_ends_once_an_expert():
  found = mixture.read(PRODUCT)
  assert found == (0xA0 - 0x20, 0x20)
  tiles, matrix = mixture.ROWS // 128, (mixture.WIDTH, mixture.HIDDEN)
  whole = lambda peak: mixture.share(found, (128, *matrix), matrix, peak)
  of_tile = 2 * 128 * mixture.WIDTH * mixture.HIDDEN
  assert whole(of_tile / 1000) == pytest.approx(tiles * 1000 / (tiles * 1000 + 0x20))  # as fast as can be
  assert whole(of_tile / 64) == pytest.approx(tiles * 64 / (tiles * 0x80 + 0x20))
  parts = mixture.share(found, (128, mixture.WIDTH, 512), matrix, of_tile / 1000)  # of 1.5, the rest is empty
  assert parts == pytest.approx(tiles * 1000 / (2 * (tiles * 1000 / 1.5 + 0x20)))


@pytest.mark.parametrize(
  "got, word",
  [
    ([[1.0, -2.0]], "equal"),
    ([[0.875, -1.75]], "× 0.875"),
    ([[1.001, -2.002]], "close"),
    ([[1.0, -2.004]], "close"),
    ([[1.0, 2.0]], "differs"),
    ([[1.0, float("nan")]], "differs"),
  ],
)
def test_a_gradient_is_equal_a_multiple_close_or_another(got, word):
  assert conformance.compared("trl", got, np.array([[1.0, -2.0]])) == word
  case = dict(expected_grad_logp=[[1.0, -2.0]], expected_loss=0.5)
  answer = dict(given=dict(loss=0.5, gradient=got))
  assert conformance.of_loss("trl", case, answer) == word
  if word == "equal":
    answer["given"]["loss"] = 0.6
    assert conformance.of_loss("trl", case, answer) == "differs in value"


@pytest.mark.parametrize("peer", conformance.PEERS)
def test_what_a_peer_is_asked_for_are_keys_of_its_table(peer):
  count = 0
  for case in conformance.cases().values():
    try:
      config = getattr(asked, peer)(case) | getattr(asked, f"{peer}_advantage")(case)
    except asked.Lacks as why:
      assert str(why)
      continue
    count += 1
    assert set(config) <= set(port.table(peer).keys), case["name"]
  assert count > 20


def test_the_page_of_conformance_has_a_place_for_both_tables():
  page = (ROOT / "docs" / "conformance.md").read_text()
  for name in ("conformance", "differences"):
    assert page.count(f"<!-- {name} -->\n") == page.count(f"<!-- /{name} -->\n") == 1
