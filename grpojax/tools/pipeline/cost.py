"""What a stage costs: tokens at most and a prediction of its time, or what it took.

The prediction takes a stage to go at the pace of those of its kind that have run in this chain, with answers
that fill as much of their budget; whatever else differs, another size of the policy too, is not in it.
"""

from pathlib import Path
from typing import NamedTuple

from grpojax.runtime import console, metrics
from grpojax.tools.pipeline.manifest import BEGUN, DONE
from grpojax.tools.pipeline.stages import OFFLINE, ON_POLICY, Stage
from grpojax.tools.study import plan


class Pace(NamedTuple):
  """Tells what a stage that has run took, by part: its work, and its evaluations while it trained."""

  kind: str
  tokens: tuple[int, int]  # at most, as its config asked for
  seconds: tuple[float, float]


def of_stage(stage: Stage, folder: Path, what: str, paces: list[Pace]) -> str:
  """Returns what the stage took, or takes at most and by prediction; `what` is its state.

  Of the number of tokens nothing is said where that of the questions is unknown.
  """
  tokens, seconds = spent(metrics.read(folder)) if what in (DONE, BEGUN) else (0, 0.0)
  if what == DONE:
    return f"took {f'{tokens:,} tokens and ' if tokens else ''}{console.duration(seconds)}"
  most, how = at_most(stage)
  behind = f", {tokens:,} so far" if tokens else ""
  said = [f"at most {most:,} tokens are {how}{behind}"] if most else []
  whole = predicted(stage, paces)
  if whole is None:
    said.append("its time is unknown until the first stage of its kind has run")
  else:
    said.append(f"predicted time {console.duration(max(0.0, whole - seconds))}")
  return ", ".join(said)


def spent(records: list[dict]) -> tuple[int, float]:
  """Returns the tokens that a stage's records count, sampled or learned, and its seconds."""
  tokens = sum(record.get("num_tokens") or 0 for record in records)
  return round(tokens), sum(metrics.phase_seconds(records).values())


def pace(stage: Stage, folder: Path) -> Pace | None:
  """Returns what a stage took, as it ran; None of one that neither sampled nor learned, as from a cache."""
  records = metrics.read(folder)
  if not spent(records)[0]:
    return None
  seconds = metrics.phase_seconds(records)
  trained = stage.kind in (*ON_POLICY, *OFFLINE)
  evaluated = seconds.get("eval", 0.0) if trained else 0.0
  return Pace(stage.kind, _parts(stage), (sum(seconds.values()) - evaluated, evaluated))


def predicted(stage: Stage, paces: list[Pace]) -> float | None:
  """Returns the seconds that the whole stage takes at these paces of its kind; None where there are none."""
  total = 0.0
  for part, tokens in enumerate(_parts(stage)):
    # What has an unknown number of tokens is as long as the others of which it is unknown.
    like = [one for one in paces if one.kind == stage.kind and bool(one.tokens[part]) == bool(tokens)]
    if not like:
      return None
    seconds, done = sum(one.seconds[part] for one in like), sum(one.tokens[part] or 1 for one in like)
    total += (tokens or 1) * seconds / done
  return total


def _parts(stage: Stage) -> tuple[int, int]:
  """Returns the most tokens of a stage's work and of its evaluations while it trains; 0 where unknown."""
  tokens, _ = at_most(stage)
  if stage.kind not in (*ON_POLICY, *OFFLINE):
    return tokens, 0
  evaluated = plan.cost(stage.run_config).evaluated
  return tokens - (evaluated if stage.kind in ON_POLICY else 0), evaluated


def at_most(stage: Stage) -> tuple[int, str]:
  """Returns the most tokens of a stage that has not run, and what is done with them; 0 where unknown.

  Unknown is the number of questions of a file that nobody has read yet.
  """
  c = stage.config
  if stage.kind in ON_POLICY:
    return plan.cost(c).tokens, "sampled"
  if stage.kind in OFFLINE:
    answers = c[stage.kind].steps * c[stage.kind].batch_size * (2 if stage.kind == "preference" else 1)
    return answers * c.rollout.max_tokens, "learned"
  if stage.kind == "base":
    return c.cold_start.steps * c.cold_start.batch_size * c.rollout.max_tokens, "learned"
  if stage.kind == "evaluate":
    splits = [c.data.get(name, 0) for name in ("test", "validation")]
    asked = sum(splits) if all(isinstance(size, int) for size in splits) else 0  # of files: unknown
    return asked * c.eval.samples * c.eval.max_tokens, "sampled"
  return _of_samples(stage), "sampled"


def _of_samples(stage: Stage) -> int:
  """Returns the most tokens of a `sample` stage: of its answers, and of a judge's on each of them."""
  c = stage.config
  known = c.data.get("train", 0)  # prompts of the embedded task
  prompts = min(filter(None, (c.sample.prompts, known if isinstance(known, int) else 0)), default=0)
  judged = c.sample.rows == "pairs" and c.sample.by == "judge"
  judgements = c.judge.samples * c.judge.max_tokens if judged else 0
  return prompts * c.sample.samples * (c.eval.max_tokens + judgements)
