"""Claims, and the verdict that their cases give."""

from typing import NamedTuple


class Claim(NamedTuple):
  """A sentence of the literature, put to the test."""

  name: str
  text: str
  source: str
  rule: str  # when it holds; written before anything is computed
  verdict: str  # "holds", "fails", "holds only if ..." or "cannot be told"
  numbers: dict  # what decided
  identity: bool = False  # algebra, whatever the policy: what is tested is the code, not the world


def verdict(cases: dict[str, bool | None]) -> str:
  """Cases by name -> "holds" if all do, "fails" if none does, else those that do.

  A case of None cannot be told; where there is one, all are listed.
  """
  good, bad, unknown = ([n for n, case in cases.items() if kind(case)] for kind in KINDS.values())
  if len(unknown) == len(cases):
    return "cannot be told"
  if unknown:
    parts = zip(KINDS, (good, bad, unknown), strict=True)
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in parts if names)
  if not bad:
    return "holds"
  return "holds only if " + " or ".join(good) if good else "fails"


KINDS = {
  "holds in": bool,
  "fails in": lambda case: case is not None and not case,
  "cannot be told in": lambda case: case is None,
}
