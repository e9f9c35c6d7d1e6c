"""Writes a run's report.html anew: grpojax report WORKDIR"""

import argparse

from grpojax.runtime import report, storage


def command() -> None:
  """Reads the command line and writes the report beside the run's records."""
  parser = argparse.ArgumentParser(prog="grpojax report", description="Writes WORKDIR/report.html.")
  parser.add_argument("workdir", metavar="WORKDIR")
  workdir = storage.resolve(parser.parse_args().workdir, "WORKDIR")
  with storage.mirror(workdir) as (files, _):
    report.write(files)
  print(workdir / "report.html")
