"""results.json -> report.html: the table, what may be said, the curves, and how to have them again."""

import json
from pathlib import Path

from grpojax.runtime import report
from grpojax.tools.study import Study, table
from grpojax.tools.study.plan import Run
from grpojax.tools.study.results import WINDOW


def write(out: Path, study: Study, results: dict, figures: list[dict], first: Run) -> Path:
  """One file that opens anywhere, without a server, scripts or a network."""
  html = (
    report.page(Path(__file__).parent, report.PAGES)
    .get_template("page.html")
    .render(
      title=study.title,
      question=study.question,
      missing=results["missing"],
      head=table.head(study, results),
      body=table.body(study, results),
      notes=table.notes(results),
      verdicts=table.verdicts(results),
      figures=figures,
      window=WINDOW,
      command=results["command"],
      rows=results["rows"],
      config=json.dumps(json.loads(first.config.to_json_best_effort()), indent=1, sort_keys=True),
      palette=report.figures.COLOURS,
    )
  )
  return report.put(out / "report.html", html)
