"""The control: a reward for the form of an answer, whatever it says."""

from grpojax.rewards import extract


def stated_in_time(sample, *, form: str) -> float:
  """Returns 1 for a completion that ends within its budget and states an answer in this form, else 0."""
  return float(sample.ended and extract.stated(sample.text, form) is not None)


def _check(*, form):
  extract.check_form(form)


stated_in_time.check = _check
