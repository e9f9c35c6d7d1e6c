"""Rejection sampling: which sampled answers are kept to be learned, and what became of all others.

Kept are right answers that ended, no two of a prompt alike, at most so many a prompt, in the order in which
they were sampled, so that nothing but chance prefers one right answer to another.
"""

import math

COUNTS = ("sampled", "wrong", "no_verdict", "cut", "unreadable", "repeated", "over_limit", "kept")
BROKEN = "\ufffd"  # stands in a text for a part of a character: other tokens would be learned for it


def select(items: list[dict], keep: int, balance: str) -> tuple[list[tuple[dict, str]], dict[str, int]]:
  """Returns ([(item, answer)] of what is kept, counts of answers and prompts).

  `items` are those of an evaluation (tools/evaluate/items.py); `keep` and `balance` are config.sample's.
  `sampled` is the sum of the COUNTS behind it.
  """
  kept, counts = [], dict.fromkeys(COUNTS, 0)
  counts |= {"prompts": len(items), "prompts_kept": 0, "prompts_solved": 0}
  for item in items:
    texts, most = [], limit(item, keep, balance)
    for sample in item["samples"]:
      why = _rejected(sample, texts) or ("over_limit" if len(texts) == most else "kept")
      counts["sampled"] += 1
      counts[why] += 1
      if why == "kept":
        texts.append(sample["text"])
    kept += [(item, text) for text in texts]
    counts["prompts_kept"] += bool(texts)
    counts["prompts_solved"] += item["correct"] == item["n"]
  return kept, counts


def limit(item: dict, keep: int, balance: str) -> int:
  """Returns how many answers of a prompt are kept at most: `keep`, or the failure rate's share of it."""
  if balance == "none":
    return keep
  return max(1, math.ceil(keep * (item["n"] - item["correct"]) / item["n"]))


def _rejected(sample: dict, texts: list[str]) -> str:
  """Returns why an answer is not kept beside `texts`; "" if it may be."""
  if sample["right"] is not True:
    return "no_verdict" if sample["right"] is None else "wrong"
  if not sample["ended"]:
    return "cut"  # to imitate it would be to stop nowhere
  if BROKEN in sample["text"]:
    return "unreadable"
  return "repeated" if squeezed(sample["text"]) in map(squeezed, texts) else ""


def squeezed(text: str) -> str:
  """Returns the text without what white space alone tells apart."""
  return " ".join(text.split())


def sentence(counts: dict[str, int]) -> str:
  """Returns the counts in words."""
  answers = ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in COUNTS[1:-1])
  return (
    f"kept {counts['kept']} of {counts['sampled']} answers, of {counts['prompts_kept']} of"
    f" {counts['prompts']} prompts ({answers}; {counts['prompts_solved']} prompts always solved)"
  )
