"""Verdicts against a table made by hand, and workers that hang, die, or lose their trainer."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from grpojax import rewards
from grpojax.rewards import extract, pool
from grpojax.rewards.math import equivalent

TABLE = json.loads(Path(__file__).parents[1].joinpath("data").joinpath("math_verdicts.json").read_text())
HANGS = r"\boxed{9^{9^{9^{9}}}}"
VERDICT = "grpojax.rewards.equivalence:verdict"


def grade(pairs, **knobs):
  """Verdicts on (gold, completion)."""
  return equivalent([rewards.Sample(text, {"answer": gold}, 1, True) for gold, text in pairs], **knobs)


def test_the_table_is_long_enough_and_has_every_verdict():
  assert len(TABLE) >= 60
  assert {verdict for _, _, verdict in TABLE} == {0, 1, None}


def test_every_verdict_of_the_table():
  """Each is a decision: what is lenient and what is not stands there, not in the library."""
  got = grade([(gold, rf"so \boxed{{{answer}}}") for gold, answer, _ in TABLE], timeout=30.0)
  wrong = [(*row, said) for row, said in zip(TABLE, got, strict=True) if said != row[2]]
  assert not wrong


def test_the_fast_path_says_what_the_library_says():
  plain = [row for row in TABLE if extract.number(row[0]) and extract.number(extract.tidy(row[1]))]
  assert len(plain) > 10
  asked = [[extract.truth(gold), extract.tidy(answer)] for gold, answer, _ in plain]
  got = pool.call(VERDICT, asked, timeout=30.0, workers=2)
  assert got == [verdict for *_, verdict in plain]


SCIENTIFIC = {  # gold -> (right answers, wrong answers)
  "2.19e6": ([r"2.19 \times 10^6", "2190000", "2,190,000", "2.19E6", r"2.19\cdot10^{6}"], ["2.19", "2.19e5"]),
  "4.5e33": ([r"4.5 \times 10^{33}", "45e32"], ["4.5"]),
  r"1.6\times 10^{-19}": (["1.6e-19", "1.6 * 10^-19"], ["0", "1.7e-19", "1.6e-18"]),
  "1.5e-05": (["0.000015", "1.5e-5"], ["0.000016", "0", "15"]),
  "0.0000001": (["1e-7", "10^{-7}", "0.00000010"], ["0", "0.0000002"]),
  r"\frac{1}{10000000}": (["1e-07"], ["0.0", "0"]),
  "0": (["0.0", "0e5"], ["0.0000001", "1e-9", "1e-999"]),
  "1e-400": (["10^{-400}"], ["1e-401", "0"]),
  "1/3": (["0.333333"], ["0.33333"]),
  "10^6": (["1000000", "1e6"], ["10"]),
}


def test_numbers_with_exponents_are_numbers_and_small_ones_are_not_nothing():
  """Six places are nothing of 1e-7, and math-verify takes e for a letter."""
  asked = [(gold, rf"\boxed{{{answer}}}", right) for gold, (yes, no) in SCIENTIFIC.items()
           for right, answers in ((1, yes), (0, no)) for answer in answers]  # fmt: skip
  got = grade([row[:2] for row in asked], timeout=30.0)
  assert not [(*row, said) for row, said in zip(asked, got, strict=True) if said != row[2]]


SPELLED = [
  ("90", r"\boxed{90°}"), ("90°", r"\boxed{90}"), ("-5", "\\boxed{\u20135}"),
  (r"2\sqrt{13}", r"\boxed{2√13}"),
  (r"x \leq 5", r"\boxed{x ≤ 5}"), (r"\emptyset", r"\boxed{\varnothing}"),
  (r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}", r"\boxed{\begin{pmatrix} 1 \\[4pt] -2 \end{pmatrix}}"),
]  # fmt: skip


def test_what_is_spelled_in_unicode_or_set_with_distances_is_the_same():
  assert grade(SPELLED, timeout=30.0) == [1.0] * len(SPELLED)


@pytest.mark.parametrize(
  ("form", "text", "answer"),
  [
    ("boxed", r"\boxed {5} or so", "5"),
    ("boxed", r"it is \fbox{5}", "5"),
    ("boxed", r"so \boxed 5.", "5"),
    ("boxed", r"\boxed{5}, in the form of \boxed as asked", "5"),
    ("hashes", "#### **5**", "5"),
    ("number", "The answer is 3/4.", "3/4"),
    ("number", "between 3-5", "5"),
    ("number", "on 3/4/2020", "2020"),
    ("number", "it is -5, or (2)-3", "3"),
    ("number", "about 1.5e-5.", "1.5e-5"),
    ("boxed", r"\boxed{5}", "5"),
    ("boxed", r"\boxed{\frac{1}{2}} ok", r"\frac{1}{2}"),
    ("boxed", r"\boxed{\left\{1,2\right.}", r"\left\{1,2\right"),
    ("boxed", r"\boxed{3} or \boxed{4}", "4"),  # the last one speaks
    ("boxed", r"\boxed{\boxed{4}}", "4"),
    ("boxed", r"\boxed{3", None),
    ("boxed", r"\boxed{3} \boxed{4", None),
    ("boxed", r"\boxed{}", None),
    ("boxed", "the answer is 5", None),
    ("boxed", r"<think>\boxed{3}</think> \boxed{4}", "4"),
    ("boxed", r"\boxed{3}</think> 4", None),  # the template opened the thought
    ("boxed", r"<think>\boxed{3}", None),
    ("boxed", r"</think><think>\boxed{3}", None),
    ("answer", "so\nAnswer: 5", "5"),
    ("answer", "so\n**Answer:** $5$.\n", "5"),
    ("answer", "Answer: \\boxed{5}", "5"),
    ("answer", "Answer: 5\nno, 6", None),  # not the last line
    ("answer", "The answer: 5", None),
    ("answer", r"\boxed{5}", None),
    ("answer", "", None),
    ("hashes", "so\n#### 72.", "72"),
    ("hashes", "#### $72", "72"),
    ("hashes", "#### 72.0\nbye", "72.0"),
    ("hashes", "#### 1 #### 2", "2"),
    ("hashes", "#### 1\n####", None),
    ("hashes", "72", None),
    ("number", "the answer is 5", "5"),
    ("number", "2 + 3 = 5.", "5"),
    ("number", "3 or \u221212?", "-12"),
    ("number", "1,234.50 of them", "1,234.50"),
    ("number", "none", None),
  ],
)
def test_an_answer_is_read_in_its_form_alone(form, text, answer):
  assert extract.answer(text, form) == answer
  if answer == "5":
    assert grade([("5", text), ("6", text)], form=form) == [1, 0]


def test_long_lines_are_read_in_linear_time():
  """With a square in it, this would not end."""
  stars = "* " * 10**5
  assert extract.answer(f"Answer: {stars}a {stars}", "answer") == "a"
  assert extract.answer("\\boxed{" * 10**5, "boxed") is None
  assert extract.program("```python\n" * 10**5) is None


@pytest.mark.parametrize(
  ("gold", "truth"),
  [("72", "72"), ("so 8*9=<<8*9=72>>72\n#### 72", "72"), (r"thus \boxed{\frac12}.", r"\frac12")],
)
def test_the_truth_may_stand_at_the_end_of_a_solution(gold, truth):
  assert extract.truth(gold) == truth


def test_votes_compare_values():
  config = dict(accuracy=dict(fn="math:equivalent", form="boxed"))
  built = rewards.build(config)
  same = [r"\boxed{0.5}", r"\boxed{\frac{1}{2}}", r"\boxed{ 2/4 }", r"$\boxed{$.50$}$"]
  assert {built.answer(text) for text in same} == {"1/2"}
  assert built.answer("\\boxed{\u22121,234}") == "-1234"
  assert built.answer(r"\boxed{x + 1}") == "x+1" and built.answer("5") is None
  assert built.needs({}) == ("answer",)


def test_a_hanging_answer_is_a_counted_timeout_and_costs_its_row_only():
  config = dict(accuracy=dict(fn="math:equivalent", timeout=1.0, workers=2))
  texts = [[r"\boxed{1+x}", HANGS], [HANGS, r"\boxed{7}"], [r"\boxed{7}", "?"]]
  examples = [{"answer": answer} for answer in ("x+1", "7", "?")]
  shape = (3, 2)
  start = time.monotonic()
  completions = rewards.samples(examples, texts, np.ones(shape, int), np.ones(shape, bool))
  graded = rewards.score(rewards.build(config), completions)
  assert time.monotonic() - start < 20  # one second each, and room for a busy machine
  np.testing.assert_array_equal(graded.valid, [[True, False], [False, True], [False, False]])
  np.testing.assert_array_equal(graded.accuracy, [[1, 0], [0, 1], [0, 0]])
  assert graded.counts == {"rewards/accuracy/failed": 2, "rewards/accuracy/abstained": 2}
  assert "Reward 'accuracy' raised TimeoutError('no result in 1 s')" in graded.first_error
  assert rewards.build(config)  # grpojax/rewards/math.py does not shadow the library's math


@pytest.mark.slow
def test_memory_that_runs_out_is_a_failure_and_no_verdict():
  assert pool.call("resource:getrlimit", [[resource.RLIMIT_AS]], timeout=30.0, workers=1) == [[2 << 30] * 2]
  (error,) = pool.call("builtins:bytearray", [[1 << 40]], timeout=30.0, workers=1)
  assert isinstance(error, RuntimeError) and "MemoryError" in str(error)


@pytest.mark.slow
def test_what_one_call_does_is_nobody_elses_matter():
  """Hangs, deaths and errors between honest calls; the pool heals, and stays healed."""
  calls = [[0.0], [60], ["x"], [0.01]]
  for _ in range(2):
    got = pool.call("time:sleep", calls, timeout=0.5, workers=2)
    assert got[0] is None and got[3] is None
    assert isinstance(got[1], TimeoutError) and "TypeError" in str(got[2])
  (dead,) = pool.call("os:_exit", [[3]], timeout=30.0, workers=1)
  assert isinstance(dead, RuntimeError)
  assert pool.call("os:getpid", [], timeout=1.0, workers=1) == []


def test_scoring_runs_beside_other_work():
  """From a thread, with no signal, while this one goes on."""
  got, ticks = [], 0
  pairs = [("7", HANGS), ("x", r"\boxed{x}")]
  thread = threading.Thread(target=lambda: got.extend(grade(pairs, timeout=1.0)))
  thread.start()
  while thread.is_alive():
    ticks += 1
    time.sleep(0.01)
  assert isinstance(got[0], TimeoutError) and got[1] == 1
  assert ticks > 20


def below(pid: int) -> set[int]:
  """Every descendant of a process."""
  parents = {}
  for stat in Path("/proc").glob("[0-9]*/stat"):
    try:
      fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
      continue
    parents[int(stat.parent.name)] = int(fields[1])
  found = {pid}
  while more := {p for p, parent in parents.items() if parent in found} - found:
    found |= more
  return found - {pid}


def alive(pid: int) -> bool:
  try:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
  except OSError:
    return False


TRAINER = f"""
import jax
from grpojax.rewards import pool
pool.call({VERDICT!r}, [["x", "x"]], timeout=30, workers=2)
print("warm", flush=True)
pool.call({VERDICT!r}, [["7", "9^{{9^{{9^{{9}}}}}}"]] * 2, timeout=600, workers=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_know_no_jax_and_die_with_a_trainer_that_was_killed(tmp_path):
  script = tmp_path / "trainer.py"
  script.write_text(TRAINER)
  root = str(Path(rewards.__file__).parents[2])
  environment = dict(os.environ, PYTHONPATH=root, JAX_PLATFORMS="tpu,cpu")
  trainer = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment)
  try:
    assert trainer.stdout.readline() == b"warm\n"
    time.sleep(1)  # both workers hang in one multiplication that keeps the GIL
    processes = below(trainer.pid)
    assert len(processes) >= 4
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in processes)
    assert "libpython" in maps or "python" in maps
    assert "jaxlib" not in maps
    worker = max(processes)
    environ = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    assert b"JAX_PLATFORMS=cpu" in environ and b"TPU_VISIBLE_DEVICES=" in environ
  finally:
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
  deadline = time.monotonic() + 20
  while any(map(alive, processes)) and time.monotonic() < deadline:
    time.sleep(0.1)
  left = [pid for pid in processes if alive(pid)]
  for pid in left:
    os.kill(pid, signal.SIGKILL)
  assert not left


@pytest.mark.parametrize(
  ("knobs", "message"),
  [
    (dict(form="box"), "form = 'box', but it is one of boxed, answer, hashes"),
    (dict(timeout=0), "timeout = 0 must be a number of seconds above 0"),
    (dict(workers=0), "workers = 0 must be"),
    (dict(workers=1.5), "workers = 1.5 must be"),
    (dict(tolerance=1), "has no tolerance; it takes form, timeout, workers, weight"),
  ],
)
def test_bad_knobs_are_named(knobs, message):
  with pytest.raises(ValueError, match=message):
    rewards.build(dict(accuracy=dict(fn="math:equivalent", **knobs)))
