"""Pairs of a chosen and a rejected answer, of what was sampled; and what became of all other answers.

A pair is the first best and the first worst answer of a question, among those that ended.  In a pair with the
data's demonstration that one is chosen, and the first answer is rejected (SPIN).
"""

from collections.abc import Callable

import numpy as np

from grpojax.tools.pipeline.rejection import BROKEN, squeezed

COUNTS = ("sampled", "no_verdict", "cut", "unreadable", "unpaired", "paired")  # answers; by the demonstration
# "no_verdict" is 0, as none is asked for, and "paired" has one answer a pair
Score = Callable[[dict, int], float | None]  # (item, number of the sample) -> the higher, the better


def by_verifier(item: dict, number: int) -> float | None:
  """Returns 1 of a right answer, 0 of a wrong one, None without a verdict."""
  right = item["samples"][number]["right"]
  return None if right is None else float(right)


def best_and_worst(items: list[dict], score: Score) -> tuple[list[tuple[dict, str, str]], dict[str, int]]:
  """Returns ([(item, chosen, rejected)], counts of answers and prompts); no pair where scores are alike."""
  made, counts = [], _counts(items)
  for item in items:
    scored = []
    for number, sample in enumerate(item["samples"]):
      value = score(item, number)
      why = unusable(sample) or ("no_verdict" if value is None else "")
      counts[why or "unpaired"] += 1
      if not why:
        scored.append((value, sample["text"]))
    best = max(scored, key=lambda one: one[0], default=None)  # the first of the best, as of the worst
    worst = min(scored, key=lambda one: one[0], default=None)
    if best and best[0] > worst[0] and squeezed(best[1]) != squeezed(worst[1]):
      made.append((item, best[1], worst[1]))
      counts["paired"] += 2
      counts["unpaired"] -= 2
  return made, counts | {"prompts_kept": len(made)}


def against_demonstration(
  items: list[dict], demonstrations: dict[str, str]
) -> tuple[list[tuple[dict, str, str]], dict[str, int]]:
  """Returns the same with each item's demonstration, by its id, over the first answer that can be used."""
  made, counts = [], _counts(items)
  for item in items:
    rejected, shown = None, demonstrations[item["id"]]
    for sample in item["samples"]:
      why = unusable(sample)
      usable = not why and rejected is None and squeezed(sample["text"]) != squeezed(shown)
      counts[why or ("paired" if usable else "unpaired")] += 1
      rejected = sample["text"] if usable else rejected
    if rejected is not None:
      made.append((item, shown, rejected))
  return made, counts | {"prompts_kept": len(made)}


def _counts(items: list[dict]) -> dict[str, int]:
  """Returns the counts that only the items decide, and zeros."""
  sampled = sum(len(item["samples"]) for item in items)
  solved = sum(item["correct"] == item["n"] for item in items)
  return dict.fromkeys(COUNTS, 0) | dict(sampled=sampled, prompts=len(items), prompts_solved=solved)


def unusable(sample: dict) -> str:
  """Returns why an answer is in no pair; "" if it may be: its text has to stand for its tokens."""
  if not sample["ended"]:
    return "cut"  # the text would be learned with an end that it had not
  return "unreadable" if BROKEN in sample["text"] else ""


def length_correlation(items: list[dict], score: Score) -> float:
  """Returns the correlation of scores and lengths in tokens within questions; 0 where one is constant.

  Within: of each question's answers, less their means, as pairs are made of them.
  """
  scores, lengths = [], []
  for item in items:
    known = [(score(item, i), one["length"]) for i, one in enumerate(item["samples"])]
    found = np.array([one for one in known if one[0] is not None], np.float64).reshape(-1, 2)
    if len(found):
      scores.extend(found[:, 0] - found[:, 0].mean())
      lengths.extend(found[:, 1] - found[:, 1].mean())
  x, y = np.array(scores), np.array(lengths)
  norm = np.sqrt((x**2).sum() * (y**2).sum())
  return float((x * y).sum() / norm) if norm > 0 else 0.0


def length_preference(made: list[tuple[dict, str, str]]) -> float:
  """Returns the correlation of being chosen with length in characters, within pairs; 0 where none differ."""
  apart = np.array([len(chosen) - len(rejected) for _, chosen, rejected in made], np.float64)
  return float(apart.mean() / np.sqrt((apart**2).mean())) if apart.any() else 0.0


def sentence(counts: dict[str, int]) -> str:
  """Returns the counts in words."""
  answers = ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in COUNTS[1:-1])
  return (
    f"made {counts['prompts_kept']} pairs of {counts['sampled']} answers to {counts['prompts']} prompts"
    f" ({answers}; {counts['prompts_solved']} prompts always solved)"
  )
