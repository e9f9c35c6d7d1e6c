"""Server of environments: one worker process for each episode, and its time limit.

    trainer  -- [slot, number, request] -->  server  -- request -->  worker
    trainer  <-- [slot, number, turns, seconds] --

A worker that is overdue is killed, and the answer is a failure.  Of one that has died, turns are None: the
trainer, who knows the episode, may have it played again.
"""

import dataclasses
import json
import os
import queue
import signal
import sys
import threading
import time
from multiprocessing import connection as connections
from multiprocessing.process import BaseProcess

from grpojax.rewards import server as servers
from grpojax.rollout.envs import build
from grpojax.rollout.envs import worker as workers

_BYTES = 1 << 26  # of one answer: more than its turns may have


@dataclasses.dataclass(eq=False)
class _Worker:
  process: BaseProcess
  connection: connections.Connection
  slot: int | None = None
  number: int | None = None  # of the request that it works on, for a slot
  deadline: float = float("inf")  # of what it works on, for a slot or for none

  @property
  def works(self) -> bool:
    return self.deadline < float("inf")


class Server:
  """Workers with an episode by slot, and those that wait for one."""

  def __init__(self, context, name: str, knobs: dict, timeout: float, answer, working: threading.Event):
    self._context, self._name, self._knobs = context, name, knobs
    self._timeout, self._answer, self._working = timeout, answer, working
    self._by_slot: dict[int, _Worker] = {}
    self._all: dict[connections.Connection, _Worker] = {}

  def run(self, requests: int) -> None:
    """Serves what comes on the descriptor `requests`, line by line, until that ends."""
    inbox = b""
    while True:
      soonest = min((worker.deadline for worker in self._all.values() if worker.works), default=None)
      if soonest is None:
        self._working.clear()
      else:
        self._working.set()
      seconds = None if soonest is None else max(0.0, soonest - time.monotonic())
      for ready in connections.wait([requests, *self._all], seconds):
        if ready == requests:
          if not (data := os.read(requests, 1 << 16)):
            return
          *lines, inbox = (inbox + data).split(b"\n")
          for line in lines:
            self._serve(*json.loads(line))
        elif ready in self._all:  # else a request has ended it meanwhile
          self._forward(self._all[ready])
      self._kill_overdue()

  def _serve(self, slot: int, number: int, request: dict) -> None:
    worker = self._by_slot.get(slot)
    if worker and worker.works and ("end" in request or "example" in request):  # nobody waits for it any more
      self._kill(worker)
      worker = None
    if "end" in request:
      if worker:
        del self._by_slot[slot]
        self._send(worker, None, None, request)
      return
    if not worker and "example" in request:
      worker = next((w for w in self._all.values() if w.slot is None and not w.works), None) or self._start()
      self._by_slot[slot] = worker
    if not worker or not self._send(worker, slot, number, request):
      self._answer([slot, number, None, 0.0])

  def _start(self) -> _Worker:
    here, there = self._context.Pipe()
    process = self._context.Process(target=workers.work, args=(there, self._name, self._knobs))
    process.start()
    there.close()
    worker = self._all[here] = _Worker(process, here)
    return worker

  def _send(self, worker: _Worker, slot: int | None, number: int | None, request: dict) -> bool:
    calls = len(request.get("actions", ())) + 1
    fresh = servers.START if worker.slot is None else 0.0
    worker.slot, worker.number = slot, number
    worker.deadline = time.monotonic() + calls * self._timeout + fresh
    try:
      worker.connection.send_bytes(json.dumps(request).encode())
    except OSError:
      self._kill(worker)
      return False
    return True

  def _forward(self, worker: _Worker) -> None:
    try:
      turns, seconds = json.loads(worker.connection.recv_bytes(_BYTES))
    except (EOFError, OSError):
      self._kill(worker)
      turns, seconds = None, 0.0
    worker.deadline = float("inf")
    if worker.number is not None:
      self._answer([worker.slot, worker.number, turns, seconds])
      worker.number = None

  def _kill_overdue(self) -> None:
    now = time.monotonic()
    for worker in [worker for worker in self._all.values() if worker.deadline <= now]:
      self._kill(worker)
      if worker.number is not None:
        failure = workers.failed(f"TimeoutError: no answer in {self._timeout:g} s")
        self._answer([worker.slot, worker.number, [failure], self._timeout])

  def _kill(self, worker: _Worker) -> None:
    del self._all[worker.connection]
    if self._by_slot.get(worker.slot) is worker:
      del self._by_slot[worker.slot]
    try:
      os.killpg(worker.process.pid, signal.SIGKILL)  # with all that its environment has started
    except ProcessLookupError:  # it has not come to have a group, or is gone
      worker.process.kill()
    worker.process.join()
    worker.connection.close()


def main(name: str, knobs: str, timeout: str, trainer: str) -> None:
  """Serves the trainer until it closes stdin."""
  requests, working = os.dup(0), threading.Event()
  descriptor, context = servers.guard(int(trainer), [workers.__name__, build.module_of(name)], working)
  answers = queue.SimpleQueue()

  def write() -> None:  # by a thread of its own: this server always reads, so that none waits for the other
    with os.fdopen(descriptor, "w") as out:
      while True:
        print(json.dumps(answers.get()), file=out, flush=True)

  threading.Thread(target=write, daemon=True).start()
  Server(context, name, json.loads(knobs), float(timeout), answers.put, working).run(requests)
  servers.kill_session(os.getsid(0))


if __name__ == "__main__":
  main(*sys.argv[1:])
