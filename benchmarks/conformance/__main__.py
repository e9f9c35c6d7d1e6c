"""Who computes what: the cases of conformance/ through the losses that other libraries ship.

    python -m benchmarks.conformance --trl trl/bin/python --verl verl/bin/python --tunix tunix/bin/python

Each is the interpreter of an environment with that library; the page says how to make one.  A library without
it keeps its last record.  Writes benchmarks/results/conformance.json and the tables of docs/conformance.md.
"""

import argparse
import functools
import json
import subprocess
from pathlib import Path

import numpy as np

from benchmarks import setting
from benchmarks.conformance import asked

HERE = Path(__file__).parent
CASES = setting.ROOT / "conformance" / "cases"
PEERS = dict(trl="TRL", verl="verl", tunix="Tunix")
EQUAL = 1e-6  # relative to the largest entry of the gradient, and of the loss to 1
FLOAT32 = 5e-6  # the same of a peer that computes in float32
CLOSE = 5e-3  # a difference up to here is a constant of the peer's, such as its epsilon


@functools.cache
def cases() -> dict[str, dict]:
  """Returns every case by its name."""
  found = [case for path in sorted(CASES.glob("*.json")) for case in json.loads(path.read_text())]
  return {case["name"]: case for case in found}


def replay(peer: str, python: str) -> dict:
  """Returns {"versions": ..., "cases": {name: what the peer computes}} of the peer's interpreter."""
  script = str(HERE / f"on_{peer}.py")
  run = subprocess.run([python, script, str(CASES)], capture_output=True, text=True)
  if run.returncode:
    raise SystemExit(f"error: {PEERS[peer]} by {python} ended with {run.returncode}: {run.stderr[-2000:]}")
  digits = lambda text: float(f"{float(text):.10g}")  # as many as are compared, and some
  lines = [json.loads(line, parse_float=digits) for line in run.stdout.splitlines()]
  return dict(versions=lines[0]["versions"], cases={k: v for line in lines[1:] for k, v in line.items()})


def of_advantages(peer: str, case: dict, answer: dict) -> str:
  """Returns a word for the peer's advantages of the case's rewards."""
  if "advantages" not in answer:
    given = case["hyper"]["adv"]["kind"] == "given"
    return "" if given or "expected_advantages" not in case else "none"
  return compared(peer, answer["advantages"], on(case) * np.asarray(case["expected_advantages"], float))


def of_loss(peer: str, case: dict, answer: dict) -> str:
  """Returns a word for the peer's loss and gradient with the case's advantages."""
  if "given" not in answer:
    return "none"
  got, wanted = answer["given"], np.asarray(case["expected_grad_logp"], float)
  word = compared(peer, got["gradient"], wanted)
  by = abs(got["loss"] - case["expected_loss"]) / max(1.0, abs(case["expected_loss"]))
  return "differs in value" if word == "equal" and not by <= tolerance(peer) else word


def on(case: dict) -> np.ndarray:
  """Returns the mask [B, T] of valid rows."""
  valid = np.asarray(case.get("valid") or [True] * len(case["mask"]), float)
  return np.asarray(case["mask"], float) * valid[:, None]


def tolerance(peer: str) -> float:
  """Returns what counts as equal."""
  return FLOAT32 if peer == "tunix" else EQUAL


def compared(peer: str, got, wanted: np.ndarray) -> str:
  """Returns "equal", "× k" for a constant factor, "close" or "differs", of arrays [B, T]."""
  got, equal = np.asarray(got, float), tolerance(peer)
  scale = max(np.abs(wanted).max(), 1e-9)
  by = np.abs(got - wanted).max() / scale
  if by <= equal:
    return "equal"
  factor = (got * wanted).sum() / max((wanted * wanted).sum(), 1e-18)
  if np.abs(got - factor * wanted).max() <= equal * scale and 0.05 < factor < 20:
    return f"× {factor:.4g}" if abs(factor - 1) > CLOSE else "close"
  return "close" if by <= CLOSE else "differs"


