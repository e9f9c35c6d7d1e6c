"""Sandbox of a Python program: bubblewrap, as user nobody, no network, hard limits.

    prlimit (memory, CPU, files) -> setpriv (uid 65534) -> bwrap (namespaces) -> python3 harness.py

A program sees /usr, read-only, and an empty /tmp.  CPU time and files are limited for each of its processes,
processes in number, and memory for all together: each may have so much address space, and a watcher ends the
program when what they hold, with the files and inodes of /tmp, is more.  Only listed system calls exist
(system_calls.py).  Its output is a file that the kernel keeps from growing, so there is no pipe to drain.
When the time is up, the whole PID namespace dies, whatever it started.
The harness runs under the system's python3, standard library only: user nobody cannot read a home folder.
"""

import contextlib
import functools
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from grpojax.rewards import system_calls

_NOBODY = 65534
_TMP = 16 << 20  # bytes of /tmp, beside the room for an output
_FILE = 8 << 20  # bytes of one file, at least: more where the inputs need it
_GRACE = 3  # seconds on the clock for one of CPU: a busy machine makes no program wrong
_TRIES = 3  # of a sandbox that does not come as far as the program
_LOOK = 0.05  # seconds between two looks at the memory
_INODE = 1024  # bytes of the kernel for a file of /tmp
_HARNESS = Path(__file__).with_name("harness.py")
_KEYCTL = {"x86_64": 250, "aarch64": 219}  # number of the call, which is in no list
_INSTALL = "the code reward needs bubblewrap 0.8 or newer (apt-get install bubblewrap python3)"


# What must be closed: name -> an expression that is true, and does not raise, where it is open.
_WALLS = {
  "sockets": "socket.socket(socket.AF_INET)",
  "sockets to virtual machines": "socket.socket(40)",
  "keyrings": "libc.syscall(KEYCTL, 0, -3, 1) > 0",
  "memory files": "os.memfd_create('x')",
  "namespaces": "libc.unshare(0x10000000) == 0",
  "the machine's files": "any(map(os.path.exists, ('/etc/passwd', '/root', '/home')))",
  "writing": "open('/usr/x', 'w')",
  "the harness's files": "os.listdir('/proc/1/fd')",
  "other processes": "len([p for p in os.listdir('/proc') if p.isdigit()]) > 3",
  "its user": "os.getuid() == 0 or os.setuid(0) is None",
  "memory": "bytearray(1 << 30)",
}


def run(program: str, inputs: list, fn_name: str | None, *, timeout: float, memory_mb: int) -> list[str]:
  """Returns the program's output on each text in `inputs`; or, as JSON, what fn_name(*args) returned.

  The outputs are fewer than `inputs` if the program crashed, took more than `timeout` seconds of CPU in all,
  or held more than `memory_mb`.  What comes before the program runs is tried again; once it may run, whatever
  happens is the program's doing.  Raises RuntimeError if no sandbox came so far.
  """
  job = json.dumps(dict(program=program, inputs=inputs, fn_name=fn_name, cpu_seconds=timeout)).encode()
  limits = dict(cpu=math.ceil(timeout), fsize=max(_FILE, 2 * len(job)), nofile=64, core=0)
  limits["as"] = memory_mb << 20
  for _ in range(_TRIES):
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
      stdin.write(job)
      stdin.seek(0)
      said = _run(limits, stdin, stdout, _GRACE * timeout + 1)
      stdout.seek(0)
      if said.endswith("ready"):
        return _outputs(stdout.read().decode("utf-8", "replace").split("\n"))
  raise RuntimeError(f"the sandbox did not start: {said}")


def _run(limits: dict[str, int], stdin, stdout, seconds: float) -> str:
  """Returns the sandbox's stderr; the program inside it has none."""
  with tempfile.TemporaryFile() as stderr, tempfile.TemporaryFile() as rules:
    rules.write(system_calls.filter_program())
    rules.seek(0)  # which flushes
    files = dict(stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=[rules.fileno()])
    command = _command(limits, rules.fileno())
    sandbox = subprocess.Popen(command, **files, env={}, cwd="/", start_new_session=True)
    end = time.monotonic() + seconds
    try:
      most = limits["as"] + limits["fsize"]  # /tmp has room for an output
      while time.monotonic() < end and _held(sandbox.pid) <= most:
        with contextlib.suppress(subprocess.TimeoutExpired):
          sandbox.wait(_LOOK)
          break
    finally:
      if sandbox.poll() is None:
        os.killpg(sandbox.pid, signal.SIGKILL)  # its PID namespace dies with it, and all in there
        sandbox.wait()
    stderr.seek(0)
    return stderr.read(300).decode("utf-8", "replace").strip()


