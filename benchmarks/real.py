"""SmolLM2-135M in TRL and here, in turns on one machine; see docs/performance.md.

    python -m benchmarks.real --trl TRL_ENV/bin/python
    python -m benchmarks.real ... --only step rollout --rounds 3      # what is missing of three rounds

The model has the shapes of SmolLM2-135M and random weights, on which no second depends.  8 prompts of 32
tokens, 8 responses of exactly 32 to each, float32, one AdamW update of the 64 rows.  Every measurement has a
process of its own, which is asked for the same before it counts; in a round both systems do each row.  An
answer is a line of WORK/answers.jsonl at once: the same command goes on where it was ended, with the answers
of its commit alone.  Writes benchmarks/results/real.json, and the table into docs/performance.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import __main__ as peers
from benchmarks.setting import ROOT, keep, report, setting, where

OURS, TRL = "grpojax", "TRL"
ROWS = {  # row -> the process, and what it is asked; the last answer counts
  "step": ("0.0", "step 1", "step 1"),
  "cold": ("0.0", "step 1"),
  "rollout": ("0.0", "rollout 1", "rollout 1"),
  "logprobs": ("0.04", "step 1", "logprobs 1", "logprobs 1"),
  **{f"rollout{n}": (str(n), f"rollout{n} 1", f"rollout{n} 1") for n in (8, 32, 128)},
}
WHAT = {  # row of the table -> the row that measures it, its key, and its words
  "step": ("step", "wall", "whole step, s"),
  "update": ("step", "update", "update: the step without the rollout, s"),
  "rollout": ("rollout", "wall", "rollout of 64, s"),
  "rollout8": ("rollout8", "wall", "rollout of 8, s"),
  "rollout32": ("rollout32", "wall", "rollout of 32, s"),
  "rollout128": ("rollout128", "wall", "rollout of 128, s"),
  "logprobs": ("logprobs", "wall", "log-prob pass, 64 × 64 tokens, s"),
  "start": ("step", "start", "process start to end of first step, programs cached, s"),
  "cold": ("cold", "start", "the same, with an empty cache, s"),
  "memory": ("step", "rss_mb", "peak memory of a process that trains, MB"),
}
AMX = "amx_bf16" in Path("/proc/cpuinfo").read_text()
MOST = {"step": 0.3 if AMX else 0.55, "rollout": 0.33 if AMX else 0.5, "memory": 0.6, "cold": 1.3}  # targets


def command(system: str, row: str, trl: str, work: Path, cache: Path) -> list[str]:
  """Returns the command line of the process that measures a row."""
  what, here = ROWS[row][0], peers.HERE
  if system == TRL:  # one process serves all rollouts
    return [trl, str(here / "on_trl.py"), str(work / "model"), "0.04" if what == "0.04" else "0.0"]
  flags = [str(work / "model"), what, f"--config.cache_dir={cache}"]
  return [sys.executable, str(here / "on_grpojax.py"), *flags]


def measure(system: str, row: str, trl: str, work: Path) -> dict:
  """Returns what a new process of the system says of a row, and when its first step had ended."""
  with tempfile.TemporaryDirectory() as empty:
    cache = Path(empty) if row == "cold" else work / "cache"
    process = peers.System(command(system, row, trl, work, cache), work / f"{system}-{row}.log")
    answers = [process.ask(request) for request in ROWS[row][1:]]
    process.close()
  return answers[-1] | dict(start=answers[0]["at"] - process.began)


def missing(found: list[dict], rows: list[str], rounds: int) -> list[tuple[int, str, str]]:
  """Returns (round, row, system) of what has not been measured yet, in the order of measuring."""
  known = {(line["round"], line["row"], line["system"]) for line in found}
  wanted = [(n, row, system) for n in range(rounds) for row in rows for system in (TRL, OURS)]
  return [one for one in wanted if one not in known]


def summary(found: list[dict]) -> dict[str, dict]:
  """Returns row of the table -> system -> median, quartiles and how many; of what was measured at all."""
  of = {}
  for line in found:
    of.setdefault((line["row"], line["system"]), []).append(line)
  rows = {}
  for name, (row, key, _) in WHAT.items():
    for system in (TRL, OURS):
      lines, rollouts = of.get((row, system), []), of.get(("rollout", system), [])
      if key == "update":  # of the same round
        spent = {line["round"]: line["wall"] for line in rollouts}
        values = [line["wall"] - spent[line["round"]] for line in lines if line["round"] in spent]
      else:
        values = [line[key] for line in lines]
      if values:
        low, median, high = peers.np.percentile(values, [25, 50, 75])
        busy = dict(cpu_over_wall=min(line["cpu"] / line["wall"] for line in lines))
        others = dict(others=max(line["others"] for line in lines))
        numbers = dict(median=median, low=low, high=high, rounds=len(values))
        rows.setdefault(name, {})[system] = numbers | busy | others
  return rows


def table(rows: dict[str, dict]) -> str:
  lines = ["| what | TRL | grpojax | of TRL's | at most | |", "|---|---|---|---|---|---|"]
  for name, systems in rows.items():
    cells = [peers.cell(systems[system]) if system in systems else "" for system in (TRL, OURS)]
    share, most, met = "", MOST.get(name), ""
    if len(systems) == 2:
      ratio = systems[OURS]["median"] / systems[TRL]["median"]
      share, met = f"{ratio:.2f}", peers.met(ratio, most, most=True)
    lines.append(f"| {' | '.join([WHAT[name][2], *cells, share, f'{most:g}' if most else '', met])} |")
  return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--trl", required=True, help="the python of an environment with trl and torch")
  parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--work", type=Path, default=ROOT / "runs" / "benchmark_real")
  args = parser.parse_args(argv)
  os.environ["PEERS_MODEL"] = "real"  # of all processes
  work, now = args.work.absolute(), setting("benchmarks.real")
  work.mkdir(parents=True, exist_ok=True)
  if not (work / "prompts.jsonl").exists():
    subprocess.run([sys.executable, "-m", "benchmarks.peers.folder", work], cwd=ROOT, check=True)
  answers = work / "answers.jsonl"
  lines = answers.read_text().splitlines() if answers.exists() else []
  found = [line for line in map(json.loads, lines) if line["commit"] == now["commit"]]
  for number, row, system in missing(found, args.only, args.rounds):
    line = dict(round=number, row=row, system=system, commit=now["commit"])
    line |= measure(system, row, args.trl, work)
    with answers.open("a") as file:
      file.write(json.dumps(line) + "\n")
    found.append(line)
    print(f"round {number + 1}, {row}, {system}: {line['wall']:.2f} s", file=sys.stderr, flush=True)
  rows = summary(found)
  processor = f"{'with' if AMX else 'without'} AMX"
  versions = {line["system"]: line["versions"] for line in found}
  keep("real", now | dict(rounds=args.rounds, processor=processor, systems_versions=versions, rows=rows))
  note = r"\* contended: fewer than 1.5 cores busy while others had more than 5 % of the machine."
  report("real", f"{table(rows)}\n\n{note}\n{where(now)}, {processor}.")


if __name__ == "__main__":
  main()
