"""Claims, and the verdict that their cases give."""

from typing import NamedTuple


class Claim(NamedTuple):
  """A sentence of the literature, put to the test."""

  name: str
  text: str
  source: str
  rule: str  # when it holds; written before anything is computed
  verdict: str  # "holds", "fails" or "holds only if ..."
  numbers: dict  # what decided
  identity: bool = False  # algebra, whatever the policy: what is tested is the code, not the world


def verdict(cases: dict[str, bool]) -> str:
  """Cases by name -> "holds" if all do, "fails" if none does, else those that do."""
  good = [name for name, good in cases.items() if good]
  if len(good) == len(cases):
    return "holds"
  return "holds only if " + " or ".join(good) if good else "fails"
