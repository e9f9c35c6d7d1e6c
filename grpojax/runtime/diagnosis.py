"""Records of training steps -> sentences on why nothing is being learned.

A cause is named when it holds in each of the records; numbers are of all that was drawn, kept or not.
"""

import math
import re
from collections.abc import Callable

from grpojax.runtime import metrics

STEPS = 5  # in a row, before a run that goes on is told
KL_BOUND = 1.0  # nats a token; policies that still write alike are below a tenth of it
PART_STD = re.compile(r"rewards/.+/std")

Records = list[dict]


def sentences(records: Records) -> dict[str, str]:
  """Returns {cause: a sentence with its numbers} of what holds in all of these training records."""
  records = [metrics.of_drawn(record) for record in records]
  if not records:
    return {}
  steps = _steps(records)
  found = {cause: text for cause, find in CAUSES.items() if (text := find(records))}
  if len(found) > 1:
    found.pop("no gradient", None)  # it follows from the others
  found = {cause: f"Nothing is being learned in {steps}: {text}" for cause, text in found.items()}
  return found | {sign: f"In {steps} {text}" for sign, find in SIGNS.items() if (text := find(records))}


def last(records: Records) -> Records:
  """Returns the training records that the sentences on a run are about: its last ones."""
  return [record for record in records if record["kind"] == "train"][-STEPS:]


def _no_contrast(records: Records) -> str:
  """Returns what was drawn where no group had completions of different rewards."""
  if _all(records, "dynamic_sampling/keep_rate", 0):
    tries = round(_sum(records, "dynamic_sampling/tries"))
    return (
      f"no group had contrast in {tries} tries of dynamic sampling. {_drawn(records)} Take easier or harder"
      " questions, or more completions a question (config.rollout.group_size)."
    )
  if not _flat(records) or _constant(records):
    return ""
  return (
    f"in no group did rewards differ, so every advantage is 0. {_drawn(records)} Take easier or harder"
    " questions, or more completions a question (config.rollout.group_size)."
  )


def _flat(records: Records) -> bool:
  """Returns True if no group has contrast, and no baseline beyond the group makes up for it."""
  flat = ("frac_reward_zero_std", 1), ("advantage/min", 0), ("advantage/max", 0)
  return all(_all(records, name, value) for name, value in flat)


def _drawn(records: Records) -> str:
  """Returns one sentence on what the completions were like."""
  right, truncated = _mean(records, "accuracy"), _mean(records, "completions/clipped_ratio")
  parts = []
  if right is not None:
    parts.append(f"{_share(1 - right)} were wrong")
  if truncated is not None:
    parts.append(f"{_share(truncated)} were truncated")
  count = _sum(records, "rewards/graded")
  of = f"Of {count:.0f} completions" if count else "Of the completions"
  return f"{of} {' and '.join(parts)}." if parts else ""


def _truncated(records: Records) -> str:
  """Returns how long the completions were that all ran into the budget."""
  if not _all(records, "completions/clipped_ratio", 1):
    return ""
  return (
    f"every completion was cut before it ended, at {_mean(records, 'completions/mean_length'):.0f} tokens."
    " Raise config.rollout.max_tokens, or begin with a policy that ends its answers."
  )


def _unanswered(records: Records) -> str:
  """Returns how many completions had no answer in the form that the accuracy reads."""
  if not _all(records, "rewards/answered", 0) or not (count := _sum(records, "rewards/graded")):
    return ""
  return (
    f"no answer was found in any of {count:.0f} completions, so none could be right. Say in the prompt how to"
    " answer, or let config.reward.accuracy read the form that the model writes."
  )


def _reward_constant(records: Records) -> str:
  """Returns the one reward that every completion had, right or wrong."""
  if not (value := _constant(records)):
    return ""
  return f"every completion has the same reward, {value}. See whether config.reward tells them apart."


def _constant(records: Records) -> str:
  """Returns the reward of all completions of all steps, as text; "" if there were two, or it is a verdict."""
  names = {name for record in records for name in record if PART_STD.fullmatch(name)}
  if not _flat(records) or not names or not all(_all(records, name, 0) for name in names):
    return ""
  values = {record.get("reward") for record in records}
  verdict = _all(records, "accuracy", 0) or _all(records, "accuracy", 1)
  one = len(values) == 1 and None not in values
  return f"{values.pop():.3g}" if one and not verdict else ""


def _rate_zero(records: Records) -> str:
  """Returns that the optimiser moves nothing."""
  if not _all(records, "learning_rate", 0):
    return ""
  return "the learning rate was 0. Set config.optimizer.learning_rate."


def _skipped(records: Records) -> str:
  """Returns why no update was taken."""
  if not _all(records, "update/skipped", 1):
    return ""
  if _all(records, "update/nonfinite", 1):
    why = "because it was not finite; lower config.optimizer.learning_rate"
  else:
    norm = _mean(records, "grad_norm")
    size = f" (mean norm {norm:.3g})" if norm is not None else ""
    why = f"as the gradient{size} counts as a spike; raise config.guard.spike"
  return f"every update was skipped, {why}."


def _no_gradient(records: Records) -> str:
  """Returns that the gradient was exactly 0."""
  return "the gradient was exactly 0." if _all(records, "grad_norm", 0) else ""


def _far(records: Records) -> str:
  """Returns how far the policy is from the one that sampled, or from the reference, beyond KL_BOUND."""
  for name, what in ("ppo_kl", "the policy that sampled"), ("kl", "the reference"):
    values = [record.get(name) for record in records]
    if all(value is not None and value > KL_BOUND for value in values):
      return (
        f"the KL from {what} was at least {min(values):.3g} nats a token, and below {KL_BOUND:g} is usual."
        " Lower config.optimizer.learning_rate, or take fewer updates for each rollout."
      )
  return ""


CAUSES: dict[str, Callable[[Records], str]] = {  # each of them alone stops learning
  "no contrast": _no_contrast,
  "constant": _reward_constant,
  "learning rate": _rate_zero,
  "skipped": _skipped,
  "no gradient": _no_gradient,
}
SIGNS: dict[str, Callable[[Records], str]] = {  # why there is little to learn from, or too much was learned
  "truncated": _truncated,
  "no answer": _unanswered,
  "kl": _far,
}


def _all(records: Records, name: str, value: float) -> bool:
  """Returns True if every record has this value of the metric."""
  return all(record.get(name) == value for record in records)


def _known(records: Records, name: str) -> list[float]:
  values = [record.get(name) for record in records]
  return [value for value in values if value is not None and math.isfinite(value)]


def _sum(records: Records, name: str) -> float:
  return sum(_known(records, name))


def _mean(records: Records, name: str) -> float | None:
  values = _known(records, name)
  return sum(values) / len(values) if values else None


def _share(x: float) -> str:
  """Formats a share; what is not exactly all or nothing does not read as if."""
  if 0 < x < 0.001 or 0.999 < x < 1:
    return "less than 0.1 %" if x < 0.5 else "more than 99.9 %"
  return f"{100 * x:.3g} %"


def _steps(records: Records) -> str:
  first, final = records[0]["step"], records[-1]["step"]
  return f"step {first}" if first == final else f"steps {first} to {final}"
