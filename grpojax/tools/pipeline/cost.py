"""What a stage costs: tokens at most before it has run, tokens and seconds as they were after it."""

from pathlib import Path

from grpojax.runtime import console, metrics
from grpojax.tools.pipeline.stages import OFFLINE, ON_POLICY, Stage
from grpojax.tools.study import plan


def of_stage(stage: Stage, folder: Path, done: bool) -> str:
  """Returns what the stage took, or takes at most; "" where the number of questions is unknown."""
  if done:
    tokens, seconds = spent(metrics.read(folder))
    return f"took {f'{tokens:,} tokens and ' if tokens else ''}{console.duration(seconds)}"
  tokens, how = at_most(stage)
  return f"at most {tokens:,} tokens are {how}" if tokens else ""


def spent(records: list[dict]) -> tuple[int, float]:
  """Returns the tokens that a stage's records count, sampled or learned, and its seconds."""
  tokens = sum(record.get("num_tokens") or 0 for record in records)
  return round(tokens), sum(metrics.phase_seconds(records).values())


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
    asked = c.data.test if isinstance(c.data.test, int) else 0  # all of the embedded task's
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
