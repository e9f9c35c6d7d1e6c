"""Replays the cases through a loss: python run.py MODULE [FAMILY ...]

MODULE.loss(case) returns the loss as a number, or (loss, its gradient by logp, [B][T]), or None where it has
no such formula.  Prints how many cases of each family are equal, differ, or have no counterpart, and each
that differs; ends with 1 if any does.  It needs numpy alone.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np

CASES = Path(__file__).parent / "cases"
TOLERANCE = 1e-6  # of the loss, relative to 1 or to its size, and of the gradient, to its largest entry


def verdict(case: dict, answer) -> tuple[str, float]:
  """Returns ("equal", "differs" or "none", by how much)."""
  if answer is None:
    return "none", 0.0
  loss, gradient = answer if isinstance(answer, tuple) else (answer, None)
  by = abs(loss - case["expected_loss"]) / max(1.0, abs(case["expected_loss"]))
  if gradient is not None and case["expected_grad_logp"] is not None:
    wanted = np.asarray(case["expected_grad_logp"])
    by = max(by, np.abs(np.asarray(gradient) - wanted).max() / max(np.abs(wanted).max(), 1e-9))
  return ("equal" if by <= TOLERANCE else "differs"), float(by)  # NaN is not at most anything


def main(module: str, families: list[str]) -> int:
  """Prints a line a family, and a line for each case that differs; returns the status of the process."""
  loss, differing = importlib.import_module(module).loss, []
  for path in [CASES / f"{name}.json" for name in families] or sorted(CASES.glob("*.json")):
    found = {case["name"]: verdict(case, loss(case)) for case in json.loads(path.read_text())}
    count = {word: sum(said == word for said, _ in found.values()) for word in ("equal", "differs", "none")}
    print(f"{path.stem:28}" + "".join(f"{number:4} {word:8}" for word, number in count.items()))
    differing += [(name, by) for name, (said, by) in found.items() if said == "differs"]
  for name, by in differing:
    print(f"{name} differs by {by:.3g}")
  return bool(differing)


if __name__ == "__main__":
  sys.path.insert(0, "")  # a module in the folder that this is started from
  sys.exit(main(sys.argv[1], sys.argv[2:]))
