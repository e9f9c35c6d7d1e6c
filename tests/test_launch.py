"""The examples in launch/: their commands have flags that exist, and restart what may go on."""

import importlib
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from absl import flags

from grpojax import main  # noqa: F401  (defines the flags)

LAUNCH = Path(__file__).parents[1] / "launch"
JOBSET = (LAUNCH / "jobset.yaml").read_text()
AGAIN = {75, 134, 137, 143}


def quoted(text: str, start: str) -> list[str]:
  """The words of the command that begins with `start` in the comments or the indented blocks of a file."""
  lines = [line.lstrip("# ") for line in re.sub(r"\\\n#?", "", text).splitlines()]
  return next(shlex.split(line) for line in lines if line.startswith(start))


def job() -> dict:
  return yaml.safe_load(JOBSET)["spec"]["replicatedJobs"][0]["template"]["spec"]


def flags_of_main() -> dict[str, list[str]]:
  """Where -> the arguments that it gives python -m grpojax.main."""
  xpk = next(word for word in quoted(JOBSET, "xpk") if word.startswith("--command="))
  pod = job()["template"]["spec"]["containers"][0]["command"]
  assert pod[1:3] == ["-m", "grpojax.main"] and "-m grpojax.main" in xpk
  slurm = quoted((LAUNCH / "slurm.sh").read_text(), "sbatch")
  page = quoted((LAUNCH.parent / "docs" / "tpu.md").read_text(), "./tpu_setup.sh up")
  return {
    "jobset": pod[3:],
    "xpk": xpk.partition("grpojax.main ")[2].split(),
    "slurm": slurm[slurm.index("launch/slurm.sh") + 1 :],
    "tpu.md": page[page.index("--") + 1 :],
  }


@pytest.mark.parametrize("where", ["jobset", "xpk", "slurm", "tpu.md"])
def test_every_flag_of_the_commands_exists(where):
  words = flags_of_main()[where]
  assert {"--config", "--workdir"} <= {word.split("=")[0] for word in words}
  (recipe,) = (word.removeprefix("--config=") for word in words if word.startswith("--config="))
  name, _, scale = recipe.removeprefix("/grpojax/").partition(":")
  assert (LAUNCH.parent / name).is_file()
  config = importlib.import_module(name.removesuffix(".py").replace("/", ".")).get_config(scale or "mini")
  for word in words:
    flag = word.removeprefix("--").split("=")[0]
    node = config
    if flag.startswith("config."):
      for key in flag.split(".")[1:]:
        node = node[key]  # KeyError: no such key
    else:
      assert flag in flags.FLAGS, flag


def test_the_pods_of_a_jobset_are_a_slice_and_start_again_when_they_may():
  pod, failure = job()["template"]["spec"], job()["podFailurePolicy"]["rules"][0]
  chips = eval_topology(pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"])
  assert chips == job()["parallelism"] * pod["containers"][0]["resources"]["limits"]["google.com/tpu"]
  assert job()["parallelism"] == job()["completions"] and job()["backoffLimit"] == 0
  assert failure["onExitCodes"] == {"containerName": "grpojax", "operator": "NotIn", "values": sorted(AGAIN)}
  assert failure["action"] == "FailJob" and os.EX_TEMPFAIL in AGAIN


def eval_topology(text: str) -> int:
  chips = 1
  for side in text.split("x"):
    chips *= int(side)
  return chips


@pytest.mark.parametrize(
  ("codes", "requeues"),
  [((0, 0), False), ((75, 75), True), ((137, 134), True), ((1, 134), False), ((143, 2), False)],
)
def test_slurm_queues_again_what_may_go_on(tmp_path, codes, requeues):
  """Two tasks; srun's own status is the larger one."""
  stubs = {
    "srun": """shift; code=0
      for i in 0 1; do SLURM_PROCID=$i "$@"; own=$?; ((own > code)) && code=$own; done; exit $code""",
    "scontrol": 'echo "$@" >scontrol.log',
    ".venv/bin/python": f'echo "$@" >main.log; codes=({codes[0]} {codes[1]}); exit ${{codes[SLURM_PROCID]}}',
  }
  (tmp_path / ".venv" / "bin").mkdir(parents=True)
  for name, body in stubs.items():
    (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
    (tmp_path / name).chmod(0o755)
  environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
  job = ["bash", LAUNCH / "slurm.sh", "--config=configs/gspo.py", "--workdir=a b"]
  requeued = tmp_path / "scontrol.log"
  assert subprocess.run(job, cwd=tmp_path, env=environment).returncode == max(codes)
  assert (tmp_path / "main.log").read_text() == "-m grpojax train --config=configs/gspo.py --workdir=a b\n"
  assert requeued.exists() == requeues
  if requeues:
    assert requeued.read_text() == "requeue 7\n"
    requeued.unlink()
    subprocess.run(job, cwd=tmp_path, env=environment | {"SLURM_RESTART_COUNT": "20"})
    assert not requeued.exists()


def test_slurm_starts_another_command_where_one_is_named():
  script = (LAUNCH / "slurm.sh").read_text()
  (choice,) = re.findall(r"^\[\[ \$\{1:-\}.*$", script, re.M)
  for given, wanted in ("--config=x --debug", "train --config=x --debug"), ("pipeline r1", "pipeline r1"):
    said = subprocess.run(["bash", "-c", f'{choice}; echo "$@"', "job", *given.split()], capture_output=True)
    assert said.stdout.decode() == f"{wanted}\n"


def test_the_launcher_and_the_examples_agree_on_what_may_go_on():
  script = (LAUNCH.parent / "tpu_setup.sh").read_text()
  (again,) = re.findall(r'^AGAIN="(.*?)"', script, re.M)
  assert set(again.split("|")) == {"0", "lost", *map(str, AGAIN)}
  (slurm,) = re.findall(r"case \$code in ([0-9 |]+)\)", (LAUNCH / "slurm.sh").read_text())
  assert {int(code) for code in slurm.split("|")} == {0, *AGAIN}
