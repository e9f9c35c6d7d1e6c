"""When does each part of DAPO matter?  One knob a part that makes what it is made for strong or weak.

    python -m experiments.regimes --dry_run        # the plan, and what it can detect
    python -m experiments.regimes     # 70 rows x 8 seeds on 2 CPU cores: about four hours, by arithmetic; 20
                                      # rows x 5 seeds took 29 and 44 minutes
    python -m experiments.regimes --rows="updates 16; one in: naive GRPO,updates 16; one in: + clip-higher"
    python -m experiments.regimes --scale=tiny     # seconds a run; for tests

| part | made for | knob |
|---|---|---|
| clip-higher | ratios far from 1 | updates a rollout; temperature, for the entropy at the start |
| overlong filtering, soft punishment | truncated completions | share of demonstrations that ramble |
| token-level loss | lengths that differ | the same on long chains, of hundreds of tokens; temperature |
| dynamic sampling | groups without contrast | demonstrations with a slip, for the accuracy at the start |

Each part is measured twice in each regime of its knobs: added to naive GRPO (one in), and left out of full
DAPO (one out).  Nothing was tuned for an outcome: the parts are those of experiments/dapo_ablation.py, and
all other numbers are the same in all regimes.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments import dapo_ablation
from grpojax.tools.study import Figure, Row, Section, Study, figures, table

PARTS = {name.removeprefix("+ "): changes for name, changes, _ in dapo_ablation.STEPS[1:]}
FILTER, HIGHER, SOFT, TOKEN, DYNAMIC = PARTS
NAIVE, FULL, IN, OUT = dapo_ablation.NAIVE, "full DAPO", "one in", "one out"
EQUAL = 0.02  # a difference that lies within so much of 0, as a share of questions, is called nothing
LONG = {  # experiments/long_chains.py in half as many completions, of which each is six times as long
  "data.task": "experiments.long_chains:LongChains", "rollout.max_tokens": 256, "rollout.prompts": 16,
  "eval.samples": 1,
}  # fmt: skip


class Knob(NamedTuple):
  """Something that makes a phenomenon strong or weak."""

  name: str
  parts: tuple[str, ...]  # that are made for it
  levels: dict[float, dict]  # where on the axis -> what the config changes; {} is the default regime
  shows: str  # metric of naive GRPO that says how strong the phenomenon is
  unit: str


def _levels(key: str, *values: float, **also: dict) -> dict[float, dict]:
  return {value: {key: value} | also for value in values}


KNOBS = (
  Knob(
    "updates", (HIGHER,), {1.0: {"updates_per_rollout": 1}, 8.0: {}, 16.0: {"updates_per_rollout": 16}},
    "clip_ratio/high_mean", "% of tokens clipped above",
  ),
  Knob(
    "rambling", (FILTER, SOFT), {0.0: {"data.rambling": 0.0}, 0.2: {}, 0.6: {"data.rambling": 0.6}},
    "completions/clipped_ratio", "% of completions truncated",
  ),
  Knob(
    "long chains; rambling", (TOKEN, SOFT),
    {x: LONG | {"data.rambling": x} for x in (0.0, 0.25, 0.5)},
    "completions/clipped_ratio", "% of completions truncated",
  ),
  Knob(
    "slips", (DYNAMIC,), {0.1: {"data.wrong": 0.1}, 0.35: {}, 0.8: {"data.wrong": 0.8}},
    "frac_reward_zero_std", "% of groups without contrast",
  ),
  Knob(
    "temperature", (HIGHER, TOKEN),
    {
      0.6: {"rollout.temperature": 0.6, "eval.temperature": 0.6}, 1.0: {},
      1.3: {"rollout.temperature": 1.3, "eval.temperature": 1.3},
    },
    "entropy", "nats per token",
  ),
)  # fmt: skip


class Regime(NamedTuple):
  """One setting of one knob, or the default of all."""

  name: str
  parts: tuple[str, ...]
  changes: dict


def regimes() -> Iterator[Regime]:
  """Yields the default, with all parts, and what each knob makes of it."""
  yield Regime("default", tuple(PARTS), {})
  for knob in KNOBS:
    for at, changes in knob.levels.items():
      if changes:
        yield Regime(name_of(knob, at), knob.parts, changes)


def name_of(knob: Knob, at: float) -> str:
  return f"{knob.name} {at:g}" if knob.levels[at] else "default"


def get_config(arg: str = "mini") -> ConfigDict:
  """Returns that of the ablation in fewer steps, whose evaluations ask all questions."""
  c = dapo_ablation.get_config(arg)
  c.name = "regimes"
  if arg == "mini":
    c.steps = 40
  if arg == "tiny":
    c.rollout.prompts = 16  # so that sixteen updates have one each
  return c


def rows(scale: str) -> tuple[Row, ...]:
  """Returns, of every regime, naive GRPO with one part more and full DAPO with one part less."""
  found, config = [], f"experiments/regimes.py:{scale}"
  for regime in regimes():
    row = lambda name, parts, way, of=regime: Row(
      name, config, of.changes | changes_of(parts), group=f"{of.name}; {way}"
    )
    found.append(row(NAIVE, (), IN))
    found += [row(f"+ {part}", (part,), IN) for part in regime.parts]
    found.append(row(FULL, PARTS, OUT))
    found += [row(f"- {part}", [p for p in PARTS if p != part], OUT) for part in regime.parts]
  return tuple(found)


def changes_of(parts) -> dict:
  return {key: value for part in parts for key, value in PARTS[part].items()}


def effect(results: dict, part: str, regime: str, way: str, key: str) -> dict | None:
  """Returns what the part adds in a regime: {seeds, mean, low, high}, in shares; None where not measured."""
  label = f"{regime}; {way}: {'+' if way == IN else '-'} {part}"
  for row in results["rows"]:
    if row["label"] == label and (found := row[key]):
      if way == IN or found["low"] is None:
        return found | {"mean": found["mean"] * (1 if way == IN else -1)}
      return dict(seeds=found["seeds"], mean=-found["mean"], low=-found["high"], high=-found["low"])
  return None


def verdict(found: dict | None) -> str:
  """Says whether a part helps, hurts or does nothing, or that the interval is too wide to say."""
  if found is None:
    return "not run"
  if (n := len(found["seeds"])) < table.FEW:
    return f"{table.change(found)}, of {table.seeds(n)}: too few to tell"
  if found["low"] > 0 or found["high"] < 0:
    word = "helps" if found["low"] > 0 else "hurts"
  else:
    word = "nothing" if max(-found["low"], found["high"]) <= EQUAL else "not told"
  return f"{word} {table.change(found)}"


def the_map(title: str, key: str):
  """Returns results.json -> the map of parts and regimes, by what one in and one out say."""

  def section(results: dict) -> Section:
    labels = [row["label"] for row in results["rows"]]
    seen = [r for r in regimes() if any(label.startswith(f"{r.name}; ") for label in labels)]
    head = ["regime", "part", f"{IN}: over {NAIVE}", f"{OUT}: {FULL} over the same without it"]
    body = []
    for regime in seen:
      for part in regime.parts:
        said = [verdict(effect(results, part, regime.name, way, key)) for way in (IN, OUT)]
        body.append([regime.name, part, *said])
    note = (
      "In points. A part helps or hurts where the interval excludes 0, and does nothing where the interval "
      f"lies within {100 * EQUAL:g} points of it; else the seeds do not tell."
    )
    return Section(title, note, head, body)

  return section


def phenomena(results: dict) -> Section | None:
  """Returns how strong each phenomenon was, of naive GRPO over all steps; None where it was not run."""
  knobs = [knob for knob in KNOBS if knob.name != "long chains; rambling"]
  names, body = [f"{NAIVE}: {knob.unit}" for knob in knobs], []
  for regime in regimes():
    label = f"{regime.name}; {IN}: {NAIVE}"
    if label in results["curves"]:
      curves = results["curves"][label]
      body.append([regime.name, *(_mean(curves.get(knob.shows), knob.unit) for knob in knobs)])
  if not body:
    return None
  return Section("How strong each phenomenon is", "Means over steps and seeds.", ["regime", *names], body)


def _mean(curve: dict | None, unit: str) -> str:
  if not curve:
    return "-"
  return f"{np.nanmean(np.array(curve['values'], float)) * (100 if unit.startswith('%') else 1):.3g}"


def along(knob: Knob):
  """Returns results.json -> what the knob's parts add against the knob, as a table and a figure, or None."""

  def section(results: dict) -> Section | None:
    lines, body = [], []
    for part, way in itertools.product(knob.parts, (IN, OUT)):
      everywhere = {at: effect(results, part, name_of(knob, at), way, "over_first") for at in knob.levels}
      found = {at: x for at, x in everywhere.items() if x}
      if len(found) < 2:
        continue
      body.append([f"{part}, {way}", *(table.change(x) if x else "-" for x in everywhere.values())])
      ends = (np.array([x[end] for x in found.values()], float) * 100 for end in ("mean", "low", "high"))
      lines.append(figures.Line(f"{part}, {way}", np.array(list(found)), *ends))
    if not body:
      return None
    figure = Figure(f"What it adds, by {knob.name}", "points", {}, over="swept", x=knob.name)
    head = [f"{knob.name} =", *(f"{at:g}" for at in knob.levels)]
    note = "What each part adds after equal steps, in points."
    return Section(f"By {knob.name}", note, head, body, figure, tuple(lines))

  return section


def study(scale: str) -> Study:
  shown = {knob.shows: knob.unit for knob in KNOBS}
  return Study(
    name=f"regimes-{scale}",
    title=f"When does each part of DAPO matter? ({scale})",
    question="Parts of DAPO in regimes that make what each is made for strong or weak. Rows are compared "
    "with the first of their group: naive GRPO, or full DAPO.",
    rows=rows(scale),
    figures=tuple(
      Figure(f"{NAIVE}: {unit}", unit if unit.startswith("%") else "nats per token", {metric: ""}, (NAIVE,))
      for metric, unit in shown.items()
    ),
    seeds=8,
    last=4 if scale == "mini" else 1,
    spread=1.7,  # docs/results/dapo_ablation, 18 seeds, pooled over rows
    scatter=2.2,  # the same of differences
    sections=(
      the_map("The map, after equal steps", "over_first"),
      the_map("The map, at equal tokens", "over_first_at_equal_tokens"),
      phenomena,
      *(along(knob) for knob in KNOBS),
    ),
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.regimes", study, ("mini", "tiny"))
