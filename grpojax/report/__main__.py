"""python -m grpojax.report WORKDIR"""

import argparse

from grpojax import report, storage

parser = argparse.ArgumentParser(prog="grpojax.report", description="Writes WORKDIR/report.html.")
parser.add_argument("workdir", metavar="WORKDIR")
workdir = storage.place(parser.parse_args().workdir, "WORKDIR")
with storage.mirror(workdir) as (files, _):
  report.write(files)
print(workdir / "report.html")
