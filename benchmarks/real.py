"""SmolLM2-135M in TRL, in Tunix and here, in turns on one machine; see docs/performance.md.

    python -m benchmarks.real --trl TRL_ENV/bin/python --tunix TUNIX_ENV/bin/python
    python -m benchmarks.real ... --only step --dtypes bfloat16      # a part of it

The model has the shapes of SmolLM2-135M and random weights, on which no second depends.  8 prompts of 32
tokens, 8 responses of exactly 32 (or 64) to each, one AdamW update of the 64 rows; in float32 throughout, and
with bfloat16 products beside float32 parameters and moments (TRL's bf16=True, here model.dtype; Tunix's dtype
is that of parameters and moments too, so it has float32 alone).  Without --tunix its column is left out.  A
process is asked for everything before it counts; in a round all systems do each row.  Answers are a line of
WORK/answers.jsonl at once: the same command goes on where it was ended, with the answers of its commit alone.
Writes benchmarks/results/real.json, and the table into docs/performance.md; real_amx.json and a table of its
own where the processor has AMX.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import __main__ as peers
from benchmarks.setting import ROOT, keep, report, setting, where

SYSTEMS = TRL, TUNIX, OURS = "TRL", "Tunix", "grpojax"
PRECISIONS = FLOAT32, BFLOAT16 = "float32", "bfloat16"
ROWS = {  # row -> the process, and what it is asked for once each; the last answer of a name counts
  "step": ("0.0", ("step", "step", "rollout", "rollout")),
  "cold": ("0.0", ("step",)),
  "logprobs": ("0.04", ("step", "logprobs", "logprobs")),
  **{f"rollout{n}": (str(n), (f"rollout{n}",) * 2) for n in (8, 32, 128)},
  "long": ("0.0", ("step", "step")),
}
LONG = 64  # tokens of a response in the row "long", else as workload.NEW
AMX = "amx_bf16" in Path("/proc/cpuinfo").read_text()
OWN_FLAGS = {  # what is kept of a layer in bfloat16 a CPU makes float32 and rounds again with every layer
  FLOAT32: [],
  BFLOAT16: ["--config.remat=full", *(["--config.microbatches=2"] if AMX else [])],
}
WHAT = {  # row of the table -> the row that measures it, the answer that is meant, and its words
  "step": ("step", "step", "whole step, s"),
  "update": ("step", "step", "update: the step without the rollout, s"),
  "long": ("long", "step", f"whole step, responses of {LONG}, s"),
  "rollout": ("step", "rollout", "rollout of 64, s"),
  "rollout8": ("rollout8", "rollout8", "rollout of 8, s"),
  "rollout32": ("rollout32", "rollout32", "rollout of 32, s"),
  "rollout128": ("rollout128", "rollout128", "rollout of 128, s"),
  "logprobs": ("logprobs", "logprobs", "log-prob pass, 64 × 64 tokens, s"),
  "start": ("step", "step", "process start to end of first step, programs cached, s"),
  "cold": ("cold", "step", "process start to end of first step, empty cache, s"),
  "memory": ("step", "step", "peak memory of a process that trains, MB"),
}
NUMBER = {  # rows of the table that do not have the answer's seconds -> their number, of a line
  "update": lambda line: line["step"]["wall"] - line["rollout"]["wall"],
  "start": lambda line: line["start"],
  "cold": lambda line: line["start"],
  "memory": lambda line: line["step"]["rss_mb"],
}
NAME = "real_amx" if AMX else "real"  # of the table
STEP, ROLLOUT = (0.3, 0.33) if AMX else (0.55, 0.5)
MOST = {"step": STEP, "long": STEP, "rollout": ROLLOUT, "memory": 0.6, "cold": 1.3}  # targets


def command(system: str, row: str, dtype: str, pythons: dict, work: Path, cache: Path) -> list[str]:
  """Returns the command line of the process that measures a row; `pythons`: the peers' system -> python."""
  what, here = ROWS[row][0], peers.HERE
  if system != OURS:  # one process serves all rollouts
    beta = "0.04" if what == "0.04" else "0.0"
    script = [pythons[system], str(here / f"on_{system.lower()}.py"), str(work / "model"), beta]
    return [*script, *([dtype] if system == TRL else [])]
  flags = [f"--config.cache_dir={cache}", f"--config.model.dtype={dtype}", *OWN_FLAGS[dtype]]
  return [sys.executable, str(here / "on_grpojax.py"), str(work / "model"), what, *flags]


