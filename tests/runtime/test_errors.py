"""The one door for errors: one sentence, a status, and with --debug the trace."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import subprocesses
from orbax.checkpoint._src.serialization import serialization

from grpojax.config import workdir
from grpojax.runtime import errors, storage

ROOT = Path(__file__).parents[2]


def ends(capsys, do):
  with pytest.raises(SystemExit) as error:
    errors.guarded(do)()
  return error.value.code


def test_what_our_code_says_is_said_as_it_is(tmp_path, capsys):
  (tmp_path / "config.json").write_text('{"steps": ')
  said = ends(capsys, lambda: storage.read_json(tmp_path / "config.json"))
  assert said.startswith(f"error: {tmp_path}/config.json is no JSON (Expecting value") and "\n" not in said


def test_what_a_library_raises_names_where_it_met_our_code_and_the_flag(capsys):
  said = ends(capsys, lambda: storage.read_json(None))
  assert said.startswith("error: AttributeError in grpojax/runtime/storage.py:")
  assert said.endswith("; --debug shows the trace.")


def test_a_message_of_many_lines_is_one(capsys):
  def fails():
    raise RuntimeError("one\ntwo\n" + "x" * 9999)

  said = ends(capsys, fails)
  assert said.startswith("error: RuntimeError: one two xxx") and len(said) < 600


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory")])
def test_memory_that_runs_out_names_the_keys_that_take_less(capsys, error):
  def fails():
    raise error

  assert "; raise config.microbatches, or lower config.rollout.slots" in ends(capsys, fails)


def test_ctrl_c_has_its_own_status(capsys):
  def stops():
    raise KeyboardInterrupt

  assert ends(capsys, stops) == 130 and capsys.readouterr().err == "Interrupted.\n"


COMPILES = """
import threading, time
from grpojax.runtime import errors

def main():
  import jax, jax.numpy as jnp
  def f(x):
    for i in range(400):
      x = jnp.sin(x @ x) + i
    return x
  threading.Thread(target=jax.jit(f).lower(jnp.ones((64, 64))).compile, daemon=True).start()
  time.sleep(0.5)
  raise KeyboardInterrupt

errors.command(main)
"""


def test_ctrl_c_while_a_program_compiles_is_no_crash():
  """XLA goes on, in threads, while the process ends."""
  words = [sys.executable, "-c", COMPILES]
  done = subprocess.run(words, env=subprocesses.environment(), capture_output=True, text=True)
  assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


def test_a_status_is_left_alone(capsys):
  assert ends(capsys, lambda: sys.exit(75)) == 75


def test_the_flag_is_taken_and_shows_the_trace(monkeypatch):
  monkeypatch.setattr(errors, "_debug", False)
  monkeypatch.setattr(sys, "argv", ["grpojax", "report", "--debug", "nosuch"])
  errors.take_flag()
  assert sys.argv == ["grpojax", "report", "nosuch"]
  with pytest.raises(ZeroDivisionError):
    errors.guarded(lambda: 1 / 0)()


def test_no_command_ends_itself_for_what_was_raised():
  """The flag would show no trace of it."""
  ends = re.compile(r"except (ValueError|Exception)\b.*:\n\s+sys\.exit\(")
  assert [path.name for path in (ROOT / "grpojax").rglob("*.py") if ends.search(path.read_text())] == [
    "commandline.py"  # a flag of absl's, before the door
  ]


@pytest.mark.parametrize("debug", [False, True])
def test_threads_whose_read_was_given_up_are_silent_and_others_are_not(monkeypatch, debug):
  heard = []
  monkeypatch.setattr(errors, "_debug", False)
  monkeypatch.setattr(sys, "argv", ["grpojax", "report", *["--debug"] * debug])
  monkeypatch.setattr(sys, "unraisablehook", heard.append)
  errors.take_flag()
  reads, ours = serialization.async_deserialize(None, None), _reads()
  given_up = [
    SimpleNamespace(exc_value=RuntimeError("Event loop is closed"), object=None),
    SimpleNamespace(exc_value=Exception("Encountered error while reading array index"), object=reads),
  ]
  others = [SimpleNamespace(exc_value=RuntimeError("something else"), object=one) for one in (None, ours)]
  for raised in given_up + others:
    sys.unraisablehook(raised)
  assert heard == (given_up + others if debug else others)
  reads.close()
  ours.close()


async def _reads():
  """Stands for a read of another library's."""


