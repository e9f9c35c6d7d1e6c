"""Programs that solve their task, programs that do not, and programs that fight the sandbox."""

import json
import os
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from grpojax import rewards
from grpojax.rewards import extract, sandbox, system_calls
from grpojax.rewards.code import passes, read_tests, same_text, same_value, unit_tests


def bubblewrap_trouble() -> str:
  """Why bubblewrap does not run here, asked without the code under test, or ""."""
  nobody = ["setpriv", "--reuid=65534", "--clear-groups"] if os.getuid() == 0 else []
  command = [*nobody, "bwrap", "--unshare-all", "--unshare-user", "--disable-userns"]
  command += ["--ro-bind", "/", "/", "true"]
  try:
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stderr
  except OSError as error:
    return str(error)


TROUBLE = bubblewrap_trouble()
needs_sandbox = pytest.mark.skipif(bool(TROUBLE), reason=f"needs bubblewrap: {TROUBLE}")


def fence(program):
  return f"Let me see.\n```python\n{program}\n```\nDone."


def grade(pairs, **knobs):
  """Verdicts on (program, tests)."""
  samples = [
    rewards.Sample(fence(program), {"tests": json.dumps(tests)}, 1, True) for program, tests in pairs
  ]
  return unit_tests(samples, **(dict(timeout=5.0, memory_mb=256, workers=2) | knobs))


DOUBLE = {"inputs": ["3\n", "4\n", "50\n"], "outputs": ["6\n", "8\n", "100\n"]}
ONCE = {"inputs": ["3\n"], "outputs": ["6\n"]}
CALL = {"inputs": [[3], [4], [50]], "outputs": [6, 8, 100], "fn_name": "double"}
LINES = {"inputs": ["[1, 2]\n3", "[]\n0"], "outputs": ["[1, 2, 3]", "[0]"], "fn_name": "append"}
SOLVES = "print(2 * int(input()))"

RIGHT = [
  (SOLVES, DOUBLE),
  ("import sys\nfor n in sys.stdin: print(int(n) * 2)\nsys.exit(0)", DOUBLE),
  ("import os\nn = int(open(0).read())\nos.write(1, str(n * 2).encode())", DOUBLE),
  ("import sys\nsys.stdout = open(1, 'w')\nsys.stdout.write(str(2 * int(sys.stdin.buffer.read())))", DOUBLE),
  ("import atexit\nn = int(input())\natexit.register(lambda: print(n * 2))\nexit()", DOUBLE),
  ("import threading\nt = threading.Thread(target=lambda: print(2 * int(input())))\nt.start()", DOUBLE),
  ("if __name__ == '__main__':\n  print(2 * int(open('/dev/stdin').read()))", DOUBLE),
  ("open('/tmp/x', 'x').write(input())\nprint(2 * int(open('/tmp/x').read()))", ONCE),
  ("def double(x: int) -> int:\n  print('thinking')\n  return x + x", CALL),
  ("class Solution:\n  def double(self, x: int) -> int:\n    return x << 1", CALL),
  ("def append(xs: List[int], x: int) -> List[int]:\n  return (*xs, x)", LINES),
  ("print(input()[::-1])", {"inputs": ["\u00e9\u4e2d", "ab"], "outputs": ["\u4e2d\u00e9", "ba"]}),
  ("print(1 / 3)", {"inputs": [""], "outputs": ["0.3333333"]}),
]  # fmt: skip

WRONG = [
  ("print(6)", DOUBLE),
  ("print(2 * int(input()), 'is it')", DOUBLE),
  ("n = int(input())\nprint(2 * n)\nassert n != 4", DOUBLE),
  ("print(2 * int(input()))\nraise SystemExit(1)", DOUBLE),
  ("print(2 * int(input())", DOUBLE),
  ("", DOUBLE),
  ("def double(x): return x", CALL),
  ("def double(x): return str(2 * x)", CALL),
  ("def double(x, y): return 2 * x", CALL),
  ("def twice(x): return 2 * x", CALL),
  ("def double(x): print(2 * x)", CALL),
  ("seen = []\ndef double(x):\n  seen.append(x)\n  return 2 * x if len(seen) == 2 else 0", CALL),
]


@needs_sandbox
def test_where_bubblewrap_runs_so_does_the_sandbox():
  assert sandbox.obstacle() == ""


