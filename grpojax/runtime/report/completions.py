"""Groups of completions.jsonl -> what the page's browser of completions shows, within a bound of size.

Between the two a group is text in JSON: short, and its length is what the bound is about.
"""

import json

from grpojax.runtime import console, metrics

CHARACTERS = 4_000_000  # of all groups in the page; a page of ten times as many is slow to open


def payload(groups: list[str]) -> dict:
  """Returns `groups`, evenly spread over the steps where all would be too many, and `of` how many."""
  kept = _spread([len(group) for group in groups])
  return dict(groups=[json.loads(groups[i]) for i in kept], of=len(groups))


def to_json(group: dict) -> str:
  """Returns what is shown of a group: texts with escapes for what cannot be seen, and numbers."""
  return json.dumps(_group(group))


def _spread(sizes: list[int]) -> list[int]:
  """Returns the numbers of the groups that are kept: every k-th and the last, with the least k that fits."""
  every = 1
  while True:
    kept = sorted({*range(0, len(sizes), every), *range(len(sizes))[-1:]})
    if len(kept) <= 2 or sum(sizes[i] for i in kept) <= CHARACTERS:
      return kept
    every += 1


def _group(group: dict) -> dict:
  size, parts, advantage = len(group["completions"]), group.get("parts"), group.get("advantage")
  shown = {
    "step": group["step"],
    "prompt": console.visible(_text(group.get("sent")) or group["prompt"]),
    "answer": console.visible(_text(group.get("answer"))),
    "completions": [console.visible(text) for text in group["completions"]],
    "rewards": group["rewards"],
    "lengths": group["lengths"],
    "ended": [bool(end) for end in group["ended"]],
    "parts": {},
  }
  if isinstance(parts, dict):
    shown["parts"] = {console.visible(name): x for name, x in parts.items() if _numbers(x, size)}
  if _numbers(advantage, size):
    shown["advantage"] = advantage
  if played := turns(group):
    shown["turns"] = played
  return shown | _tokens(group, size)


def turns(group: dict) -> list[list[dict]]:
  """Returns the turns of the group's trajectories: texts, numbers, words; [] of none, or of spoilt ones."""
  found = group.get("turns")
  lists = isinstance(found, list) and len(found) == len(group["completions"])
  if not lists or not all(isinstance(one, list) and all(isinstance(t, dict) for t in one) for one in found):
    return []
  return [[_turn(turn) for turn in one] for one in found]


def _turn(turn: dict) -> dict:
  """Returns what is shown of a turn; a number that is spoilt or was not kept is left out."""
  texts = {name: console.visible(_text(turn.get(name))) for name in ("seen", "action", "ending")}
  kept = [name for name in ("reward", "advantage") if name in turn and metrics.is_number(turn[name])]
  return texts | {name: turn[name] for name in kept} | {"valid": bool(turn.get("valid", True))}


def _tokens(group: dict, size: int) -> dict:
  """Returns tokens of the group's first completions, and each one's log-prob, entropy and kind, if kept."""
  texts, known = group.get("tokens"), {"logp": group.get("sampler_logp"), "entropy": group.get("entropy")}
  lists = isinstance(texts, list) and len(texts) <= size and all(isinstance(each, list) for each in texts)
  if not lists or not all(isinstance(text, str) for each in texts for text in each):
    return {}
  fits = lambda x: isinstance(x, list) and len(x) == len(texts) and all(map(_numbers, x, map(len, texts)))
  tokens = [[console.visible(text) for text in each] for each in texts]
  found = {"tokens": tokens} | {name: numbers for name, numbers in known.items() if fits(numbers)}
  kinds = group.get("kinds")
  legal = lambda each: isinstance(each, str) and set(each) <= set("aoip")
  spelt = isinstance(kinds, list) and all(map(legal, kinds))
  return found | ({"kind": kinds} if spelt and list(map(len, kinds)) == list(map(len, texts)) else {})


def _text(value) -> str:
  return value if isinstance(value, str) else ""


def _numbers(values, size: int) -> bool:
  """Returns True for a list of so many numbers or nulls."""
  return isinstance(values, list) and len(values) == size and all(map(metrics.is_number, values))
