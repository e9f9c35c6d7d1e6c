"""Scripts that submit runs to an existing scheduler, one submission each; nothing is started here."""

import os
import shlex
from pathlib import Path

from grpojax.runtime import storage
from grpojax.tools.study import chains, plan
from grpojax.tools.study.plan import Run

SLURM = """\
#!/usr/bin/env bash
# {count} runs of {name}, one SLURM job each; launch/slurm.sh has the resources, and requeues them.
# From the repository's root:  bash {path} [--nodes=2 ...]     (options of sbatch, for all)
# When they have ended, `{command}` writes table, figures and report.
set -euo pipefail
"""
XPK = """\
#!/usr/bin/env bash
# {count} runs of {name}, one xpk workload each; launch/jobset.yaml says what IMAGE holds.
#   CLUSTER=... TPU_TYPE=v5p-128 IMAGE=... bash {path}
set -euo pipefail
"""
OF_XPK = (
  '--cluster="$CLUSTER" --tpu-type="$TPU_TYPE" --num-slices=1 --docker-image="$IMAGE" --max-restarts=20 '
  "--restart-on-user-code-failure --termination-grace-period-seconds=300"
)


def write(backend: str, name: str, scripts: Path, runs: list[Run], command: str) -> Path:
  """Writes `<scripts>/slurm.sh` or `xpk.sh`, of the runs that are not done.

  Raises ValueError for runs of xpk that are not in a bucket.
  """
  if backend == "xpk" and not all(storage.in_bucket(run.workdir) for run in runs):
    raise ValueError(f"--backend=xpk needs --out=gs://BUCKET/{name}: a pod's own disk ends with the pod.")
  path = scripts / f"{backend}.sh"
  head, line = (SLURM, _slurm) if backend == "slurm" else (XPK, _xpk)
  text = head.format(count=len(runs), name=name, path=path, command=command)
  path.write_text(text + "".join(f"{line(name, run)}\n" for run in runs), encoding="utf-8")
  os.chmod(path, 0o755)
  return path


def _slurm(name: str, run: Run) -> str:
  words = [*["pipeline"] * chains.is_chain(run.config), *run.arguments]
  return f'sbatch --job-name={_job(name, run)} "$@" launch/slurm.sh {shlex.join(words)}'


def _xpk(name: str, run: Run) -> str:
  command = shlex.quote(plan.command(run, ".venv/bin/python"))
  return f"xpk workload create --workload={_job(name, run)} {OF_XPK} --command={command}"


def _job(name: str, run: Run) -> str:
  """Returns a job name of at most 39 of a-z, 0-9 and "-", as GKE's are, that ends in the seed."""
  row = plan.folder(run.row).replace(".", "p")
  return f"{name.replace('_', '-')[:12]}-{row[:20]}-s{run.seed}"
