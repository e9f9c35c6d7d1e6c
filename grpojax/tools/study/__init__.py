"""Studies: a table of rows that are run with several seeds and compared.

    plan.py        rows x seeds -> runs, each a checked command of `grpojax.main`, with their cost
    chains.py      runs that are pipelines of stages
    execute.py     deals runs to processes here; cluster.py writes scripts that a scheduler starts instead
    worker.py      such a process: one run after another, by the same programs
    power.py       what a study can detect, from the spread of the seeds that are finished
    results.py     records of the runs -> results.json, with intervals from statistics.py
    table.py figures.py page.py   results.json -> table, PNGs, report.html
    command.py     the flags of `python -m experiments.<study>` and `grpojax sweep`

Only worker.py imports the training program: a run is known by the files in its workdir alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Row(NamedTuple):
  """One setting, run with every seed."""

  name: str  # as the table has it
  config: str  # the recipe's file and its scale, "configs/gspo.py:mini"
  changes: dict = {}  # dotted key of the config -> value, beyond the recipe  # noqa: RUF012 (never written to)
  quoted: float | None = None  # published accuracy of the row, in % of questions
  group: str = ""  # rows are compared within a group, with its first row and with the row before
  at: float | None = None  # where on the axis of a swept number

  @property
  def label(self) -> str:
    """Returns the row's name among the rows of all groups."""
    return f"{self.group}: {self.name}" if self.group else self.name


class Figure(NamedTuple):
  """Curves of some rows (mean over seeds, band: 95 % interval), final values along a swept number, or rows.

  A figure over rows has a dot and an interval for each; its metric is a difference in results.json.  What is
  along a swept number in a section's figure, its lines say.
  """

  title: str
  unit: str  # "%..." scales by 100
  metrics: dict[str, str]  # metric, or "a / b", -> word in the legend; with several rows, one metric
  rows: tuple[str, ...] = ()  # their names or labels; () all
  over: str = "step"  # "step", "tokens" that were generated since the start, "swept", or "rows"
  note: str = ""
  x: str = ""  # name of the swept number; "": the study's


class Section(NamedTuple):
  """Conclusion of a study from its results beyond the table: a table of its own, and a figure."""

  title: str
  note: str
  head: list[str]
  body: list[list[str]]
  figure: Figure | None = None
  lines: tuple[Any, ...] = ()  # of the figure: figures.Line


class Study(NamedTuple):
  """A question, and the runs that answer it."""

  name: str  # of its folder
  title: str
  question: str  # a sentence or two above the table
  rows: tuple[Row, ...]
  figures: tuple[Figure, ...] = ()
  seeds: int = 5
  metric: str = "eval/pass@1"  # of the table; a share of questions
  before_once: bool = False  # the first row of a group evaluates the policy before training for all of it, as
  # they start from the same; False: each run does
  last: int = 1  # evaluations whose mean is the accuracy of a run: the last one, the last two, ...
  # What runs spend -> metric of a training step; rows are compared at equal amounts of each, too.
  spends: dict[str, str] = {"tokens": "num_tokens"}  # noqa: RUF012 (never written to)
  quoted: str = ""  # head of the column of published numbers; "" none
  swept: str = ""  # name of the swept number, for the axes
  minutes: float = 0.0  # of one run, as measured on `machine`; 0: unknown
  machine: str = ""
  scatter: float = 0.0  # standard deviation over seeds that a difference of two rows is expected to have,
  # in points; the plan then says which differences can be told from nothing.  0: unknown
  spread: float = 0.0  # the same of a single row.  Both give way to what finished seeds show
  width: float = 0.0  # points on either side that the interval of a single row may have; 0: any
  sections: tuple[Callable[[dict], Section | None], ...] = ()  # of results.json; None: nothing was measured
  reads: tuple[str, ...] = ()  # metrics that sections read and no figure shows

  def conclude(self, results: dict) -> list[Section]:
    """Returns the sections that results.json has something for."""
    return [section for make in self.sections if (section := make(results))]


def cumulative(config: str, *steps: tuple[str, dict, float | None], group: str = "") -> tuple[Row, ...]:
  """Returns rows that each add their own changes to those before: (name, changes, quoted)."""
  rows, changes = [], {}
  for name, own, quoted in steps:
    changes = changes | own
    rows.append(Row(name, config, changes, quoted, group))
  return tuple(rows)