@needs_sandbox
def test_programs_that_solve_their_task_score_one():
  got = grade(RIGHT)
  assert [pair for pair, verdict in zip(RIGHT, got, strict=True) if verdict != 1] == []


@needs_sandbox
def test_programs_that_do_not_score_zero():
  got = grade(WRONG)
  assert [pair for pair, verdict in zip(WRONG, got, strict=True) if verdict != 0] == []


PID = "import os, signal, sys, time\n"
CTYPES = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
# What a program may try instead of solving the task.  None of them knows how to double.
HOSTILE = {
  "fork bomb": PID + "while True: os.fork()",
  "fork bomb, errors caught": PID + "while True:\n  try: os.fork()\n  except OSError: pass",
  "thread bomb": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=[99]).start()",
  "memory bomb": "x = [bytearray(1 << 20) for _ in range(10**6)]",
  "memory bomb in children": PID + "[os.fork() for _ in range(9)]\nx = bytearray(10**9)\ntime.sleep(99)",
  "memory file bomb": PID + "while True: os.write(os.memfd_create('x'), b'x' * (4 << 20))",
  "endless loop": "while True: pass",
  "endless sleep": "import time\ntime.sleep(10**6)",
  "endless output": "while True: print('x' * 4096)",
  "endless output, errors caught": PID + "while True:\n  try: os.write(1, b'x' * 4096)\n"
  "  except OSError: pass",
  "endless stderr": "import sys\nwhile True: sys.stderr.write('x' * 4096)",
  "output to the harness's file": PID + "fd = os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY)\n"
  "while True: os.write(fd, b'x' * 4096)",
  "forged results": PID + "fd = os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY | os.O_APPEND)\n"
  "os.write(fd, b'null\\n\"1\"\\n\"1\"\\n\"1\"\\n')\nos.kill(os.getppid(), 9)",
  "fills the disk": "i = 0\nwhile True:\n  open(f'/tmp/{i}', 'wb').write(b'x' * (1 << 20))\n  i += 1",
  "deep nesting": "exec('(' * 10**6)",
  "crash of the interpreter": CTYPES + "ctypes.string_at(0)",
  "exits": "import sys\nsys.exit(0)",
  "exits at once": PID + "os._exit(0)",
  "kills the harness": PID + "os.kill(os.getppid(), 9)",
  "stops the harness": PID + "os.kill(os.getppid(), signal.SIGSTOP)",
  "kills everyone": PID + "os.kill(-1, 9)",
  "kills init": PID + "os.kill(1, 9)",
  "traces the harness": PID + CTYPES + "for request in (16, 8): libc.ptrace(request, os.getppid(), 0, 0)",
  "equal to everything": "class All(int):\n  __eq__ = lambda *_: True\n  __hash__ = int.__hash__\n"
  "print(All())\ndouble = All",
  "patches json": "import json\njson.dumps = json.loads = lambda *_, **__: 6\nprint(6)\n"
  "def double(x): return 6",
  "patches builtins": "import builtins\nbuiltins.print = builtins.len = builtins.all = lambda *_: True\n"
  "def double(x): return True",
  "patches sys.stdout": "import sys\nsys.stdout = sys.__stdout__ = None\ndef double(x): pass",
  "patches the harness": "import sys\nmain = sys.modules['__main__']\nmain.output_for = lambda *_: '6'\n"
  "main.be_the_program = lambda *_: None\ndef double(x): return 6",
  "unwinds the harness": "import sys\nframe = sys._getframe()\nwhile frame:\n"
  "  frame.f_locals.update(output='6')\n  frame = frame.f_back\nprint(6)\ndef double(x): return 6",
  "says all answers at once": "print('6\\n8\\n100')\ndef double(x): return [6, 8, 100]",
  "remembers the last answer": "import glob\nprint(open('/tmp/memory', 'a').tell() + 6)\n"
  "open('/tmp/memory', 'a').write('xx')\ndef double(x): return open('/tmp/memory').read()",
  "reads the job": PID + "print(open(f'/proc/{os.getppid()}/fd/0').read())\ndouble = print",
  "reads the harness's memory": PID + "print('outputs' in open(f'/proc/{os.getppid()}/environ').read())\n"
  "print(open(f'/proc/{os.getppid()}/cmdline').read()[-9:])\ndef double(x): return os.environ",
  "result too deep for json": "def double(x):\n  r = []\n  for _ in range(500): r = [r]\n"
  "  return r\nprint('[' * 10**5)",
  "result too long for json": "def double(x): return '9' * 10**8\nprint('9' * 10**8)",
}  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize(
  ("names", "tests"),
  [
    pytest.param([*HOSTILE][::4], DOUBLE, id="some programs"),
    pytest.param([*HOSTILE], DOUBLE, id="programs", marks=pytest.mark.slow),
    pytest.param([*HOSTILE], CALL, id="functions", marks=pytest.mark.slow),
  ],
)
def test_hostile_programs_score_zero_and_leave_nothing_behind(names, tests):
  """An honest program beside each of them is not disturbed."""
  assert len(HOSTILE) >= 25
  before = nobodies()
  pairs = [(HOSTILE[name], tests) for name in names]
  honest = [(f"{SOLVES} # {i}", DOUBLE) for i in range(len(pairs))]
  mixed = [pair for two in zip(pairs, honest, strict=True) for pair in two]
  got = grade(mixed, timeout=1.0, memory_mb=128, workers=4)
  assert [name for name, verdict in zip(names, got[::2], strict=True) if verdict != 0] == []
  assert set(got[1::2]) == {1.0}
  deadline = time.monotonic() + 5
  while nobodies() - before and time.monotonic() < deadline:
    time.sleep(0.1)
  assert not nobodies() - before


