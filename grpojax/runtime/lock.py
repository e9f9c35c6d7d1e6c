"""One writer at a time: of a run's folder, and of whatever is made once for all runs.

On a disk that can lock files, the kernel holds the lock and frees it with the process, however that ends.  A
bucket and a disk that cannot lock have a lease instead: a file with its holder's identity, which the holder
writes anew every RENEW seconds and which counts as left once it has stayed the same for LEASE seconds.  No
two clocks are compared.
"""

import contextlib
import fcntl
import json
import os
import shlex
import socket
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from etils import epath

from grpojax.runtime import console, storage, watchdog

RENEW = 15.0  # seconds between two writes of a lease
LEASE = 60.0  # seconds without one after which its holder counts as dead
SETTLE = 2.0  # seconds after which the last of several processes that wrote a lease at once has written


class Held(ValueError):
  """Raised when another process holds a lock; its text says which process, and since when."""


def hold_folder(folder: Path | epath.Path, flag: str, what: str) -> contextlib.AbstractContextManager:
  """Makes the folder that `flag` names, and holds it in the block for `what`, which goes on there.

  Raises ValueError where it cannot be made, and Held where another process holds it.
  """
  storage.make_folder(folder, flag)
  return hold(folder / ".lock", f"{flag}={folder} has {what} that goes on")


@contextlib.contextmanager
def hold(file: Path | epath.Path, what: str, wait: bool = False) -> Iterator[Callable[[], None]]:
  """Holds the lock `file` of `what` in the block; yields a function that raises OSError once it is lost.

  Raises Held where another process holds the lock; with `wait`, says so and waits for that process.
  """
  file.parent.mkdir(parents=True, exist_ok=True)
  told = False
  while True:
    try:
      with _locked(file) if isinstance(file, Path) else _lease(file) as check:
        yield check
        return
    except BlockingIOError as error:
      if not wait:
        raise Held(f"{what}: {error}.") from None
      if not told:
        console.say(f"{what}: {error}; waiting for it")
      told = True
      watchdog.progress(f"waiting for another start at {file}")  # which has a watchdog of its own
      time.sleep(1.0)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[Callable[[], None]]:
  """Holds a lock of the kernel.  Raises BlockingIOError saying who holds it."""
  with file.open("a+") as opened:  # closed in whatever this process starts
    try:
      fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      opened.seek(0)
      raise BlockingIOError(_who(opened.read())) from None
    except OSError:  # a disk that cannot lock
      with _lease(file.with_name(f"{file.name}.lease")) as check:
        yield check
      return
    opened.truncate(0)
    opened.write(json.dumps(_identity()))
    opened.flush()
    try:
      yield lambda: None
    finally:
      fcntl.flock(opened, fcntl.LOCK_UN)  # also for a child that is not yet past its exec


@contextlib.contextmanager
def _lease(file: Path | epath.Path) -> Iterator[Callable[[], None]]:
  """Holds a lease.  Raises BlockingIOError saying who holds it, after at most LEASE seconds."""
  _until_left(file)
  mine, ended = _identity(), threading.Event()
  own = lambda: mine["id"] == _parse(_read(file)).get("id")
  with contextlib.suppress(FileNotFoundError):  # another process was renaming its own at the same moment
    storage.write(file, json.dumps(mine))
  time.sleep(SETTLE)
  if not own():
    raise BlockingIOError(_who(_read(file)))

  def check() -> None:
    if not own():
      raise OSError(f"{file} was not renewed for {LEASE:g} s and is taken: {_who(_read(file))}")

  def renew() -> None:
    while not ended.wait(RENEW):
      with contextlib.suppress(OSError):  # a network that fails for a moment; `check` tells what came of it
        if not own():
          return
        storage.write(file, json.dumps(mine | {"renewed": time.time()}))

  thread = threading.Thread(target=renew, daemon=True)
  thread.start()
  try:
    yield check
  finally:
    ended.set()
    thread.join()
    if own():
      file.unlink()


def _until_left(file: Path | epath.Path) -> None:
  """Waits until a lease is free or left.  Raises BlockingIOError where its holder renews it."""
  found, end = _read(file), time.monotonic() + LEASE
  if found:
    console.say_once(f"{file}: {_who(found)}, if it is alive; looking for {LEASE:g} s at most")
  while found and not _dead_here(found) and time.monotonic() < end:
    time.sleep(min(1.0, RENEW / 4))
    before, found = found, _read(file)
    if found and found != before:
      raise BlockingIOError(_who(found))


def _dead_here(found: str) -> bool:
  """Returns True for the identity of a process of this machine that has ended."""
  who = _parse(found)
  return who.get("boot") == _boot() and not Path(f"/proc/{who['pid']}").exists()


def _identity() -> dict:
  since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
  command = textwrap.shorten(shlex.join(sys.orig_argv), 200)
  who = dict(host=socket.gethostname(), pid=os.getpid(), since=since, command=command)
  return who | dict(boot=_boot(), id=uuid.uuid4().hex)


def _boot() -> str:
  """Returns a name of this machine since it started, and of the container, whose pids are its own."""
  namespace = Path("/proc/self/ns/pid")
  if not namespace.exists():
    return f"{socket.gethostname()} without /proc {uuid.uuid4()}"
  return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink(namespace)}"


def _read(file: Path | epath.Path) -> str:
  """Returns the text of a lease; "" where there is none."""
  try:
    return file.read_text()
  except FileNotFoundError:
    return ""


def _parse(text: str) -> dict:
  """Returns the identity; {} where its holder is writing it just now."""
  try:
    return json.loads(text)
  except ValueError:
    return {}


def _who(text: str) -> str:
  who = _parse(text)
  if not who:
    return "another process is at work there"
  return f"process {who['pid']} on {who['host']} is at work there since {who['since']} ({who['command']})"
