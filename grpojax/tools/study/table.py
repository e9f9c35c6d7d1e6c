"""The table of results.json, in Markdown and for the terminal, and its conclusions in words."""

from rich.table import Table

from grpojax.tools.study import Study, statistics
from grpojax.tools.study.results import key_of

FEW = 5  # seeds, with less than which no bootstrap interval reaches 95 %


def head(study: Study, results: dict) -> list[str]:
  """Returns the columns' names; numbers are in %, unless a name has a unit."""
  quoted = [study.quoted] if study.quoted else []
  return [
    "",
    "accuracy",
    *quoted,
    "over the row before",
    "over the first",
    *(name for word in study.spends for name in (f"{word}, k", f"at equal {word}", "over the first")),
    "minutes",
  ]


def body(study: Study, results: dict) -> list[list[str]]:
  """Returns one list of cells a row."""
  lines = []
  for row in results["rows"]:
    quoted = [_plain(row["quoted"])] if study.quoted else []
    lines.append(
      [
        row["label"],
        level(row["final"]),
        *quoted,
        change(row["over_previous"]),
        change(row["over_first"]),
        *(cell for word in study.spends for cell in _at_equal(row, key_of(word))),
        f"{row['minutes']:.1f}",
      ]
    )
  return lines


def _at_equal(row: dict, key: str) -> list[str]:
  spent = f"{row[key]['mean'] / 1e3:,.1f}"
  return [spent, level(row[f"at_equal_{key}"]), change(row[f"over_first_at_equal_{key}"])]


def markdown(study: Study, results: dict) -> str:
  """Formats the table and the sentences under it."""
  said = "\n".join(f"- {line}" for line in [*notes(study, results), *verdicts(study, results)])
  parts = [f"# {study.title}", _lines(head(study, results), body(study, results)), said]
  for section in study.conclude(results):
    parts += [f"## {section.title}", section.note, _lines(section.head, section.body)]
  return "\n\n".join(part for part in parts if part) + "\n"


def _lines(head: list[str], body: list[list[str]]) -> str:
  """Formats a table in Markdown; "" for one without columns."""
  lines = [head, ["---"] * len(head), *body] if head else []
  return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def terminal(study: Study, results: dict) -> Table:
  table = Table(*head(study, results), title=study.title)
  for cells in body(study, results):
    table.add_row(*cells)
  return table


def notes(study: Study, results: dict) -> list[str]:
  """Returns sentences about the columns."""
  of = sorted({seed for row in results["rows"] for seed in row["final"]["seeds"]})
  e = results["environment"]
  lines = [
    f"Accuracy is {results['metric']}, in % of the held-out questions, {_when(study)}; "
    f"{before(results)} before. Mean over {seeds(len(of))} with its 95 % bootstrap interval; differences are "
    "in points, paired by seed (same prompts; same cold start, if rows do not change the model).",
    "Tokens are those generated in training, kept or not; "
    + "; ".join(f"equal {word} are {_budgets(results, key_of(word))}" for word in study.spends)
    + ", as many as the thriftiest run of a group took.",
    "Minutes are those of a run's own clock, from its start to its last record, mean over seeds.",
    f"`{results['command']}`; commit {e['commit']}, {e['device']} ({e['processor']}), jax {e['jax']}.",
  ]
  if len(of) < FEW:
    lines.append(f"With {seeds(len(of))} no bootstrap interval reaches 95 %; these are too narrow.")
  if study.scatter and len(of) > 1:
    lines.append(f"As was said before it ran: {power(study.scatter, len(of))}.")
  if results["missing"]:
    lines.append(f"Missing: {'; '.join(results['missing'])}.")
  return lines


def _when(study: Study) -> str:
  return "at the end" if study.last == 1 else f"mean of the last {study.last} evaluations"


def _budgets(results: dict, key: str) -> str:
  """Formats the equal amounts of all groups: "320.0 k, 412.4 k"."""
  return ", ".join(f"{n / 1e3:,.1f} k" for n in dict.fromkeys(row[f"equal_{key}"] for row in results["rows"]))


def before(results: dict) -> str:
  """Formats the accuracy before training of each group, or the lowest and highest of its rows."""
  of = {}
  for row in results["rows"]:
    of.setdefault(row["group"], []).append(row["before"])
  return ", ".join(f"{group} {_range(found)}".strip() for group, found in of.items())


def _range(found: list[dict]) -> str:
  low, high = (level(end(found, key=lambda one: one["mean"])) for end in (min, max))
  return low if low == high else f"{low} to {high}"


def power(scatter: float, n: int) -> str:
  """Says which differences n seeds can tell from nothing, if they scatter by so many points."""
  least = statistics.detectable(scatter, n)
  return (
    f"{seeds(n)} tell a difference of {least:.1f} points from nothing in four cases of five, if differences "
    f"scatter by {scatter:.2g} points from seed to seed; what is not told apart may differ by as much"
  )


def seeds(n: int) -> str:
  """Formats a number of seeds: "1 seed", "5 seeds"."""
  return f"{n} seed{'s' * (n != 1)}"


def verdicts(study: Study, results: dict) -> list[str]:
  """Returns a sentence on each row that its intervals support."""
  compared = {"over_previous": "the row before", "over_first": "the first"}
  compared |= {f"over_first_at_equal_{key_of(word)}": f"the first at equal {word}" for word in study.spends}
  return [
    f"{row['label']}: {'; '.join(_verdict(row[key], of) for key, of in compared.items())}."
    for row in results["rows"]
    if row["over_previous"]
  ]


def _verdict(difference: dict, of: str) -> str:
  """Formats better or worse than another row, or not told apart from it, with the difference.

  There is no such word where seeds are too few for their bootstrap interval to reach 95 %.
  """
  if (n := len(difference["seeds"])) < FEW:
    return f"against {of} {change(difference)}, of {seeds(n)}: too few to tell"
  if difference["low"] > 0:
    word = "better than"
  elif difference["high"] < 0:
    word = "worse than"
  else:
    word = "not told apart from"
  return f"{word} {of} ({change(difference)})"


def level(x: dict) -> str:
  """Formats a share with its interval: "74.5 [73.1, 75.9]"."""
  return f"{100 * x['mean']:.1f}" + _ends(x, ".1f")


def change(x: dict | None) -> str:
  """Formats a difference of shares, in points: "+1.2 [-0.3, 2.7]"."""
  return f"{100 * x['mean']:+.1f}" + _ends(x, "+.1f") if x else ""


def _ends(x: dict, form: str) -> str:
  return "" if x["low"] is None else f" [{100 * x['low']:{form}}, {100 * x['high']:{form}}]"


def _plain(value: float | None) -> str:
  return "" if value is None else f"{value:g}"
