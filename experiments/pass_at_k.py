"""Does reinforcement learning raise pass@k, or only pass@1?  Short and prolonged training, GRPO and MaxRL.

    python -m experiments.pass_at_k --dry_run      # the plan, and what it can detect
    python -m experiments.pass_at_k                # 5 rows x 8 seeds on 2 CPU cores: 27 minutes
    python -m experiments.pass_at_k --scale=tiny   # seconds; for tests

https://arxiv.org/abs/2504.13837 finds that training makes likelier what the base policy could do already, so
that the base wins at large k; ProRL (https://arxiv.org/abs/2505.24864) that prolonged training with a KL
penalty, whose reference is renewed, and a wider clip range does more than that; MaxRL
(https://arxiv.org/abs/2602.02710) climbs pass@k for every k below the group's size.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base
from grpojax.tools.study import Figure, Row, Section, Study, statistics, table

SAMPLES = {"mini": 32, "tiny": 4}
SHORT = {"mini": 40, "tiny": 2}  # steps
LONGER = 5  # times as many
PROLONGED = {  # the parts of ProRL's section 3; beta and how often the reference is renewed are ours
  "objective.surrogate.high": 0.4,
  "objective.penalty": {"kl": {"fn": "kl_k3", "beta": 0.001}},
  "reference": "init",
  "reference_sync.every": 50,
  "dynamic_sampling.enabled": True,
}
MAXRL = {"objective.advantage": {"fn": "maxrl", "eps": 0.0, "all_wrong": "zero"}}


def get_config(arg: str = "mini") -> ConfigDict:
  """Returns GRPO without KL, evaluated twice, with as many samples as the largest k."""
  c = base.get_config(arg)
  c.name = "pass_at_k"
  c.steps = SHORT[arg]
  c.eval.update(samples=SAMPLES[arg], every=c.get_ref("steps") // 2)
  c.checkpoint.every = c.get_ref("steps")
  if arg == "mini":
    c.eval.prompts = 256
  return c


def rows(scale: str) -> tuple[Row, ...]:
  config = f"experiments/pass_at_k.py:{scale}"
  longer = {"steps": LONGER * SHORT[scale]}
  return (
    Row("GRPO", config),
    Row("MaxRL", config, MAXRL),
    Row("GRPO longer", config, longer),
    Row("MaxRL longer", config, MAXRL | longer),
    Row("ProRL", config, PROLONGED | longer),
  )


def over_k(results: dict) -> Section:
  """Returns pass@1 and pass@n of every row, before and after, and the change by seed."""
  names = [name for name in results["curves"][results["rows"][0]["label"]] if name.startswith("eval/pass@")]
  body = []
  for row in results["rows"]:
    cells = [row["label"]]
    for name in names:
      before, after = (_column(results, row, name, at) for at in (0, -1))
      gain = statistics.difference(after, before)._asdict()
      levels = [table.level(statistics.estimate(x)._asdict()) for x in (before, after)]
      cells += [*levels, table.change(gain)]
    body.append(cells)
  head = [""]
  for name in names:
    short = name.removeprefix("eval/")
    head += [f"{short} before", "after", "change"]
  note = (
    "Changes are paired by seed: the same held-out questions before and after. A policy that only gets surer"
    " of what it could do raises pass@1 and not the last column; where that is below 0, it has forgotten how"
    " to do some."
  )
  return Section("pass@1 and pass@k", note, head, body)


def _column(results: dict, row: dict, name: str, at: int) -> list[float]:
  """Returns the metric of every seed at the first or the last evaluation."""
  return [values[at] for values in results["curves"][row["label"]][name]["values"]]


def study(scale: str) -> Study:
  n = SAMPLES[scale]
  most = f"eval/pass@{n}"
  return Study(
    name=f"pass_at_k-{scale}",
    title=f"pass@1 and pass@{n} ({scale})",
    question=f"Rows differ in the advantage and in the steps. Each question is answered {n} times.",
    rows=rows(scale),
    figures=(
      Figure("pass@1", "% of questions", {"eval/pass@1": ""}, over="tokens"),
      Figure(f"pass@{n}", "% of questions", {most: ""}, over="tokens"),
      Figure("Entropy", "nats per token", {"entropy": ""}),
      Figure("Prompts that are all wrong", "% of prompts", {"prompts/all_wrong": ""}),
    ),
    seeds=8,
    before_once=True,
    sections=(over_k,),
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.pass_at_k", study, ("mini", "tiny"))
