"""Writes conformance/cases: the stored cases that have a loss, a file a family, a case a line.

    python tests/data/make_conformance.py
"""

import json
from pathlib import Path

DATA = Path(__file__).parent
CASES = DATA.parents[1] / "conformance" / "cases"
LEFT_OUT = ("checked_against", "seed")  # how the numbers were made, which tests of ours have


def families() -> dict[str, str]:
  """Returns name of a family -> text of its file."""
  stored = [
    case
    for file in ("variants_cases.json", "variants_2026_cases.json")
    for case in json.loads((DATA / file).read_text())
    if case["expected_loss"] is not None
  ]
  found = {}
  for case in sorted(stored, key=lambda case: case["variant"]):
    kept = {key: value for key, value in case.items() if key not in LEFT_OUT}
    found.setdefault(case["variant"].replace("+", "_plus"), []).append(json.dumps(kept, ensure_ascii=False))
  return {name: "[\n" + ",\n".join(lines) + "\n]\n" for name, lines in found.items()}


def main() -> None:
  """Writes the files, and takes away those of families that are no more."""
  CASES.mkdir(parents=True, exist_ok=True)
  for old in CASES.glob("*.json"):
    old.unlink()
  for name, text in families().items():
    (CASES / f"{name}.json").write_text(text)


if __name__ == "__main__":
  main()