def nobodies() -> set[int]:
  """The processes of the sandbox's user."""
  found = set()
  for process in Path("/proc").glob("[0-9]*"):
    try:
      if process.stat().st_uid in (65534, os.getuid()) and b"-I\0-c" in (process / "cmdline").read_bytes():
        found.add(int(process.name))
    except OSError:
      continue
  return found


# Expressions that are true where a program gets out; each runs by itself and must raise or be false.
ESCAPES = {
  "network": "__import__('socket').create_connection(('1.1.1.1', 53), 1)",
  "network of this machine": "__import__('socket').create_connection(('127.0.0.1', PORT), 1)",
  "abstract sockets": "[__import__('socket').socket(1).connect('\\0' + NAME)]",
  "resolving": "__import__('socket').getaddrinfo('example.com', 80)",
  "interfaces": "set(n for _, n in __import__('socket').if_nameindex()) - {'lo'}",
  "the repository": "__import__('os').path.exists(HERE)",
  "a temporary file": "open(SECRET).read()",
  "homes": "__import__('os').listdir('/root') or __import__('os').listdir('/home')",
  "accounts": "open('/etc/passwd').read()",
  "the environment": "{k for k in __import__('os').environ} - {'PWD', 'LC_CTYPE'}",
  "its user": "__import__('os').getuid() == 0 or [__import__('os').setuid(0)]",
  "its host": "__import__('os').uname().nodename == HOST",
  "other processes": "len([p for p in __import__('os').listdir('/proc') if p.isdigit()]) > 8",
  "the trainer": "[__import__('os').kill(TRAINER, 0)]",
  "writing /usr": "open('/usr/x', 'w')",
  "writing /": "open('/x', 'w')",
  "writing /dev": "open('/dev/x', 'w')",
  "writing /proc": "open('/proc/sys/kernel/core_pattern', 'w')",
  "a link out of /tmp": "(__import__('os').symlink(HERE, '/tmp/out'), open('/tmp/out/pyproject.toml'))",
  "the root of init": "open('/proc/1/root' + SECRET).read()",
  "mounting": "__import__('os').system('mount -t tmpfs none /tmp') == 0",
  "more namespaces": "__import__('ctypes').CDLL(None).unshare(0x10000000) == 0",
  "more memory": "[__import__('resource').setrlimit(9, (-1, -1))]",
  "more processes": "[__import__('resource').setrlimit(6, (-1, -1))]",
  "keyrings": "__import__('ctypes').CDLL(None).syscall(250, 0, -3, 1) > 0",  # keyctl
  "a key": "__import__('ctypes').CDLL(None).syscall(248, b'user', b'k', b'v', 1, -3) > 0",  # add_key
  "virtual machines": "__import__('socket').socket(40, 1)",  # AF_VSOCK
  "any socket": "__import__('socket').socket(1)",
  "a memory file": "__import__('os').memfd_create('x')",
  "descriptors of others": "__import__('ctypes').CDLL(None).syscall(434, 1, 0) > 0",  # pidfd_open
  "files of the harness": "__import__('os').listdir(f'/proc/{__import__(\"os\").getppid()}/fd')",
  "files of init": "__import__('os').listdir('/proc/1/fd')",
  "memory of init": "open('/proc/1/mem', 'rb')",
  "disks": "[n for n in __import__('os').listdir('/dev') if n not in 'fd null stdin stdout urandom'.split()]",
}  # fmt: skip


