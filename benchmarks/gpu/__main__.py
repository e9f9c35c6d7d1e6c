"""Decoding and updating Qwen2.5 shapes on one accelerator, beside what the same device can do at most.

    python -m benchmarks.gpu                        # all of it, in 9 minutes at most
    python -m benchmarks.gpu --trl TRL_ENV/bin/python              # and whole steps in TRL
    python -m benchmarks.gpu --only decode:7B update:7B
    python -m benchmarks.gpu --dry-run              # the same code at tiny sizes, on a CPU too

Random weights in bfloat16, made on the device.  Decoding: prompts of 512 tokens, 16 samples each of
2,048 tokens, as many slots as memory holds; its necessary bytes are the weights and the live keys and
values of every token step.  Updating: 16 responses of 2,048 tokens to 8 prompts of as many; its necessary
work is forward and backward, a prompt once, recomputation not counted.  Both are the programs of training.
A whole step samples 4 such prompts and updates once, here and in TRL.  Each part is a process, so that none
inherits memory; parts that no time is left for are named.
Writes benchmarks/results/gpu.json, and the table into docs/performance.md.
"""

import argparse
import json
import subprocess
import sys
import time

from benchmarks.gpu.work import MODELS, one
from benchmarks.setting import ROOT, keep, report, setting, where

STEP, TRL = "step:0.5B", "trl:0.5B"
PARTS = ["limits", STEP, TRL, *(f"{what}:{name}" for name in MODELS for what in ("decode", "update"))]
TARGETS = {"decode": 0.7, "update": 0.5}
TIMES_TRL = 3.0  # whole steps


def table(results: dict) -> str:
  peak = results["limits"]
  lines = [
    f"{peak['device']}: copies {peak['bytes_per_second'] / 1e12:.2f} TB/s, products in bfloat16 "
    f"{peak['flops_per_second'] / 1e12:.0f} TFLOP/s, both measured.\n",
    "| part | size | seconds | tokens/s | share of the device's limit | target | |",
    "|---|---|---|---|---|---|---|",
  ]
  for part, r in results.items():
    what = part.split(":")[0]
    if what == "limits":
      continue
    if "skipped" in r:
      lines.append(f"| {part} | not run: {r['skipped']} | | | | | |")
      continue
    size = f"{r['slots']} slots" if what == "decode" else f"{r['rows']} rows, {r['dtype']}"
    share = "| | "
    if what in TARGETS:
      kind = "bytes" if what == "decode" else "flops"
      of_limit = r[f"necessary_{kind}"] / r["seconds"] / peak[f"{kind}_per_second"]
      share = f"{of_limit:.2f} | ≥ {TARGETS[what]} | {_met(of_limit, TARGETS[what])}"
    lines.append(f"| {part} | {size} | {r['seconds']:.2f} | {r['tokens_per_second']:,.0f} | {share} |")
  if all("seconds" in results.get(part, {}) for part in (STEP, TRL)):
    times = results[TRL]["seconds"] / results[STEP]["seconds"]
    met = f"(≥ {TIMES_TRL}: {_met(times, TIMES_TRL)})"
    lines.append(f"\nA whole step is {times:.2f} times as fast as TRL's {met}.")
  return "\n".join(lines)


def _met(value: float, target: float) -> str:
  return "reached" if value >= target else "**not reached**"


def collect(parts: list[str], dry: bool, seconds: float, trl: str = "") -> dict:
  """Returns part -> the results of its own process; `trl` is the python of an environment that has TRL."""
  end, results = time.monotonic() + seconds, {}
  for part in ["limits", *(part for part in parts if part != "limits")]:
    if part == TRL and not trl:
      results[part] = dict(skipped="it needs --trl")
      continue
    command = [sys.executable, "-m", "benchmarks.gpu", f"--part={part}", f"--trl={trl}"]
    command += ["--dry-run"] if dry else []
    left = end - time.monotonic()
    try:
      done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=max(left, 1))
    except subprocess.TimeoutExpired:
      results[part] = dict(skipped="no time was left")
      continue
    if done.returncode:
      results[part] = dict(skipped=f"{done.stderr.strip().splitlines()[-1]:.120}")
    else:
      results[part] = json.loads(done.stdout.splitlines()[-1])
    print(f"{part}: {results[part]}", file=sys.stderr)
  return results


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
  parser.add_argument("--seconds", type=float, default=520)
  parser.add_argument("--dry-run", action="store_true")
  parser.add_argument("--trl", default="", help="the python of an environment with trl and torch")
  parser.add_argument("--part", choices=PARTS, help="one part in this process, for the driver")
  args = parser.parse_args(argv)
  if args.part:
    print(json.dumps(one(args.part, args.dry_run, args.trl)))
    return
  results = collect(args.only, args.dry_run, args.seconds, args.trl)
  now = setting("benchmarks.gpu")
  text = f"{table(results)}\n\n{where(now)}"
  if args.dry_run:
    print(text)
    return
  keep("gpu", now | dict(parts=results))
  report("gpu", text)


if __name__ == "__main__":
  main()
