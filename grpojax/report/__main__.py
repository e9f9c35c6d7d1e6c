"""python -m grpojax.report WORKDIR"""

import argparse

from grpojax import report, storage

parser = argparse.ArgumentParser(prog="grpojax.report", description="Writes WORKDIR/report.html.")
parser.add_argument("workdir", metavar="WORKDIR")
workdir = storage.place(parser.parse_args().workdir, "WORKDIR")
files, push = storage.mirror(workdir)
report.write(files)
push()
print(workdir / "report.html")
