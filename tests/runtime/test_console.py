"""What is printed: plain lines where nothing can be redrawn, nothing from other processes."""

import io
import sys

import jax
import pytest

from grpojax.runtime import console

METRICS = {"reward": 0.51234, "completions/mean_length": 41.2, "tokens_per_second/rollout": 1520.3}


class Terminal(io.StringIO):
  def isatty(self):
    return True


def a_run(verbose):
  with console.compiling("update"):
    pass
  progress = console.bar(total=3, start=1, verbose=verbose)
  for step in (2, 3):
    console.advance(progress, step, METRICS)
  progress.close()
  console.final_table(
    {"eval/pass@1": 0.25, "eval/pass@1_ci95": 0.03},
    {"eval/pass@1": 0.5, "eval/pass@1_ci95": 0.04},
    "runs/grpo/report.html",
    {"rollout": 100.0, "update": 7500.0},
  )


def test_a_line_is_in_a_pipe_as_soon_as_it_is_said(monkeypatch):
  pipe = io.BytesIO()
  monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe))
  console.say("step 1/9")
  assert pipe.getvalue() == b"step 1/9\n"


@pytest.mark.parametrize("verbose", [True, False])
def test_a_log_file_gets_plain_lines(capsys, verbose):
  a_run(verbose)  # pytest's stdout is no terminal
  printed = capsys.readouterr()
  assert printed.err == ""
  assert "\r" not in printed.out
  assert "\x1b" not in printed.out
  lines = printed.out.splitlines()
  assert lines[0] == "compiling update ..."
  assert lines[1].startswith("compiled update in 0.0 s")
  assert lines[2:4] == [f"step {n}/3 reward 0.512 length 41 1520 tok/s" for n in (2, 3)]
  assert lines[-2:] == [
    "time: update 2 h 05 min, rollout 1 min 40 s",
    "report: runs/grpo/report.html",
  ]
  (row,) = [line for line in lines if "pass@1" in line]
  cells = [cell.strip() for cell in row.split("│")[1:-1]]
  assert cells == ["pass@1, %", "25.0 ± 3.0", "50.0 ± 4.0", "+25.0 ± 5.0"]


def test_a_terminal_gets_a_bar_unless_it_is_off(monkeypatch):
  for verbose in (True, False):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    a_run(verbose)
    assert ("3/3 |" in screen.getvalue()) == verbose
    assert ("\r" in screen.getvalue()) == verbose


def test_other_processes_are_silent(capsys, monkeypatch):
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  a_run(verbose=True)
  assert tuple(capsys.readouterr()) == ("", "")


def test_an_evaluation_is_one_line(capsys):
  found = {"eval/pass@1": 0.25, "eval/pass@1_ci95": 0.03, "eval/avg@4": 0.25, "eval/mean_length": 41.0}
  console.evaluation(20, found, 12.34)
  said = "held-out after step 20: pass@1 25.0 ± 3.0 %, mean length 41.0 tokens, in 12.3 s\n"
  assert capsys.readouterr().out == said


@pytest.mark.parametrize(
  ("seconds", "text"),
  [
    (0.04, "0.0 s"),
    (59.94, "59.9 s"),
    (60, "1 min 00 s"),
    (3599.6, "1 h 00 min"),
    (9e4, "25 h 00 min"),
  ],
)
def test_duration(seconds, text):
  assert console.duration(seconds) == text
