"""Runs the tutorials' commands in forks of one process that has imported grpojax: seconds for each are saved.

    warm_python.py serve FOLDER     until its stdin is closed; makes the commands FOLDER/{grpojax,python}
    warm_python.py SOCKET NAME ...  what those two run

JAX starts no thread before its first use, so what is only imported can be forked.
"""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

SHIM = '#!/bin/sh\nexec "{python}" -IS "{here}" "{address}" {name} "$@"\n'


def serve(folder: Path) -> None:
  """Forks for each command that asks, side by side."""
  import grpojax.__main__ as commands
  import grpojax.tools.podcheck.command
  import grpojax.tools.study.command
  import grpojax.train.loop  # noqa: F401

  listener, home = socket.socket(socket.AF_UNIX), tempfile.mkdtemp()
  address = f"{home}/socket"  # of at most 100 characters, whatever FOLDER's path
  listener.bind(address)
  listener.listen()
  for name in "grpojax", "python":
    shim = folder / name
    shim.write_text(SHIM.format(python=sys.executable, here=__file__, address=address, name=name))
    shim.chmod(0o755)
  sys.executable = str(folder / "python")  # of the runs that a study starts
  print("ready", flush=True)
  signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no child is waited for here
  while sys.stdin not in (ready := select.select([listener, sys.stdin], [], [])[0]):
    client = ready[0].accept()[0]
    if not os.fork():
      answer(client, commands.main)
    client.close()
  shutil.rmtree(home)


def answer(client: socket.socket, run) -> None:
  """Runs a command with the client's words, environment, folder and streams, and sends its exit status."""
  signal.signal(signal.SIGCHLD, signal.SIG_DFL)
  request, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
  if not (child := os.fork()):
    words, environment, here = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(here)
    for number, stream in enumerate(streams):
      os.dup2(stream, number)
    sys.argv = ["grpojax", *words]
    end(run)
  status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  client.sendall(str(status if status >= 0 else 128 - status).encode())
  os._exit(0)


def end(run) -> None:
  """Runs and ends this process, without taking apart all that it has imported, which takes a second."""
  code = 0
  try:
    run()
  except SystemExit as exit:
    code = exit.code or 0
    if isinstance(code, str):
      print(code, file=sys.stderr)
      code = 1
  except BaseException:
    sys.excepthook(*sys.exc_info())
    code = 1
  atexit._run_exitfuncs()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def ask(address: str, name: str, words: list[str]) -> int:
  """Returns the exit status of `grpojax WORDS`, or of `python WORDS`, which has a fork only for a run."""
  if name == "python":
    if words[:2] != ["-m", "grpojax.main"]:
      os.execv(sys.executable, [sys.executable, *words])
    words = ["train", *words[2:]]
  with socket.socket(socket.AF_UNIX) as server:
    server.connect(address)
    request = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [request], [0, 1, 2])
    return int(server.recv(16))


if __name__ == "__main__":
  if sys.argv[1] == "serve":
    serve(Path(sys.argv[2]))
  else:
    sys.exit(ask(sys.argv[1], sys.argv[2], sys.argv[3:]))
