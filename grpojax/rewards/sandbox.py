"""Sandbox of a Python program: bubblewrap, as user nobody, no network, hard limits.

    prlimit (memory, CPU, files) -> setpriv (uid 65534) -> bwrap (namespaces) -> python3 harness.py

A program sees /usr, read-only, and an empty /tmp.  Memory, CPU time and files are limited for each of
its processes, and processes in number; what no limit covers (System V shared memory, a tmpfs in a user
namespace of its own) is refused.  Its output is a file that the kernel keeps from growing, so there is no
pipe to drain.  When the time is up, the whole PID namespace dies, whatever it started.
The harness runs under the system's python3, standard library only: user nobody cannot read a home folder.
"""

import errno
import functools
import json
import math
import os
import platform
import shutil
import signal
import struct
import subprocess
import tempfile
from pathlib import Path

_NOBODY = 65534
_TMP = 16 << 20  # bytes of /tmp
_FILE = 8 << 20  # bytes of one file, at least: more where the inputs need it
_GRACE = 3  # seconds on the clock for one of CPU: a busy machine makes no program wrong
_HARNESS = Path(__file__).with_name("harness.py")
_SHMGET = {"x86_64": (0xC000003E, 29), "aarch64": (0xC00000B7, 194)}  # AUDIT_ARCH, number of the call
_INSTALL = "the code reward needs bubblewrap 0.8 or newer (apt-get install bubblewrap python3)"


def run(program: str, inputs: list, fn_name: str | None, *, timeout: float, memory_mb: int) -> list[str]:
  """Returns the program's output on each text in `inputs`; or, as JSON, what fn_name(*args) returned.

  The outputs are fewer than `inputs` if the program crashed or took more than `timeout` seconds of CPU in
  all.  Raises RuntimeError if the sandbox failed.
  """
  job = json.dumps(dict(program=program, inputs=inputs, fn_name=fn_name, cpu_seconds=timeout))
  with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
    stdin.write(job.encode())
    stdin.seek(0)
    limits = dict(cpu=math.ceil(timeout), fsize=max(_FILE, 2 * len(job)), nofile=64, core=0)
    limits["as"] = memory_mb << 20
    complaint = _run(limits, stdin, stdout, _GRACE * timeout + 1)
    stdout.seek(0)
    ready, *lines = stdout.read().decode("utf-8", "replace").split("\n")
  if ready != "ready":
    raise RuntimeError(f"the sandbox did not start: {complaint}")
  return _outputs(lines)


def _run(limits: dict[str, int], stdin, stdout, seconds: float) -> str:
  """Returns the sandbox's stderr; the program inside it has none."""
  with tempfile.TemporaryFile() as stderr, tempfile.TemporaryFile() as rules:
    rules.write(_seccomp())
    rules.seek(0)  # which flushes
    files = dict(stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=[rules.fileno()])
    command = _command(limits, rules.fileno())
    sandbox = subprocess.Popen(command, **files, env={}, cwd="/", start_new_session=True)
    try:
      sandbox.wait(seconds)
    except subprocess.TimeoutExpired:
      pass
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


def _seccomp() -> bytes:
  """Returns a filter in the kernel's BPF that denies shmget and every call of another architecture's ABI."""
  arch, shmget = _SHMGET[platform.machine()]
  program = [
    (0x20, 0, 0, 4),  # load the architecture
    (0x15, 0, 3, arch),  # another one: deny
    (0x20, 0, 0, 0),  # load the number of the call
    (0x15, 1, 0, shmget),  # shmget: deny
    (0x35, 0, 1, 0x40000000),  # one of the x32 ABI: deny; else allow
    (0x06, 0, 0, 0x00050000 | errno.EPERM),  # deny
    (0x06, 0, 0, 0x7FFF0000),  # allow
  ]
  return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _command(limits: dict[str, int], rules: int) -> list[str]:
  tools = {name: shutil.which(name) or name for name in ("prlimit", "setpriv", "bwrap")}
  drop = [tools["setpriv"], f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
  return [
    *[tools["prlimit"], *(f"--{name}={limit}" for name, limit in limits.items())],
    *(drop if os.getuid() == 0 else []),  # the limit on processes does not hold for root
    *[tools["bwrap"], "--unshare-all", "--unshare-user", "--disable-userns", "--seccomp", str(rules)],
    *["--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"],
    *["--uid", str(_NOBODY), "--gid", str(_NOBODY), "--hostname", "sandbox"],
    *["--ro-bind", "/usr", "/usr"],
    *["--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"],
    *["--proc", "/proc", "--dev-bind", "/dev/null", "/dev/null"],
    *["--dev-bind", "/dev/urandom", "/dev/urandom"],
    *["--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin"],
    *["--symlink", "/proc/self/fd/1", "/dev/stdout"],
    *["--size", str(_TMP), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"],
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
  if platform.machine() not in _SHMGET:
    return f"the sandbox knows {' and '.join(_SHMGET)}, and not {platform.machine()}."
  try:
    output = run("print(6 * 7)", [""], None, timeout=10, memory_mb=256)
  except (OSError, RuntimeError) as error:
    return f"{error}; {_INSTALL}, and a kernel that lets uid {_NOBODY} make namespaces."
  return "" if output == ["42\n"] else f"python3 does not run in the sandbox (printed {output}); {_INSTALL}."
