"""report.html of results.json: the table, the conclusions, the curves, and the commands of the runs."""

import json
from pathlib import Path

from grpojax.runtime import report
from grpojax.tools.study import Study, table
from grpojax.tools.study.plan import Run
from grpojax.tools.study.results import WINDOW


def write(out: Path, study: Study, results: dict, figures: list[dict], first: Run) -> Path:
  """Writes one file that opens anywhere, without a server, scripts or a network."""
  html = (
    report.page(Path(__file__).parent, report.PAGES)
    .get_template("study.html")
    .render(
      title=study.title,
      question=study.question,
      missing=results["missing"],
      head=table.head(study, results),
      body=table.body(study, results),
      notes=table.notes(study, results),
      verdicts=table.verdicts(study, results),
      sections=study.conclude(results),
      figures=figures,
      window=WINDOW,
      command=results["command"],
      rows=results["rows"],
      config=json.dumps(json.loads(first.config.to_json_best_effort()), indent=1, sort_keys=True),
      palette=report.figures.COLOURS,
    )
  )
  return report.put(out / "report.html", html)