# Those that do no harm where they succeed: outside, they do.
HARMLESS = {
  "network of this machine", "abstract sockets", "the repository", "a temporary file", "accounts",
  "the environment", "its host", "other processes", "the trainer", "disks",
}  # fmt: skip


@needs_sandbox
def test_nothing_of_this_machine_is_within_reach(tmp_path):
  secret = tmp_path / "secret"
  secret.write_text("open sesame")
  tmp_path.chmod(0o755)
  with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
    name = f"grpojax-test-{os.getpid()}"
    local.bind("\0" + name)
    local.listen()
    known = dict(
      PORT=server.getsockname()[1], NAME=name, HERE=str(Path(__file__).parents[2]), SECRET=str(secret),
      HOST=os.uname().nodename, TRAINER=os.getpid(),
    )  # fmt: skip
    outside = "".join(f"{key} = {value!r}\n" for key, value in known.items())
    check = "try: said = bool(eval(input()))\nexcept Exception: said = False\nprint(said)"
    assert all(eval(ESCAPES[name], dict(known)) for name in HARMLESS)
    said = sandbox.run(outside + check, [*ESCAPES.values(), "True"], None, timeout=20, memory_mb=256)
  assert said[-1] == "True\n"
  assert [name for name, out in zip(ESCAPES, said, strict=False) if out != "False\n"] == []
  assert len(said) == len(ESCAPES) + 1


@needs_sandbox
@pytest.mark.parametrize("wall", sandbox._WALLS)
def test_a_wall_that_does_not_stand_is_an_obstacle(wall, monkeypatch):
  """A program could always do this, so that the wall looks open."""
  monkeypatch.setitem(sandbox._WALLS, wall, "os.getpid()")
  assert sandbox.obstacle.__wrapped__().startswith(f"the sandbox leaves open: {wall}; ")


@needs_sandbox
def test_the_walls_are_there_where_the_calls_themselves_work():
  """Outside, the same expressions are true: they are not false because they are written wrongly."""
  for name in ("any socket", "a memory file", "descriptors of others", "keyrings"):
    assert eval(ESCAPES[name])


TOTAL = {
  "processes": "import os, time\nfor _ in range(2): os.fork()\nx = bytearray(50 << 20)\ntime.sleep(20)",
  "shared memory": "import mmap, os, time\nx = mmap.mmap(-1, 60 << 20)\nx.write(b'x' * (30 << 20))\n"
  "x.write(b'x' * (30 << 20))\nos.fork()\ntime.sleep(20)",
  "inodes": "import time\nfor i in range(10**6): open(f'/tmp/{i}', 'w').close()\ntime.sleep(20)",
}


@needs_sandbox
@pytest.mark.parametrize("what", TOTAL)
def test_memory_is_bounded_for_all_that_a_program_starts(what, monkeypatch):
  """Each stays within its own address space, and they would sleep until the clock says no."""
  most = []
  held = sandbox._held
  monkeypatch.setattr(sandbox, "_held", lambda pid: most.append(held(pid)) or most[-1])
  monkeypatch.setattr(sandbox, "_GRACE", 10**6)
  assert sandbox.run(TOTAL[what] + "\nprint(6)", [""], None, timeout=60, memory_mb=128) == []
  assert 128 << 20 < most[-1] < 600 << 20


