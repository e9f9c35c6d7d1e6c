"""A run's records without its training, for tests of who gets them.

    python tests/logged_run.py LOGGERS WORKDIR     # seven steps, killed; again from step 4 to 8
"""

import sys
from pathlib import Path

from grpojax.config import schema
from grpojax.recipes import base
from grpojax.runtime import loggers, metrics

ID = "0123456789abcdef0123456789abcdef"
GROUP = dict(
  prompt="1+1?\n<b>now</b>", completions=["2", "```\n3\x00\ud800"], rewards=[1.0, 0.0], lengths=[1, 2],
  ended=[True, False],
)  # fmt: skip


def run(workdir: Path, start: int, stop: int, to: str = "", every: int = 2) -> None:
  """Steps `start`+1 .. `stop`, an evaluation at 0 and every second step."""
  settings = schema.flatten(base.get_config().to_dict())
  about = loggers.Run(ID, "toy", "tests", settings, workdir, start)
  workdir.mkdir(parents=True, exist_ok=True)
  with metrics.Writer(workdir, start, loggers.open_all(to, about, workdir), every) as writer:
    if start == 0:
      writer.write("cold_start", 30, {"loss": 1.5})
      writer.write("eval", 0, {"eval/pass@1": 0.1})
    for step in range(start + 1, stop + 1):
      writer.write("train", step, {"reward": step / 10})
      writer.completions(step, [GROUP])
      if step % 2 == 0:
        writer.write("eval", step, {"eval/pass@1": step / 100, "time/eval": 0.5})


# What a logger has after both starts, in order: (name, step, value), nothing twice.
SCALARS = [("cold_start/loss", 30, 1.5), ("eval/pass@1", 0, 0.1)]
for n in range(1, 9):
  SCALARS.append(("train/reward", n, n / 10))
  if n % 2 == 0:
    SCALARS += [("eval/pass@1", n, n / 100), ("eval/time/eval", n, 0.5)]


if __name__ == "__main__":
  loggers.check(sys.argv[1])
  for first, last in ((0, 7), (4, 8)):
    run(Path(sys.argv[2]), first, last, sys.argv[1])
