"""python -m grpojax.report WORKDIR"""

import argparse

from grpojax import report

parser = argparse.ArgumentParser(prog="grpojax.report", description="Writes WORKDIR/report.html.")
parser.add_argument("workdir", metavar="WORKDIR")
print(report.write(parser.parse_args().workdir))