@needs_sandbox
def test_the_next_input_meets_nobody_of_the_last():
  program = (
    "import os, time\nn = len([p for p in os.listdir('/proc') if p.isdigit()])\nprint(n, flush=True)\n"
    "if os.fork() == 0:\n  time.sleep(60)\nelse:\n  os._exit(0)"
  )
  said = sandbox.run(program, ["", "", ""], None, timeout=5, memory_mb=256)
  assert len(said) == 3 and len(set(said)) == 1


@needs_sandbox
def test_a_sandbox_that_fails_before_the_program_is_tried_again_and_after_it_is_a_zero(monkeypatch):
  starts = []
  run = sandbox._run

  def once(limits, stdin, stdout, seconds):
    starts.append(True)
    return "killed by somebody" if len(starts) == 1 else run(limits, stdin, stdout, seconds)

  monkeypatch.setattr(sandbox, "_run", once)
  assert grade([(SOLVES, DOUBLE)]) == [1] and len(starts) == 2

  def spoilt(limits, stdin, stdout, seconds):
    said = run(limits, stdin, stdout, seconds)
    stdout.seek(0)
    stdout.truncate()
    stdout.write(b"\xff{not json")
    return said

  monkeypatch.setattr(sandbox, "_run", spoilt)
  assert grade([(SOLVES + " ", DOUBLE)]) == [0]


CLOSED = (
  "socket", "connect", "ptrace", "keyctl", "memfd_create", "pidfd_getfd", "unshare", "bpf", "sendmsg",
)  # fmt: skip


def test_a_filter_allows_what_is_listed_and_nothing_else():
  """Interpreted here, as the kernel does."""
  for machine, (arch, _) in system_calls.ARCHITECTURES.items():
    code = system_calls.filter_program(machine)
    program = [struct.unpack_from("HBBI", code, at) for at in range(0, len(code), 8)]
    allowed = set(system_calls.allowed(machine).values())
    assert len(program) < 256 and len(allowed) > 100
    for number in [*range(600), 0x40000000, 0x40000001, 2**32 - 1]:
      assert (decide(program, arch, number) == system_calls._ALLOW) == (number in allowed)
      assert decide(program, arch ^ 1, number) == system_calls._DENY
    assert not system_calls.allowed(machine).keys() & set(CLOSED)


def decide(program, arch: int, number: int) -> int:
  at, loaded = 0, 0
  while True:
    operation, yes, no, k = program[at]
    at += 1
    if operation == 0x06:
      return k
    if operation == 0x20:
      loaded = {0: number, 4: arch}[k]
    else:
      at += yes if loaded == k else no


# What a program can get of something, and the most that it may: (program that prints it, limit).
LIMITS = {
  "processes": (PID + "n = 0\ntry:\n  while n < 100 and os.fork(): n += 1\n  if n == 100: print(n)\n"
                "  else: time.sleep(9)\nexcept OSError: print(n)", 6),
  "megabytes": ("x = []\ntry:\n  while len(x) < 4000: x.append(bytearray(1 << 20))\n"
                "except MemoryError: pass\nn = len(x)\ndel x\nprint(n)", 256),
  "megabytes of output": (PID + "n = 0\ntry:\n  while n < 64 << 20: n += os.write(1, b'x' * 65536)\n"
                          "except OSError: pass\nos.ftruncate(1, 0)\nos.lseek(1, 0, 0)\nprint(n >> 20)", 8),
  "megabytes of files": ("n = 0\ntry:\n  while n < 64:\n    open(f'/tmp/{n}', 'wb').write(b'x' * (1 << 20))\n"
                         "    n += 1\nexcept OSError: pass\nprint(n)", 16),
  "shared memory": (CTYPES + "said = libc.shmget(0, 1 << 20, 0o1600)\n"
                    "print(1 if said == -1 else 9)", 1),
  "open files": (PID + "n = 0\ntry:\n  while n < 999: n = os.dup(1)\nexcept OSError: pass\nprint(n)", 64),
}  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize("what", LIMITS)
def test_nobody_gets_more_than_the_limit(what):
  program, most = LIMITS[what]
  (said,) = sandbox.run(program, [""], None, timeout=5, memory_mb=256)
  assert 0 < int(said) <= most


