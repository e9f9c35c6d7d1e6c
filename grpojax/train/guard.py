"""Numbers that no training should come from: batches are kept, a person is warned, the run is stopped."""

import re
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from grpojax.runtime import console
from grpojax.types import Groups

MISMATCH = "sampling/sampling_logp_difference/mean"
NONFINITE_STEPS = "update/nonfinite_steps"
FAILED = re.compile(r"rewards/.+/failed")


def check(config: ConfigDict, step: int, nonfinite_steps: int, metrics: dict[str, float]) -> None:
  """Warns of a step's metrics, or raises ArithmeticError.

  `nonfinite_steps` counts the steps in a row, up to this one, with an update that was not finite.
  The metrics are the same on every process, so that all processes stop at the same step.
  """
  c = config.guard
  if metrics["update/nonfinite"]:
    console.say(f"step {step}: {_what(metrics)} was not finite; the update was skipped")
  elif metrics["update/skipped"]:
    console.say(f"step {step}: gradient norm {metrics['grad_norm']:.3g} is a spike; the update was skipped")
  if c.nonfinite and nonfinite_steps >= c.nonfinite:
    raise FloatingPointError(
      f"no finite update in {c.nonfinite} steps in a row, up to step {step}, where {_what(metrics)} was not "
      "finite (their batches are in bad_batches/ of the workdir); lower config.optimizer.learning_rate, or "
      "see what the batches have"
    )
  graded = metrics.get("rewards/graded", 0.0)
  for name, failed in metrics.items():
    if FAILED.fullmatch(name) and c.failed_rewards and failed > c.failed_rewards * graded:
      raise ArithmeticError(
        f"step {step}: {name} = {failed:.0f} of {graded:.0f} completions, a larger share than "
        "config.guard.failed_rewards; mend the reward, whose first error was printed above"
      )
  apart = metrics.get(MISMATCH, 0.0)
  if c.stop_mismatch and not np.isfinite(apart):
    raise FloatingPointError(
      f"step {step}: log-probs of sampler or learner are not finite ({apart:.3g} nats a token apart), so the "
      "parameters or the activations are not; lower config.optimizer.learning_rate, set config.model.dtype = "
      "'float32', or see whether the weights that the run began with are finite"
    )
  if c.stop_mismatch and apart > c.stop_mismatch:
    raise ArithmeticError(
      f"step {step}: log-probs of sampler and learner are {apart:.3g} nats a token apart, more than "
      "config.guard.stop_mismatch; the sampler has other weights, or another model, than the learner"
    )
  if c.warn_mismatch and apart > c.warn_mismatch:
    console.say_once(
      f"step {step}: log-probs of sampler and learner are {apart:.3g} nats a token apart, more than "
      "config.guard.warn_mismatch; see config.objective.correct"
    )


def _what(metrics: dict[str, float]) -> str:
  """Returns what of a step's update was not finite."""
  for name, said in ("loss", "a loss"), ("grad_norm", "a gradient"):
    if not np.isfinite(metrics[name]):
      return said
  return "what the optimiser made of a finite gradient"


def keep(folder: Path, step: int, rank: int, groups: Groups) -> None:
  """Writes this process's groups of a step to bad_batches/, arrays by their names, without pickle."""
  folder = folder / "bad_batches"
  folder.mkdir(parents=True, exist_ok=True)
  prompts, rollout, scored = groups
  arrays = {"prompt_tokens": prompts.tokens, "prompt_length": prompts.length, "prompt_id": prompts.id}
  turns = rollout.turns._asdict() if rollout.turns else {}
  fields = rollout._replace(turns=None)._asdict() | {f"turns/{name}": x for name, x in turns.items()}
  arrays |= {name: x for name, x in fields.items() if x is not None}
  arrays |= {"reward": scored.reward, "accuracy": scored.accuracy, "valid": scored.valid}
  arrays |= {f"parts/{name}": x for name, x in (scored.parts or {}).items()}
  np.savez(folder / f"step_{step:06d}_process_{rank}.npz", allow_pickle=False, **arrays)
