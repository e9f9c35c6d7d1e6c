"""Does credit by turn pay?  Trajectory, Monte-Carlo, GiGPO in two forms, HGPO and ESSA on three games.

    python -m experiments.credit --dry_run                   # the plan, what it can detect, what it costs
    python -m experiments.credit                             # 16 rows x 9 seeds on 2 CPU cores: 58 minutes
    python -m experiments.credit --rows="frozen_lake: trajectory,frozen_lake: GiGPO (paper)" --seeds=3
    python -m experiments.credit --scale=tiny                # seconds a run; for tests

Rows differ in the advantage alone; all else is configs/gigpo.py on the games of configs/games.py.  Rows of
a game are compared with the trajectory's advantage (GRPO), by seed: the same cold start, prompts and first
draws.  ESSA is GiGPO with other anchors, fingerprints of a validator's answers, and so on the desk alone; the
other rows have the desk's whole answers as anchors.
"""

from grpojax.tools.study import Figure, Row, Study

GAMES = {"frozen_lake": "lake", "sokoban": "sokoban", "desk": "desk"}  # as tables have it -> the scale
TEXTS = {"env.knobs.anchor": "text"}  # the desk's answers themselves
ADVANTAGES = {
  "trajectory": dict(fn="zscore", eps=1e-6, ddof=1),
  "Monte-Carlo": dict(fn="turn_return", gamma=0.95, baseline="turns", std=True),
  "GiGPO (paper)": dict(fn="gigpo", form="trajectories", omega=1.0, gamma=0.95, std=True),
  "GiGPO (code)": dict(fn="gigpo", form="rows", omega=1.0, gamma=0.95, std=False, penalty=0.1),
  "HGPO": dict(fn="hgpo", history=2, alpha=1.0, gamma=0.95, std=True),
}
ESSA = dict(fn="gigpo", form="trajectories", omega=0.5, gamma=0.95, std=False)
SIZES = {  # of a run, as it fits into a minute of one core; an evaluation is two games of each task
  "mini": {
    "steps": 15, "rollout.prompts": 8, "eval.prompts": 256, "eval.samples": 2, "eval.every": 10,
    "checkpoint.every": 15,
  },
  "tiny": {},
}  # fmt: skip
AT_EQUAL = {word: f"over_first_at_equal_{word.replace(' ', '_')}" for word in ("tokens", "environment steps")}
FIGURES = (
  *(Figure(f"At equal {word}", "points", {key: ""}, over="rows") for word, key in AT_EQUAL.items()),
  Figure("After equal updates", "points", {"over_first": ""}, over="rows"),
  Figure("Success in training", "% of trajectories", {"accuracy": ""}),
  Figure("Turns with contrast", "% of turns", {"turns/contrast": ""}),
  Figure("Turns of a trajectory", "turns", {"turns/mean": ""}),
)


def rows(scale: str) -> tuple[Row, ...]:
  """Returns the rows of all games; those of a game are a group."""
  found = []
  for game, size in GAMES.items():
    config = f"configs/gigpo.py:{size if scale == 'mini' else f'{scale}_{size}'}"
    common = SIZES[scale] | (TEXTS if game == "desk" else {})
    made = {name: common | {"objective.advantage": advantage} for name, advantage in ADVANTAGES.items()}
    if game == "desk":
      made["ESSA"] = SIZES[scale] | {"objective.advantage": ESSA}
    found += [Row(name, config, changes, group=game) for name, changes in made.items()]
  return tuple(found)


def study(scale: str) -> Study:
  return Study(
    name=f"credit-{scale}",
    title=f"Credit for turns ({scale})",
    question="One advantage for a trajectory, as GRPO, or one for each turn? Rows of a game differ in that.",
    rows=rows(scale),
    figures=FIGURES,
    seeds=9,
    last=2,
    before_once=True,
    minutes=0.8,
    machine="a core of an x86_64 processor",
    scatter=3.6,  # 4.1 over eight seeds of evaluations of half as many games, whose noise is 3 of it
    spends={"tokens": "num_tokens", "environment steps": "environment/steps"},
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.credit", study, ("mini", "tiny"))