@needs_sandbox
def test_what_is_left_running_dies_with_its_sandbox(tmp_path):
  mark = f"mark-{os.getpid()}"
  daemon = (
    "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
    f"    os.execv('/usr/bin/python3', ['python3', '-c', 'import time; time.sleep(60)', '{mark}'])\n"
    "  os._exit(0)\ntime.sleep(0.3)\nprint(6)"
  )
  assert sandbox.run(daemon, [""], None, timeout=5, memory_mb=256) == ["6\n"]
  time.sleep(0.2)
  running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
  assert mark not in running


@needs_sandbox
def test_expected_outputs_do_not_enter_the_sandbox(monkeypatch):
  jobs = []
  run = subprocess.Popen

  def spy(command, *, stdin, pass_fds, **others):
    assert all(os.pread(fd, 1 << 16, 0) == system_calls.filter_program() for fd in pass_fds)
    jobs.append(" ".join(command) + stdin.read().decode())
    stdin.seek(0)
    return run(command, stdin=stdin, pass_fds=pass_fds, **others)

  monkeypatch.setattr(subprocess, "Popen", spy)
  tests = {"inputs": ["1", "2"], "outputs": ["expected-a", "expected-b"]}
  assert grade([("print(input())", tests)]) == [0]
  (job,) = jobs
  assert "print(input())" in job and "expected" not in job.replace("No expected output", "")


@needs_sandbox
def test_cpu_is_counted_over_all_tests_and_a_sandbox_that_fails_is_no_verdict(monkeypatch):
  burn = "import time\nwhile time.process_time() < 0.4: pass\nprint(2 * int(input()))"
  tests = {key: value * 2 for key, value in DOUBLE.items()}
  with monkeypatch.context() as patch:
    patch.setattr(sandbox, "_GRACE", 60)  # it is not the clock that says no
    assert grade([(burn, tests)], timeout=1.0) == [0]
  assert grade([(burn, DOUBLE)], timeout=8.0) == [1]
  monkeypatch.setattr(sandbox, "_python", lambda: "/usr/bin/no-such-python")
  (error,) = grade([(SOLVES, DOUBLE)])
  assert isinstance(error, RuntimeError) and "did not start" in str(error)


@needs_sandbox
def test_scores_rows_and_abstains_without_tests():
  config = dict(accuracy=dict(fn="code:unit_tests", timeout=5.0, memory_mb=256))
  built = rewards.build(config)
  examples = [{"tests": json.dumps(DOUBLE)}, {"tests": "{}"}]
  texts = [[fence(SOLVES), "```python\n" + SOLVES], [fence(SOLVES), "no program"]]
  graded = rewards.score(built, rewards.samples(examples, texts, np.ones((2, 2), int), np.ones((2, 2), bool)))
  np.testing.assert_array_equal(graded.accuracy, [[1, 0], [0, 0]])
  np.testing.assert_array_equal(graded.valid, [[True, True], [False, False]])
  assert graded.counts == {"rewards/accuracy/failed": 0, "rewards/accuracy/abstained": 2}
  assert built.needs({}) == ("tests",) and built.answer(fence(SOLVES)) == SOLVES + "\n"


@pytest.mark.parametrize(
  ("text", "program"),
  [
    ("```python\na\n```", "a\n"),
    ("```py\na\nb\n```\nso", "a\nb\n"),
    ("```python\na\n```\n```python\nb\n```", "b\n"),
    ("```python\na\n```\n```\noutput\n```", "a\n"),  # other fences are no programs
    ("```python\na\n```\n```python\nb", None),  # the last one is not closed
    ("```python\na", None),
    ("```\na\n```", None),
    ("```cpp\na\n```", None),
    ("  ```python\n  a\n  ```", "  a\n"),
    ("```python\nprint('```')\n```", "print('```')\n"),
    ("<think>```python\na\n```</think>", None),
    ("<think>```python\na\n```", None),
    ("<think>hm</think>```python\na\n```", "a\n"),
    ("", None),
  ],
)
def test_the_program_is_the_last_closed_python_fence(text, program):
  assert extract.program(text) == program