def table(records: dict[str, dict]) -> str:
  """Formats the families against the peers, two columns each."""
  peers = [peer for peer in PEERS if peer in records]
  head = ["family", "cases", *(f"{PEERS[peer]}: {what}" for peer in peers for what in ("advantages", "loss"))]
  lines = [head, ["---"] * len(head)]
  families: dict[str, list[dict]] = {}
  for case in cases().values():
    families.setdefault(case["variant"], []).append(case)
  for family, members in families.items():
    cells = [family, str(len(members))]
    for peer in peers:
      answers = records[peer]["cases"]
      for word in (of_advantages, of_loss):
        known = [case for case in members if case["name"] in answers]
        cells.append(_counted([word(peer, case, answers[case["name"]]) for case in known]))
    if any(cell not in ("none", "–") for cell in cells[2:]):
      lines.append(cells)
  return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _counted(words: list[str]) -> str:
  words = [word for word in words if word]
  kinds = sorted(set(words), key=lambda word: (word == "none", word != "equal", word))
  if len(kinds) == 1:
    return kinds[0]
  return ", ".join(f"{kind} ({words.count(kind)})" for kind in kinds) or "–"


def only_here(records: dict[str, dict]) -> str:
  """Returns sentences on the families of which no peer has the advantages or the loss."""
  shown = {line.split(" | ")[0].removeprefix("| ") for line in table(records).splitlines()}
  missing = {name for record in records.values() for name in cases().keys() - record["cases"].keys()}
  shown |= {cases()[name]["variant"] for name in missing}
  rest = [case for case in cases().values() if case["variant"] not in shown]
  beside = {case["variant"] for case in rest if asked.beside(case)}
  names = lambda families: ", ".join(f"`{family}`" for family in sorted(families))
  return (
    f"None of them computes {names({case['variant'] for case in rest} - beside)}. Losses beside the policy "
    f"term are not asked for, though other trainers of theirs have some: {names(beside)}."
  )


def not_replayed(records: dict[str, dict]) -> list[str]:
  """Returns a sentence for each peer whose record lacks cases, as after a change of how it is asked."""
  found = {peer: sorted(cases().keys() - record["cases"].keys()) for peer, record in records.items()}
  names = lambda missing: ", ".join(f"`{name}`" for name in missing)
  return [f"Not replayed by {PEERS[peer]}: {names(missing)}." for peer, missing in found.items() if missing]


def different(records: dict[str, dict]) -> str:
  """Formats a line for each case in which a peer computes something else."""
  lines = []
  for peer in (peer for peer in PEERS if peer in records):
    for name, answer in records[peer]["cases"].items():
      case = cases()[name]
      words = dict(advantages=of_advantages(peer, case, answer), loss=of_loss(peer, case, answer))
      said = [f"{what} {word}" for what, word in words.items() if word not in ("", "equal", "none")]
      if said:
        lines.append(f"{PEERS[peer]}, `{name}`: {'; '.join(said)}")
  return "\n".join(f"- {line}" for line in lines)


def report(records: dict[str, dict]) -> None:
  """Writes the page's tables."""
  ran = [
    f"{PEERS[peer]}: {record['setting']['machine']}, {record['setting']['date']}, commit "
    f"{record['setting']['commit']}, {', '.join(f'{k} {v}' for k, v in record['versions'].items())}, "
    f"`{record['setting']['command']}`"
    for peer, record in records.items()
  ]
  said = "\n\n".join([table(records), only_here(records), *not_replayed(records), *ran])
  setting.report("conformance", said, page="conformance")
  setting.report("differences", different(records), page="conformance")


def main() -> None:
  """Replays what is asked for, and writes record and page."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--trl", help="python of an environment with trl")
  parser.add_argument("--verl", help="python of an environment with verl")
  parser.add_argument("--tunix", help="python of an environment with google-tunix")
  arguments = vars(parser.parse_args())
  file = setting.RESULTS / "conformance.json"
  records = setting.recorded("conformance") if file.exists() else {}
  for peer, python in arguments.items():
    if python:
      now = setting.setting("benchmarks.conformance")
      records[peer] = dict(setting=now, **replay(peer, python))
  text = json.dumps(records).replace("}, ", "},\n")  # a case on a line or three
  (setting.RESULTS / "conformance.json").write_text(text + "\n")
  report(records)


if __name__ == "__main__":
  main()
