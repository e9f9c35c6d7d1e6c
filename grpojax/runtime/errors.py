"""The one door for errors: a command ends in one sentence and a status, or with --debug in a traceback.

Statuses are those that launchers read: 1 for an error, 75 for "start me again", 130 for Ctrl-C.
"""

import atexit
import functools
import inspect
import os
import select
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from grpojax.runtime import garbage, streams

FLAG = "--debug"  # of every command: what is raised shows its traceback
INTERRUPTED = 130  # what a shell says of a process that Ctrl-C ended
READER_GONE = 141  # what a shell says of a process whose output nobody reads on, as behind `| head`
_PACKAGE = Path(__file__).parents[1]
_OURS = _PACKAGE, _PACKAGE.parent / "experiments"
_LONGEST = 500  # characters of somebody else's message
_debug = False


def take_flag() -> None:
  """Takes --debug out of the command line; without it, threads whose read has failed elsewhere are silent."""
  global _debug
  if FLAG in sys.argv:
    sys.argv.remove(FLAG)
    _debug = True
  if not _debug:
    sys.unraisablehook = functools.partial(_of_threads, sys.unraisablehook)


def _of_threads(others: Callable, raised) -> None:
  """Leaves out what TensorStore's threads and Orbax's reads raise once Orbax has given up a damaged file.

  The damage itself is raised where the file is read.
  """
  no_loop = isinstance(raised.exc_value, RuntimeError) and str(raised.exc_value) == "Event loop is closed"
  read = inspect.iscoroutine(raised.object) and "orbax" in Path(raised.object.cr_code.co_filename).parts
  if not (no_loop or read):
    others(raised)


def command(main: Callable, *args) -> None:
  """Runs main(*args), a whole command: takes its --debug, collects garbage rarely, ends as `guarded` does."""
  garbage.collect_rarely()
  take_flag()
  try:
    guarded(main)(*args)
  except SystemExit as end:
    if isinstance(end.__context__, KeyboardInterrupt):
      _leave(end.code)
    raise


def _leave(code: int | str) -> None:
  """Ends the process as sys.exit(code) does, but for JAX's part: that takes devices from what is compiling.

  XLA compiles on after Ctrl-C, in threads of its own, and crashes then.
  """
  try:
    if isinstance(code, str):
      print(code, file=sys.stderr)
    atexit.unregister(getattr(sys.modules.get("jax._src.api"), "clean_up", None))  # None: not imported yet
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
  finally:
    os._exit(1 if isinstance(code, str) else code)


def guarded(main: Callable) -> Callable:
  """Returns `main` that ends the process with one sentence for whatever it raises."""

  @functools.wraps(main)
  def run(*args):
    streams.open_all()
    try:
      done = main(*args)
      sys.stdout.flush()  # here, where a reader that has gone is one of the cases below
      return done
    except BrokenPipeError as error:
      if not _reader_has_gone():
        sys.exit(f"error: {sentence(error)}")
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's end complains once more
      sys.exit(READER_GONE)
    except KeyboardInterrupt:
      print("Interrupted.", file=sys.stderr)
      sys.exit(INTERRUPTED)
    except Exception as error:
      if _debug:
        raise
      sys.exit(f"error: {sentence(error)}")

  return run


def to_the_end(workdir, run: Callable[[], bool]) -> None:
  """Calls `run`, which returns whether all is done; ends the process as launchers are told where it is not.

  Raises OSError, with what to do, where a disk is full or has gone.
  """
  try:
    finished = run()
  except KeyboardInterrupt:  # before the first step, or a second one
    sys.exit("Interrupted; the same command goes on from the last checkpoint, if there is one.")
  except OSError as error:
    how = "the same command goes on from the last checkpoint once that is mended"
    raise OSError(f"{workdir}: {error}; {how}.") from error
  if not finished:
    sys.exit(os.EX_TEMPFAIL)


def _reader_has_gone() -> bool:
  """Returns True where nobody reads what this process prints; other pipes may break, too."""
  output = select.poll()
  output.register(sys.stdout.fileno(), 0)
  return any(event & select.POLLERR for _, event in output.poll(0))


def sentence(error: Exception) -> str:
  """Returns one line: what our own code says of a mistake, or what was raised and where it met our code."""
  text = " ".join(str(error).split())
  if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text:
    said = text[:_LONGEST] or "the system gave no more"
    return (
      f"there is not enough memory ({said}); raise config.microbatches, or lower config.rollout.slots,"
      " config.rollout.prompts or config.logprob_chunk."
    )
  frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
  ours = [frame for frame in frames if not set(_OURS).isdisjoint(Path(frame.filename).parents)]
  said_here = bool(ours) and frames[-1] is ours[-1]
  if text and (isinstance(error, OSError) or (said_here and isinstance(error, ValueError | ArithmeticError))):
    return text
  where = f" in {Path(ours[-1].filename).relative_to(_PACKAGE.parent)}:{ours[-1].lineno}" if ours else ""
  return f"{type(error).__name__}{where}: {text[:_LONGEST] or 'no message'}; {FLAG} shows the trace."