@pytest.mark.parametrize(
  ("said", "right", "same"),
  [
    ("1 2\n3\n", "1 2\n3", True),
    ("1  2 \r\n\n3", "1 2\n3", True),
    ("1\n2\n3", "1 2\n3", False),
    ("1 2", "1 2 3", False),
    ("", "1", False),
    ("", "", True),
    ("yes", "YES", False),
    ("2", "2.0", True),
    ("2.0", "2", False),
    ("0.3333333", "0.33333331", True),
    ("0.33", "0.333333", False),
    ("1000000.5", "1000000.0", True),  # relatively
    ("100000001", "100000000", False),
    ("nan", "1.0", False),
    ("1.0", "v1.0", False),
  ],
)
def test_outputs_are_compared_word_by_word(said, right, same):
  assert same_text(said, right) is same


@pytest.mark.parametrize(
  ("result", "right", "same"),
  [
    (1, 1, True),
    (1.0, 1, True),
    (True, 1, False),
    (1, True, False),
    (0.1 + 0.2, 0.3, True),
    (0.3001, 0.3, False),
    ([1, [2.0, "x"]], [1, [2, "x"]], True),
    ([1, 2], [2, 1], False),
    ([1], [1, 2], False),
    (None, None, True),
    ({"a": 1}, {"a": 1}, True),
    ({"a": True}, {"a": 1}, False),
    ({"a": 0.1 + 0.2}, {"a": 0.3}, True),
    ([{"a": [1, {"b": True}]}], [{"a": [1, {"b": 1}]}], False),
    ("1", 1, False),
    (float("nan"), float("nan"), False),
  ],
)
def test_results_are_compared_as_json(result, right, same):
  assert same_value(result, right) is same


def test_apps_wraps_results_and_every_test_counts():
  apps = read_tests(json.dumps({"inputs": [[1], [2]], "outputs": [[2], [4]], "fn_name": "f"}))
  assert passes(["2", "4"], apps) and passes(["[2]", "4"], apps)
  assert not passes(["[[2]]", "4"], apps) and not passes(["2"], apps) and not passes(["2", "5"], apps)
  assert not passes(["[" * 10**5, "4"], apps) and not passes(["2", ""], apps)
  huge = read_tests(json.dumps({"inputs": [[1]], "outputs": [10**400], "fn_name": "f"}))
  assert passes([str(10**400)], huge) and not passes(["1.0"], huge) and not passes(["1" * 9999], huge)
  live = read_tests(json.dumps({"inputs": ["1"], "outputs": ["[2]"], "fn_name": "f"}))
  assert passes(["[2]"], live) and not passes(["2"], live)


@pytest.mark.parametrize(
  "tests",
  [
    "", "[]", "7", "{}", '{"inputs": [], "outputs": []}', '{"inputs": ["1"], "outputs": []}', "null",
    '{"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}', '{"inputs": [3], "outputs": [4], "fn_name": "f"}',
    '{"inputs": ["\\ud800"], "outputs": ["1"]}', f'{{"inputs": {"[" * 3000}{"]" * 3000}, "outputs": [1]}}',
  ],
)  # fmt: skip
def test_tests_that_cannot_be_read_are_none(tests):
  """Such as an input that no pipe can carry, or what nests too deep: they cost their row alone."""
  assert read_tests(tests) is None


@pytest.mark.parametrize(
  ("knobs", "message"),
  [
    (dict(timeout=0), "timeout = 0 must be"),
    (dict(memory_mb=1.5), "memory_mb = 1.5 must be"),
    (dict(memory_mb=8), "at least 64"),
    (dict(workers=0), "workers = 0 must be"),
  ],
)
def test_bad_knobs_are_named(knobs, message):
  with pytest.raises(ValueError, match=message):
    rewards.build(dict(accuracy=dict(fn="code:unit_tests", **knobs)))


@pytest.mark.parametrize("broken", ["missing", "forbidden"])
def test_without_a_sandbox_it_refuses_to_start_and_says_what_to_do(broken, monkeypatch, tmp_path):
  if broken == "missing":
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
  else:  # a bwrap that may not create namespaces
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    tmp_path.chmod(0o755)
    found = {name: shutil.which(name) or f"/usr/bin/{name}" for name in ("prlimit", "setpriv", "python3")}
    monkeypatch.setattr(shutil, "which", lambda name, **_: found.get(name, str(fake)))
  sandbox.obstacle.cache_clear()
  try:
    with pytest.raises(ValueError, match="apt-get install bubblewrap"):
      rewards.build(dict(accuracy=dict(fn="code:unit_tests")))
  finally:
    sandbox.obstacle.cache_clear()
