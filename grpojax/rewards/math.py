"""Verdicts in mathematics: LaTeX and plain text, up to equivalence."""

from fractions import Fraction

from grpojax.rewards import extract, pool

_SMALL = Fraction(1, 10_000)  # six places are no more than two digits of it


def equivalent(
  samples, *, form: str = "boxed", timeout: float = 3.0, workers: int = 2
) -> list[float | Exception | None]:
  r"""Returns 1 if the answer is the row's, else 0; None without a truth, TimeoutError after `timeout`.

  `form` says where a completion answers: boxed (the last \boxed{}), answer ("Answer: ..." on the last
  line), hashes (behind "####"), tag (the last <answer></answer>) or number (the last one, wherever it is).
  Plain numbers are compared here; all other answers go, once for each different pair, to `workers`
  processes with `timeout` seconds a pair.
  """
  pairs = [(extract.truth(str(s.example["answer"])), extract.answer(s.text, form)) for s in samples]
  verdicts = {pair: _of_numbers(*pair) for pair in pairs}
  hard = [pair for pair, verdict in verdicts.items() if verdict is None]
  found = pool.call("grpojax.rewards.equivalence:verdict", hard, timeout=timeout, workers=workers)
  verdicts.update(zip(hard, found, strict=True))
  return [verdicts[pair] for pair in pairs]


def _of_numbers(gold: str, answer: str | None) -> float | None:
  """Returns the verdict where both are plain numbers, or there is no answer to one; else None.

  Integers and fractions are exact; where one of the two is a decimal, six places have to agree, and where
  one is below 1e-4 their ratio is 1 to six places.
  """
  truth, answered = extract.number(gold), extract.number(answer or "")
  if truth is None or (answered is None and answer):
    return None
  if answered is None:
    return 0.0
  if truth.exact and answered.exact:
    return float(truth.value == answered.value)
  if any(0 < abs(number.value) < _SMALL for number in (truth, answered)):
    return float(truth.value != 0 and round(answered.value / truth.value, 6) == 1)
  return float(round(truth.value, 6) == round(answered.value, 6))


def _answer(text: str, *, form: str = "boxed", **_) -> str | None:
  found = extract.answer(text, form)
  return None if found is None else extract.canonical(found)


def _check(*, form, timeout, workers):
  extract.check_form(form)
  pool.check(timeout, workers)


equivalent.needs = ("answer",)
equivalent.check = _check
equivalent.answer = _answer