def measure(system: str, row: str, dtype: str, pythons: dict, work: Path) -> dict:
  """Returns what a new process of the system answers, by name, and the seconds until its first step ended."""
  asked = ROWS[row][1]
  os.environ["PEERS_NEW"] = str(LONG) if row == "long" else ""  # of the process
  with tempfile.TemporaryDirectory() as empty:
    cache = Path(empty) if row == "cold" else work / "cache"
    log = work / f"{system}-{row}-{dtype}.log"
    process = peers.System(command(system, row, dtype, pythons, work, cache), log)
    answers = [process.ask(f"{name} 1") for name in asked]
    process.close()
  return dict(zip(asked, answers, strict=True)) | dict(start=answers[0]["at"] - process.began)


def missing(found: list[dict], rounds: int, rows: list[str], dtypes: list[str], systems: list[str]) -> list:
  """Returns (round, row, dtype, system) of what has not been measured yet, in the order of measuring."""
  known = {(line["round"], line["row"], line["dtype"], line["system"]) for line in found}
  wanted = itertools.product(range(rounds), rows, dtypes, systems)
  return [one for one in wanted if one not in known and one[2:] != (BFLOAT16, TUNIX)]


def summary(found: list[dict]) -> dict[str, dict]:
  """Returns row of the table -> "system, dtype" -> median, quartiles and how many; of what was measured."""
  of = {}
  for line in found:
    of.setdefault((line["row"], line["system"], line["dtype"]), []).append(line)
  rows = {}
  for name, (row, answer, _) in WHAT.items():
    number = NUMBER.get(name, lambda line, answer=answer: line[answer]["wall"])
    for system, dtype in itertools.product(SYSTEMS, PRECISIONS):
      lines = of.get((row, system, dtype), [])
      if lines := [line for line in lines if name != "start" or line["round"]]:  # the first fills the cache
        low, median, high = peers.np.percentile([number(line) for line in lines], [25, 50, 75])
        busy = dict(cpu_over_wall=min(line[answer]["cpu"] / line[answer]["wall"] for line in lines))
        others = dict(others=max(line[answer]["others"] for line in lines))
        numbers = dict(median=median, low=low, high=high, rounds=len(lines))
        rows.setdefault(name, {})[f"{system}, {dtype}"] = numbers | busy | others
  return rows


def table(rows: dict[str, dict]) -> str:
  """Formats the rows; the ratios are of each system's own best precision, which may differ."""
  kinds = [f"{system}, {dtype}" for system in SYSTEMS for dtype in PRECISIONS]
  columns = [kind for kind in kinds if any(kind in found for found in rows.values())]
  against = [system for system in SYSTEMS[:-1] if any(kind.startswith(system) for kind in columns)]
  head = ["what", *columns, *(f"ours of {system}'s" for system in against), "at most", ""]
  lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
  for name, found in rows.items():
    cells = [peers.cell(found[column]) if column in found else "" for column in columns]
    ratios, most = [_best(found, OURS) / _best(found, system) for system in against], MOST.get(name)
    known = [ratio for ratio in ratios if 0 < ratio < math.inf]
    met = peers.met(max(known), most, most=True) if known else ""
    cells += [f"{ratio:.2f}" if ratio in known else "" for ratio in ratios]
    lines.append(f"| {' | '.join([WHAT[name][-1], *cells, f'{most:g}' if most else '', met])} |")
  return "\n".join(lines)


def _best(found: dict, system: str) -> float:
  """Returns the least median of a system's precisions, infinity where none was measured."""
  of_system = [cell["median"] for column, cell in found.items() if column.startswith(system)]
  return min(of_system, default=math.inf)


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--trl", required=True, help="the python of an environment with trl and torch")
  parser.add_argument("--tunix", help="the python of one with google-tunix")
  parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
  parser.add_argument("--dtypes", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
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
  pythons = {name: python for name, python in ((TRL, args.trl), (TUNIX, args.tunix)) if python}
  for number, row, dtype, system in missing(found, args.rounds, args.only, args.dtypes, [*pythons, OURS]):
    line = dict(round=number, row=row, system=system, dtype=dtype, commit=now["commit"])
    line |= measure(system, row, dtype, pythons, work)
    with answers.open("a") as file:
      file.write(json.dumps(line) + "\n")
    found.append(line)
    seconds = ", ".join(f"{name} {line[name]['wall']:.2f} s" for name in dict.fromkeys(ROWS[row][1]))
    print(f"round {number + 1}, {row}, {system}, {dtype}: {seconds}", file=sys.stderr, flush=True)
  rows = summary(found)
  processor = f"{'with' if AMX else 'without'} AMX"
  versions = {line["system"]: line[ROWS[line["row"]][1][0]]["versions"] for line in found}
  keep(NAME, now | dict(rounds=args.rounds, processor=processor, systems_versions=versions, rows=rows))
  note = r"\* contended: fewer than 1.5 cores busy while others had more than 5 % of the machine."
  report(NAME, f"{table(rows)}\n\n{note}\n{where(now)}, {processor}.")


if __name__ == "__main__":
  main()