def _outputs(lines: list[str]) -> list[str]:
  """Returns the outputs up to the first line that is no text in JSON."""
  outputs = []
  for line in lines:
    try:
      output = json.loads(line)
    except (ValueError, RecursionError):
      break
    if not isinstance(output, str):
      break
    outputs.append(output)
  return outputs


def _held(pid: int) -> int:
  """Returns the bytes that the descendants of a process hold in memory, and in files of their /tmp."""
  held, parents, tmp, ours = 0, [pid], 0, os.stat("/tmp").st_dev
  while parents:
    pid = parents.pop()
    with contextlib.suppress(OSError, ValueError):  # ended meanwhile
      parents += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
      status = dict(re.findall(r"(Rss\w+):\s*([0-9]+) kB", Path(f"/proc/{pid}/status").read_text()))
      held += sum(int(status.get(kind, 0)) for kind in ("RssAnon", "RssShmem")) << 10
      if os.stat(f"/proc/{pid}/root/tmp").st_dev != ours:  # the same one for all that are inside
        disk = os.statvfs(f"/proc/{pid}/root/tmp")
        tmp = (disk.f_blocks - disk.f_bfree) * disk.f_frsize + (disk.f_files - disk.f_ffree) * _INODE
  return held + tmp


def _command(limits: dict[str, int], rules: int) -> list[str]:
  tools = {name: shutil.which(name) or name for name in ("prlimit", "setpriv", "bwrap")}
  drop = [tools["setpriv"], f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
  return [
    *[tools["prlimit"], *(f"--{name}={limit}" for name, limit in limits.items())],
    *(drop if os.getuid() == 0 else []),  # the limit on processes does not hold for root
    *[tools["bwrap"], "--unshare-all", "--unshare-user", "--disable-userns", "--seccomp", str(rules)],
    *["--die-with-parent", "--new-session", "--as-pid-1", "--clearenv", "--cap-drop", "ALL"],
    *["--uid", str(_NOBODY), "--gid", str(_NOBODY), "--hostname", "sandbox"],
    *["--ro-bind", "/usr", "/usr"],
    *["--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"],
    *["--proc", "/proc", "--dev-bind", "/dev/null", "/dev/null"],
    *["--dev-bind", "/dev/urandom", "/dev/urandom"],
    *["--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin"],
    *["--symlink", "/proc/self/fd/1", "/dev/stdout"],
    *["--size", str(_TMP + limits["fsize"]), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"],
    *[_python(), "-I", "-c", _HARNESS.read_text()],
  ]


def _python() -> str:
  return shutil.which("python3", path="/usr/bin:/usr/local/bin") or "/usr/bin/python3"


@functools.cache
def obstacle() -> str:
  """Returns why no program can be run on this machine, with what to do; "" if one can."""
  missing = [name for name in ("bwrap", "prlimit", "setpriv") if not shutil.which(name)]
  if missing:
    return f"{', '.join(missing)} is not installed; {_INSTALL}."
  if platform.machine() not in system_calls.ARCHITECTURES:
    known = " and ".join(system_calls.ARCHITECTURES)
    return f"the sandbox knows {known}, and not {platform.machine()}."
  try:
    output = run(_probe(), [""], None, timeout=10, memory_mb=256)
  except (OSError, RuntimeError) as error:
    return f"{error}; {_INSTALL}, and a kernel that lets uid {_NOBODY} make namespaces."
  if not output:
    return f"python3 does not run in the sandbox; {_INSTALL}."
  return "" if output == ["open: \n"] else f"the sandbox leaves {output[0].strip()}; {_INSTALL}."


def _probe() -> str:
  """Returns a program that tries every wall, and prints those that are open."""
  return f"""
import ctypes, os, socket
libc, KEYCTL, open_walls = ctypes.CDLL(None), {_KEYCTL[platform.machine()]}, []
for name, expression in {_WALLS!r}.items():
  try:
    if eval(expression):
      open_walls.append(name)
  except (OSError, MemoryError):
    pass
print("open:", ", ".join(open_walls))
"""
