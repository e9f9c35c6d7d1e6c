"""What came of trajectories: rewards, metrics, and their turns as text."""

import numpy as np

from grpojax.data import text
from grpojax.types import ENDINGS, FAILED, Rollout, Scored, Turns

NUMBERS = (1, 2, 4, 8, 16, 32, 64)  # turns that have metrics of their own


def played(turns: Turns) -> np.ndarray:
  """Returns [P, G, U] bool: the turn was played."""
  return np.arange(turns.reward.shape[-1]) < turns.count[..., None]


def score(rollout: Rollout, success: float) -> Scored:
  """Returns each trajectory's return, undiscounted; accuracy is 1 where that reaches `success`.

  A trajectory whose environment failed is not valid.
  """
  valid = rollout.ending != FAILED
  total = np.where(played(rollout.turns), rollout.turns.reward, 0).sum(-1, dtype=np.float32)
  reward = np.where(valid, total, np.float32(0))
  accuracy = (valid & (reward >= success)).astype(np.float32)
  return Scored(reward, accuracy, valid, {"environment": reward}, {})


def count(rollout: Rollout) -> dict[str, int]:
  """Returns trajectories that were graded, in which an action was valid, and that an environment failed."""
  valid = played(rollout.turns) & ~rollout.turns.invalid
  return {
    "rewards/graded": rollout.length.size,
    "rewards/answered": int(valid.any(-1).sum()),
    "rewards/environment/failed": int((rollout.ending == FAILED).sum()),
  }


def describe(turns: Turns, ending: np.ndarray) -> dict[str, float]:
  """Returns turns, endings, invalid actions, and what turns have to be compared with, over valid
  trajectories; `ending` [P, G] is Rollout.ending.

  Of turn number n, from 1: those who have played it, whether another turn of the prompt met its situation
  (mates), and whether the rewards that followed, undiscounted, differed among them (contrast).  Without
  contrast a turn's own advantage is 0, but for discounting: who needed longer for the same has less.
  """
  valid = ending != FAILED
  on = played(turns) & valid[..., None]
  mates, contrast = _compared(turns, on)
  actions = max(int(on.sum()), 1)
  metrics = {
    "turns/mean": float(turns.count[valid].mean()) if valid.any() else float("nan"),
    "turns/tokens": float((turns.index[valid] >= 0).sum() / actions),
    "turns/invalid": float((turns.invalid & on).sum() / actions),
    "turns/mates": float(mates.sum() / actions),
    "turns/contrast": float(contrast.sum() / actions),
  }
  for number in (n for n in NUMBERS if n <= on.shape[-1]):
    own = max(int(on[..., number - 1].sum()), 1)
    metrics[f"turns/played/{number}"] = float(on[..., number - 1].sum() / max(int(valid.sum()), 1))
    metrics[f"turns/mates/{number}"] = float(mates[..., number - 1].sum() / own)
    metrics[f"turns/contrast/{number}"] = float(contrast[..., number - 1].sum() / own)
  return metrics | {
    f"turns/ended/{name}": float((ending == n).mean()) for n, name in enumerate(ENDINGS)
  }


def _compared(turns: Turns, on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns [P, G, U] bool: another turn has its anchor; and one of them another undiscounted return."""
  rewards = np.where(on, turns.reward, 0)
  returns = np.cumsum(rewards[..., ::-1], axis=-1)[..., ::-1]
  mates, contrast = np.zeros_like(on), np.zeros_like(on)
  for p in range(len(on)):
    for anchor in np.unique(turns.anchor[p][on[p]]):
      same = on[p] & (turns.anchor[p] == anchor)
      mates[p] |= same & (same.sum() > 1)
      contrast[p] |= same & (np.ptp(returns[p][same]) > 0)
  return mates, contrast


def told(tokenizer, rollout: Rollout, prompt: int = 0) -> list[list[dict]]:
  """Returns the turns of a prompt's trajectories: action, what was seen before it, reward, whether it was
  valid.

  The last turn of each has `ending`, too.
  """
  turns, found = rollout.turns, []
  for g, count in enumerate(turns.count[prompt]):
    index, end, rows = turns.index[prompt, g], 0, []
    for turn in range(count):
      where = np.flatnonzero(index == turn)
      seen = text.decode(tokenizer, rollout.tokens[prompt, g, end : where[0]], np.asarray(where[0] - end))
      end = where[-1] + 1
      action = text.decode(tokenizer, rollout.tokens[prompt, g, where], np.asarray(len(where)))
      reward, invalid = turns.reward[prompt, g, turn], turns.invalid[prompt, g, turn]
      rows.append(dict(seen=seen, action=action, reward=float(reward), valid=not invalid))
    if rows:
      rows[-1]["ending"] = ENDINGS[rollout.ending[prompt, g]]
    found.append(rows)
  return found