def command(*arguments, **options):
  done = subprocess.run(
    [sys.executable, "-m", "grpojax", *arguments], capture_output=True, text=True,
    env=subprocesses.environment(), **{"cwd": ROOT} | options,
  )  # fmt: skip
  return done.returncode, done.stderr


def test_a_report_of_nothing_is_one_sentence_and_status_1(tmp_path):
  status, said = command("report", str(tmp_path / "nosuch"))
  assert status == 1 and said.count("\n") == 1 and "has no records; is this a run's --workdir?" in said
  status, said = command("report", str(tmp_path / "nosuch"), "--debug")
  assert status == 1 and "Traceback" in said


def test_output_that_nobody_reads_on_ends_a_command_quietly(tmp_path):
  """As behind `| head`, whether it is noticed while printing or at the end."""
  for lines in (1, 10_000):
    script = f"from grpojax.runtime import errors; errors.guarded(lambda: print('x\\n' * {lines}))()"
    said = subprocess.run(
      f"sleep 0.2 | {sys.executable} -c \"{script}\" 2>{tmp_path}/said | true; echo ${{PIPESTATUS[1]}}",
      shell=True, executable="/bin/bash", capture_output=True, text=True, env=subprocesses.environment(),
    )  # fmt: skip
    assert (tmp_path / "said").read_text() == "" and said.stdout.strip() == str(errors.READER_GONE)


def test_another_pipe_that_breaks_is_an_error(capfd):
  def fails():
    raise BrokenPipeError("a worker's pipe")

  assert ends(capfd, fails).startswith("error: a worker's pipe")


def test_a_current_folder_that_was_deleted_is_one_sentence(tmp_path):
  gone = tmp_path / "gone"
  gone.mkdir()
  script = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); import grpojax.main"
  done = subprocess.run(
    [sys.executable, "-c", script], capture_output=True, text=True, env=subprocesses.environment()
  )
  assert done.returncode == 1 and done.stderr.startswith("error: the current folder has been deleted")


@pytest.mark.parametrize("content", ["", "{", '"text"', "[1]", "[" * 10**5])
def test_a_config_that_was_cut_short_is_named(tmp_path, content):
  from grpojax.recipes import base

  (tmp_path / "config.json").write_text(content)
  with pytest.raises(ValueError, match=r"config\.json is no JSON.*; bring it back\."):
    workdir.check(tmp_path, base.get_config())


def test_an_object_is_read(tmp_path):
  (tmp_path / "some.json").write_text(json.dumps({"a": 1}))
  assert storage.read_json(tmp_path / "some.json") == {"a": 1}


SAYS = "from grpojax.runtime import console, errors; errors.guarded(lambda: console.say('1 ± 2 目'))()"


@pytest.mark.parametrize(
  ("encoding", "said"),
  [
    ("ascii", rb"1 \xb1 2 \u76ee"),
    ("latin-1", b"1 \xb1 2 \\u76ee"),
    ("utf-8", "1 ± 2 目".encode()),
  ],
)
def test_what_a_stream_cannot_encode_is_escaped_and_ends_no_run(encoding, said):
  env = subprocesses.environment(PYTHONIOENCODING=encoding)
  done = subprocess.run([sys.executable, "-c", SAYS], env=env, capture_output=True)
  assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr


def test_a_closed_stdout_ends_no_run():
  words = ["bash", "-c", '"$0" -c "$1" >&-', sys.executable, SAYS]
  done = subprocess.run(words, env=subprocesses.environment(), capture_output=True)
  assert (done.returncode, done.stderr) == (0, b"")
