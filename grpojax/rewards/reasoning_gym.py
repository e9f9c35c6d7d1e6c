"""Verdicts of reasoning-gym's own verifiers, on rows that its generators drew (data/procedural_worker.py)."""

import json
from importlib import util

from grpojax.data import procedural
from grpojax.rewards import extract, pool


def verdict(
  samples, *, form: str = "boxed", timeout: float = 5.0, workers: int = 2
) -> list[float | Exception | None]:
  r"""Returns 1 if the library's score is 1, else 0; None for a row of another origin, or TimeoutError.

  `form` says where a completion answers: boxed (the last \boxed{}), answer ("Answer: ..." on the last line),
  hashes (behind "####"), tag (the last <answer></answer>) or number (the last one, wherever it is); the
  verifier is given what stands there.  Verifiers run in `workers` processes, with `timeout` seconds each.
  """
  graded = score(samples, form=form, timeout=timeout, workers=workers)
  return [float(value == 1) if isinstance(value, float) else value for value in graded]


def score(
  samples, *, form: str = "boxed", timeout: float = 5.0, workers: int = 2
) -> list[float | Exception | None]:
  """Returns the library's own score in 0..1, with its credit for part of an answer; 0 without an answer.

  For the rest it is as `verdict`.
  """
  answers = [(str(sample.example["meta"]), extract.stated(sample.text, form)) for sample in samples]
  asked = [pair for pair in dict.fromkeys(answers) if pair[1] is not None and _drawn(pair[0])]
  arguments = [[*_drawn(meta), answer] for meta, answer in asked]
  found = pool.call("grpojax.data.procedural_worker:score", arguments, timeout=timeout, workers=workers)
  values = dict(zip(asked, found, strict=True))
  return [values.get((meta, answer), 0.0 if _drawn(meta) else None) for meta, answer in answers]


def _drawn(meta: str) -> list | None:
  """Returns [generator, knobs, entry] of a row's metadata; None where the library did not draw the row."""
  row = json.loads(meta)
  return [row["generator"], row["knobs"], row["entry"]] if "generator" in row else None


def _answer(text: str, *, form: str = "boxed", **_) -> str | None:
  return extract.stated(text, form)


def _check(*, form, timeout, workers):
  if util.find_spec("reasoning_gym") is None:
    raise ValueError(f"{procedural.MISSING}.")
  extract.check_form(form)
  pool.check(timeout, workers)


for _reward in (verdict, score):
  _reward.needs = ("meta",)
  _reward.check = _check
  _reward.answer = _answer
