"""The charts of a report: which metrics stand on which, in which unit."""

import math
import re
from typing import NamedTuple

from grpojax.runtime import metrics

PHASES = "Time by phase"


class Chart(NamedTuple):
  """One chart of the report."""

  title: str
  unit: str  # "%" scales by 100
  curves: dict[str, str]  # metric -> its word in the legend
  note: str = ""  # for the reader
  log: bool = False
  bands: tuple[tuple[str, str], ...] = ()  # metrics between which the chart is shaded
  kinds: tuple[str, ...] = ("train", "eval")  # of the records

  @property
  def scale(self) -> int:
    """Returns the factor from the metrics to the chart's unit."""
    return 100 if self.unit.startswith("%") else 1

  def own(self, records: list[dict]) -> list[dict]:
    """Returns the chart's records, with what was drawn in place of what was kept."""
    return [metrics.of_drawn(record) for record in records if record["kind"] in self.kinds]


REWARD = Chart("Reward", "mean per completion", {"reward": "reward", "accuracy": "accuracy"})
CHARTS = (
  Chart(
    "Groups",
    "% of groups",
    {
      "prompts/all_wrong": "all wrong",
      "prompts/all_right": "all right",
      "dynamic_sampling/keep_rate": "kept by dynamic sampling",
    },
    "Of all that were drawn.  Groups that are all wrong or all right teach nothing.",
  ),
  Chart(
    "Reward spread", "standard deviation in a group", {"reward_std": "mean over groups"},
    "Of the groups that are trained on.  0: no completion is better than another.",
  ),
  Chart(
    "Advantage",
    "per token",
    {"advantage/max": "largest", "advantage/mean": "mean", "advantage/min": "smallest"},
    bands=(("advantage/min", "advantage/max"),),
  ),
  Chart(
    "Completion length",
    "tokens",
    {
      "completions/mean_length": "all",
      "completions/mean_terminated_length": "those that ended",
      "eval/mean_length": "held out",
    },
  ),
  Chart(
    "Distribution of lengths",
    "tokens",
    {
      "completions/length_p50": "median",
      "completions/length_p25": "25 %",
      "completions/length_p75": "75 %",
      "completions/length_p10": "10 %",
      "completions/length_p90": "90 %",
    },
    "So many of the completions that are trained on are shorter.",
    bands=(
      ("completions/length_p10", "completions/length_p90"),
      ("completions/length_p25", "completions/length_p75"),
    ),
  ),
  Chart(
    "Truncated completions",
    "% of completions",
    {"completions/clipped_ratio": "training", "eval/clipped_ratio": "held out"},
    "Cut by the response budget before they ended.",
  ),
  Chart("Turns", "turns of a trajectory", {"turns/mean": "training", "eval/turns": "held out"}),
  Chart(
    "Ends of trajectories",
    "% of trajectories",
    {
      "turns/ended/done": "the task was over",
      "turns/ended/truncated": "the environment's limit",
      "turns/ended/turns": "the budget of turns",
      "turns/ended/tokens": "the budget of tokens",
      "turns/ended/invalid": "invalid actions in a row",
      "turns/ended/failed": "the environment failed",
    },
  ),
  Chart(
    "Turns to compare with",
    "% of turns",
    {
      "turns/mates": "another met the same situation",
      "turns/contrast": "and what followed differed",
      "turns/invalid": "invalid action",
    },
    "Without contrast a turn's own advantage is 0.",
  ),
  Chart("Entropy", "nats per token", {"entropy": "policy"}),
  Chart(
    "Clipped tokens",
    "% of tokens",
    {"clip_ratio/low_mean": "below the range", "clip_ratio/high_mean": "above the range"},
    "0 is expected when a rollout feeds one update only: the policy has not moved yet.",
  ),
  Chart("KL from the reference", "nats per token", {"kl": "KL"}),
  Chart("KL from the teacher", "nats per token", {"teacher_kl": "KL"}),
  Chart("KL from the old policy", "nats per token", {"ppo_kl": "KL"}),
  Chart("Gradient norm", "global L2 norm, before clipping", {"grad_norm": "gradient"}),
  Chart("Learning rate", "per update", {"learning_rate": "learning rate"}),
  Chart(
    "Sampler against learner",
    "|difference of log-probs|, nats",
    {
      "sampling/sampling_logp_difference/mean": "mean",
      "sampling/sampling_logp_difference/max": "largest",
    },
    "Growth means that the sampler runs another policy than the one being trained.",
    log=True,
  ),
  Chart(
    "Speed",
    "tokens per second",
    {"tokens_per_second/rollout": "rollout", "tokens_per_second/update": "update"},
  ),
  Chart(
    "Memory",
    "GB, the most so far",
    {"memory/device_gb": "a device", "memory/host_gb": "process 0"},
  ),
)
COLD_START = Chart(
  "Cold start", "nats per token", {"loss": "loss"}, "The cold start counts its own steps.",
  kinds=("cold_start",),
)  # fmt: skip


def charts(records: list[dict]) -> list[Chart]:
  """Returns the charts that have something to show, with the curves that were measured."""
  names = dict.fromkeys(name for record in records for name in record)  # in the order written
  accuracy = _labels(names, r"eval/((?:pass|maj)@\d+)")
  parts = _labels(names, r"rewards/(.+)/mean")
  parts = parts if len(parts) > 1 else {}  # a single part is the reward itself
  phases = {f"time/{phase}": phase for phase in metrics.phase_seconds(records)}
  found = [
    Chart("Held-out accuracy", "% of questions", accuracy, "Band: 95 % confidence."),
    REWARD,
    Chart("Reward by part", "mean per completion", parts),
    *CHARTS,
    Chart(PHASES, "seconds per step", phases),
    COLD_START,
  ]
  found = [chart._replace(curves=_measured(chart, chart.own(records))) for chart in found]
  return [chart for chart in found if chart.curves]


def _labels(names, pattern) -> dict[str, str]:
  """Returns {metric: the text of the pattern's group} of the metrics that match."""
  matches = {name: re.fullmatch(pattern, name) for name in names}
  return {name: match[1] for name, match in matches.items() if match}


def _measured(chart: Chart, records: list[dict]) -> dict[str, str]:
  """Returns the curves of which some value is finite."""
  values = {name: [r[name] for r in records if r.get(name) is not None] for name in chart.curves}
  return {name: word for name, word in chart.curves.items() if any(map(math.isfinite, values[name]))}
