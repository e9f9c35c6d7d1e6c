"""How far may a token's probability rise in one step?  The upper clip range of DAPO and of GSPO.

    python -m experiments.epsilon_high              # 11 rows x 5 seeds on 2 CPU cores
    python -m experiments.epsilon_high --scale=tiny # seconds; for tests

DAPO: https://arxiv.org/abs/2503.14476 section 3.1; GSPO: https://arxiv.org/abs/2507.18071 section 5.1.
"""

from experiments.common import MINI
from grpojax.recipes.sweeps import epsilon_high
from grpojax.tools.study import Figure, Row, Study

KEY = "objective.surrogate.high"
RECIPES = {"DAPO": ("configs/dapo.py", "token"), "GSPO": ("configs/gspo.py", "sequence")}

SHOWN = (
  ("Held-out accuracy", "% of questions", "eval/pass@1", ""),
  ("Entropy", "nats per token", "entropy", ""),
  ("Tokens clipped above", "% of tokens", "clip_ratio/high_mean", ""),
  ("Mass clipped above", "probability, mean over tokens", "clip_ratio/high_mass", "Under the old policy."),
)


def figures() -> tuple[Figure, ...]:
  """Returns each metric along ε_high, recipe by recipe, and the curves of all rows."""
  made = []
  for title, unit, metric, note in SHOWN:
    for recipe in RECIPES:
      mine = tuple(row.name for row in rows("mini") if row.group == recipe)
      made.append(
        Figure(f"{title} by ε_high: {recipe}", unit, {metric: recipe}, mine, over="swept", note=note)
      )
      made.append(Figure(f"{title}: {recipe}", unit, {metric: recipe}, mine))
  return tuple(made)


def rows(scale: str) -> tuple[Row, ...]:
  common = MINI | {"updates_per_rollout": 8} if scale == "mini" else {}  # or nothing is clipped
  return tuple(
    Row(f"ε_high = {changes[KEY]:g}", f"{config}:{scale}", common | changes, group=recipe, at=changes[KEY])
    for recipe, (config, ratio) in RECIPES.items()
    for changes in epsilon_high.get_sweep(ratio)
  )


def study(scale: str) -> Study:
  return Study(
    name=f"epsilon_high-{scale}",
    title=f"The upper clip range ({scale})",
    question="Rows are compared within their recipe: with its narrowest range, and with the one before.",
    rows=rows(scale),
    figures=figures(),
    swept="ε_high",
    minutes={"mini": 0.8}.get(scale, 0.0),
    machine="one CPU core",
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.epsilon_high", study, ("mini", "tiny"))
