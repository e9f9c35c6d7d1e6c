"""What does each stage of R1's recipe give?  The whole chain, and the chain with each stage left out.

    python -m experiments.r1 --dry_run      # the plan
    python -m experiments.r1                # 6 rows x 5 seeds, 2 CPU cores: 22 minutes, 67 beside other work
    python -m experiments.r1 --scale=tiny --rows=1,2

Rows differ in stages alone; configs/pipelines/r1.py says what is in them.  The curve of the whole chain has
the accuracy after each stage, by tokens that were sampled or learned.
"""

from ml_collections import ConfigDict

from experiments import stages
from grpojax.recipes.pipelines import r1
from grpojax.tools.study import Figure, Row, Study

ROWS = {  # name -> stages that are left out
  "whole": (),
  "- cold start": ("cold",),
  "- first RL": ("reason",),
  "- rejection sampling and SFT": ("reject", "again"),
  "- last RL": ("all",),
  "RL alone": ("cold", "reject", "again", "all"),
}


def get_config(arg: str = "mini") -> ConfigDict:
  """Returns the pipeline of "SCALE-STAGE-STAGE...", without those stages."""
  scale, *without = arg.split("-")
  c = r1.get_config(scale)
  c.name = "_".join(["r1", *without])
  stages.ask_all(c, scale)
  c.stages = stages.measured([stage for stage in r1.links(c) if stage["name"] not in without])
  return c


def study(scale: str) -> Study:
  config = f"experiments/r1.py:{scale}"
  return Study(
    name=f"r1-{scale}",
    title=f"R1's recipe, stage by stage ({scale})",
    question="Rows are compared with the whole chain, after all of their stages and at equal tokens.",
    rows=tuple(Row(name, "-".join([config, *without])) for name, without in ROWS.items()),
    figures=(
      Figure("Accuracy after each stage", "% of questions", {"eval/pass@1": ""}, over="tokens"),
      Figure("Length", "tokens", {"eval/mean_length": ""}, over="tokens"),
    ),
    sections=(stages.after_each,),
    reads=stages.reads(get_config(scale).stages),
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.r1", study, ("mini", "tiny"))
