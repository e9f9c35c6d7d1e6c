"""The same work in TRL, in Tunix and here, in turns on one machine; see docs/performance.md.

    python -m benchmarks.peers --trl TRL_ENV/bin/python --tunix TUNIX_ENV/bin/python
    python -m benchmarks.peers ... --only step step_kl --rounds 15

Each system runs in processes of its own environment and does one piece of work at a time, when it is
asked; in a round every system is asked once for each row.  Rows that are not run keep what
benchmarks/results/peers.json has of them.  Writes that file, and the table into
docs/performance.md.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.peers import folder
from benchmarks.peers import workload as w
from benchmarks.setting import RESULTS, ROOT, keep, report, setting

HERE = Path(__file__).parent
PEERS = ("TRL", "Tunix")
STEPS = 2  # training steps of one measurement
ROWS = {  # row -> what is asked for, of which process
  "rollout": ("rollout 1", "0.0"),
  "heavy": ("heavy 1", "heavy"),
  "step": (f"step {STEPS}", "0.0"),
  "step_kl": (f"step {STEPS}", "0.04"),
  "logprobs": ("logprobs 1", "0.04"),
  "start": ("step 1", "0.0"),
}
WHAT = {
  "rollout": "rollout, all 96 long, tokens/s",
  "heavy": "rollout, heavy tail, useful tokens/s",
  "step": "whole step, β = 0, s",
  "step_kl": "whole step, β = 0.04, s",
  "logprobs": "log-prob pass, 64 × 128 tokens, s",
  "start": "process start to end of first step, s",
  "memory": "peak memory of a process that trains, MB",
}
OURS, COLD, STATIC = "grpojax", "grpojax, cold cache", "grpojax, static batch"
TARGETS = [  # row, ours, whom against, how many times better at least (of start and memory: at most)
  ("rollout", OURS, PEERS, 1.5),
  ("heavy", OURS, (STATIC,), 2.0),
  ("heavy", OURS, PEERS, 2.5),
  ("step", OURS, ("TRL",), 1.3),
  ("step", OURS, ("Tunix",), 2.0),
  ("step_kl", OURS, ("TRL",), 1.3),
  ("step_kl", OURS, ("Tunix",), 2.3),
  ("logprobs", OURS, ("TRL",), None),
  ("logprobs", OURS, ("Tunix",), None),
  ("start", OURS, ("TRL",), 1.5),
  ("start", COLD, ("TRL",), 4.0),
  ("start", COLD, ("Tunix",), None),
  ("memory", OURS, ("TRL",), 1.0),
  ("memory", COLD, ("TRL",), 1.0),
]  # fmt: skip


class System:
  """A process that measures itself on request (serve.py)."""

  def __init__(self, command: list, log: Path):
    env = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")}
    env |= dict(PYTHONPATH=str(ROOT), JAX_PLATFORMS="cpu")
    self.log, self.began = log, time.perf_counter()
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("a"))
    self.process = subprocess.Popen(command, env=env, text=True, **pipes)

  def ask(self, request: str) -> dict:
    """Returns the answer, and the share of the machine that other processes took meanwhile."""
    before, wall = _busy(), time.perf_counter()
    print(request, file=self.process.stdin, flush=True)
    line = self.process.stdout.readline()
    if not line:
      sys.exit(f"error: '{request}' ended {self.process.args[1]}; the end of {self.log}:\n{_tail(self.log)}")
    answer = json.loads(line)
    machine = (time.perf_counter() - wall) * os.cpu_count()
    others = (_busy() - before - answer["cpu"]) / machine  # counted in ticks of 10 ms
    return answer | dict(others=min(max(0.0, others), 1.0))

  def start(self) -> list[dict]:
    """Returns the time from start to end of the first step, and memory after three; ends the process."""
    first, later = self.ask("step 1"), self.ask("step 2")
    self.close()
    return first | dict(wall=first["at"] - self.began, rss_mb=later["rss_mb"])

  def close(self) -> None:
    self.process.stdin.close()
    self.process.wait()


def _tail(log: Path) -> str:
  return "\n".join(log.read_text().splitlines()[-8:])


def _busy() -> float:
  """Returns CPU seconds that all processes of this machine have taken (Linux)."""
  user, nice, system, _, _, irq, softirq, steal, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
  return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def commands(args, work: Path) -> dict:
  """Returns (system, process) -> its command line."""
  pythons = {"TRL": args.trl, "Tunix": args.tunix}
  found = {}
  for name in PEERS:
    script = HERE / f"on_{name.lower()}.py"
    for beta in ("0.0", "0.04"):
      found[name, beta] = [pythons[name], script, work / "model", beta]
    found[name, "heavy"] = found[name, "0.0"]  # the same process: they take the EOS with the request
  for system, what in (OURS, "0.0"), (OURS, "0.04"), (OURS, "heavy"), (STATIC, "static"):
    cache = f"--config.cache_dir={work / 'cache'}"
    found[system, what] = [sys.executable, HERE / "on_grpojax.py", work / "model", what, cache]
  return found


def jobs(rows: list[str]) -> list[tuple[str, str, str, str]]:
  """Returns one round: (row, system, process, request)."""
  found = []
  for row in rows:
    request, what = ROWS[row]
    found += [(row, system, what, request) for system in (*PEERS, OURS)]
    if row == "heavy":
      found.append((row, STATIC, "static", request))
  return found


def measure(args, work: Path, record) -> None:
  """Calls record(row, system, answer) for every measurement of every row but `start`."""
  lines = jobs([row for row in args.only if row != "start"])
  command, running = commands(args, work), {}
  with contextlib.ExitStack() as stack:
    for _, system, what, request in lines:  # everything compiles here
      key = tuple(map(str, command[system, what]))
      if key not in running:
        running[key] = System(list(key), work / f"{system}-{what}.log")
        stack.callback(running[key].close)
        running[key].ask("step 1")
      running[key].ask(request)
      running[key].ask(request)
    for number in range(args.rounds):
      for row, system, what, request in lines:
        time.sleep(args.pause)  # threads of the last one may still spin
        answer = running[tuple(map(str, command[system, what]))].ask(request)
        steps = int(request.split()[1])
        record(row, system, answer | {key: answer[key] / steps for key in ("wall", "cpu")})
      print(f"round {number + 1} of {args.rounds}", file=sys.stderr)


def measure_starts(args, work: Path, record) -> None:
  """Measures the row `start` in the same way: a new process each time."""
  command = commands(args, work)
  systems = {name: command[name, "0.0"] for name in (*PEERS, OURS)}
  launch = lambda name, command: System(list(map(str, command)), work / f"start-{name}.log")
  launch(OURS, systems[OURS]).start()  # fills the cache
  for number in range(args.rounds):
    with tempfile.TemporaryDirectory() as empty:
      cold = {COLD: [*systems[OURS][:-1], f"--config.cache_dir={empty}"]}
      for name, line in (systems | cold).items():
        record("start", name, launch(name, line).start())
    print(f"start {number + 1} of {args.rounds}", file=sys.stderr)


def summary(answers: list[dict], row: str) -> dict:
  """Returns median and quartiles of one system in one row; rates for rollouts, seconds else."""
  rate = row in ("rollout", "heavy")
  values = [a["tokens"] / a["wall"] if rate else a["wall"] for a in answers]
  low, median, high = np.percentile(values, [25, 50, 75])
  busy = float(np.median([a["cpu"] / a["wall"] for a in answers]))
  numbers = dict(median=median, low=low, high=high, cpu=float(np.median([a["cpu"] for a in answers])))
  others = float(np.median([a["others"] for a in answers]))
  return numbers | dict(cpu_over_wall=busy, others=others, all=values)


def memory(answers: list[dict]) -> dict:
  low, median, high = np.percentile([a["rss_mb"] for a in answers], [25, 50, 75])
  return dict(median=median, low=low, high=high)


def table(rows: dict[str, dict]) -> str:
  lines = [
    "| what | who | median (quartiles) | against | median (quartiles) | ratio | target | |",
    "|---|---|---|---|---|---|---|---|",
  ]
  for row, who, peers, target in TARGETS:
    if row not in rows:
      continue
    systems, rate = rows[row]["systems"], row in ("rollout", "heavy")
    pick = max if rate else min
    peer = pick(peers, key=lambda name, systems=systems: systems[name]["median"])
    ours, theirs = systems[who], systems[peer]
    most = row in ("start", "memory")
    ratio = ours["median"] / theirs["median"]
    ratio = ratio if rate or most else 1 / ratio
    said = f"{'≤' if most else '≥'} {target}" if target else "-"
    cells = (WHAT[row], who, cell(ours), peer, cell(theirs), f"{ratio:.2f}", said)
    lines.append(f"| {' | '.join(cells)} | {met(ratio, target, most)} |")
  return "\n".join(lines)


def met(ratio: float, target: float | None, most: bool) -> str:
  if target is None:
    return ""
  return "reached" if (ratio <= target if most else ratio >= target) else "**not reached**"


def cell(s: dict) -> str:
  """Formats median (quartiles); a star: fewer than 1.5 cores were busy, and others had some of them."""
  form = "{:,.0f}" if s["median"] > 100 else "{:.2f}"
  star = " *" if s.get("cpu_over_wall", 2) < 1.5 and s["others"] > 0.05 else ""
  return f"{form.format(s['median'])} ({form.format(s['low'])}-{form.format(s['high'])}){star}"


def where(rows: dict[str, dict]) -> str:
  """Formats machine, date, commit and versions of the rows that were run together."""
  found = {}
  for row, r in rows.items():
    versions = {f"{name} {v}" for of in r["systems_versions"].values() for name, v in of.items()}
    run = f"{r['machine']}, {r['date']}, commit {r['commit']}, {r['rounds']} rounds"
    found.setdefault(f"{run}, {', '.join(sorted(versions))}", []).append(row)
  return "\n".join(f"{', '.join(names)}: {run}." for run, names in found.items())


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--trl", required=True, help="the python of an environment with trl and torch")
  parser.add_argument("--tunix", required=True, help="the python of one with google-tunix")
  parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
  parser.add_argument("--rounds", type=int, default=7)
  parser.add_argument("--pause", type=float, default=0.3, help="seconds before each measurement")
  args = parser.parse_args()
  answers, versions = {}, {}

  def record(row, system, answer):
    answers.setdefault(row, {}).setdefault(system, []).append(answer)
    versions[system] = answer["versions"]

  with tempfile.TemporaryDirectory() as work:
    folder.write(Path(work))
    if set(args.only) - {"start"}:
      measure(args, Path(work), record)
    if "start" in args.only:
      measure_starts(args, Path(work), record)
  last = RESULTS / "peers.json"
  rows = json.loads(last.read_text())["rows"] if last.exists() else {}
  now = setting("benchmarks.peers") | dict(rounds=args.rounds, systems_versions=versions)
  for row, systems in answers.items():
    rows[row] = now | dict(systems={name: summary(found, row) for name, found in systems.items()})
  if "start" in answers:
    of_starts = {name: memory(found) for name, found in answers["start"].items()}
    rows["memory"] = now | dict(systems=of_starts)
  keep("peers", dict(rows=rows, workload=w.MODEL))
  note = r"\* contended: fewer than 1.5 cores busy while others had more than 5 % of the machine."
  report("peers", f"{table(rows)}\n\n{note}\n{where(rows)}")


if __name__ == "__main__":
  main()
