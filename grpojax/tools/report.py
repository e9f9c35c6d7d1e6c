"""Writes a run's report.html anew: grpojax report WORKDIR [OTHER...]"""

import argparse
import contextlib

from grpojax.runtime import report, storage


def command() -> None:
  """Reads the command line and writes the report beside the run's records."""
  parser = argparse.ArgumentParser(prog="grpojax report", description="Writes WORKDIR/report.html.")
  parser.add_argument("workdir", metavar="WORKDIR")
  beside = "runs whose curves are on the same charts"
  parser.add_argument("others", metavar="OTHER", nargs="*", default=[], help=beside)
  flags = parser.parse_args()
  workdir, *others = (storage.resolve(name, "WORKDIR") for name in (flags.workdir, *flags.others))
  with contextlib.ExitStack() as stack:
    files = stack.enter_context(storage.mirror(workdir))[0]
    report.write(files, [stack.enter_context(storage.mirror(other))[0] for other in others])
  print(workdir / "report.html")
