"""tpu_setup.sh against a gcloud that keeps its state in a folder and fails as the real one does.

The workers are folders of this machine: what is sent to them really runs there, with a Python that only
pretends to install and to train.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAKES = ROOT / "tests" / "fakes"
SCRIPTS = ("tpu_setup.sh", "launch/worker.sh", "launch/slurm.sh")
RUN = ("--", "--config=configs/gspo.py", "--workdir=gs://bucket/a run")


class Cloud:
  """A repository with the scripts, a fake cloud, and the means to look at both."""

  def __init__(self, folder: Path):
    self.repo, self.fake, self.logs = folder / "repo", folder / "cloud", folder / "logs"
    (self.repo / "launch").mkdir(parents=True)
    self.fake.mkdir()
    for name in SCRIPTS[:2]:
      shutil.copy(ROOT / name, self.repo / name)
    self.bin = folder / "bin"
    shutil.copytree(FAKES, self.bin)
    gcloud = self.bin / "gcloud"  # the Python of the tests, which starts sooner than a shim
    gcloud.write_text(gcloud.read_text().replace("/usr/bin/env -S python3", sys.executable))
    git = ["git", "-C", self.repo, "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
      subprocess.run([*git, *words], check=True)

  def plan(self, ends="0", **wrong):
    """What goes wrong, by kind, in turn; and how each start of the run ends."""
    (self.fake / "plan.json").write_text(json.dumps(wrong))
    (self.fake / "ends").write_text("\n".join(ends.split()) + "\n")

  def __call__(self, *words, code=0, **environment):
    run = [self.repo / "tpu_setup.sh", *words]
    env = self.environment() | environment
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=60, cwd=self.logs.parent)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr

  def environment(self):
    own = {k: v for k, v in os.environ.items() if not k.startswith("TPU_")}
    own |= {"PATH": f"{self.bin}:{own['PATH']}", "FAKE": str(self.fake), "TPU_LOGS": str(self.logs)}
    return own | {"TPU_POLL": "0", "TPU_TYPE": "v5litepod-16", "TPU_ZONE": "us-west4-a"}

  def calls(self, *kind):
    path = self.fake / "calls"
    calls = [json.loads(line)[2:] for line in path.read_text().splitlines()] if path.exists() else []
    return [call for call in calls if tuple(call[: len(kind)]) == kind]

  def lines(self, name):
    path = self.fake / name
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def cloud(tmp_path):
  cloud = Cloud(tmp_path)
  cloud.plan()
  yield cloud
  for pid in cloud.fake.glob("w*/grpojax-run/pid"):
    subprocess.run(["kill", "-KILL", "--", f"-{pid.read_text().strip()}"], stderr=subprocess.DEVNULL)


def test_up_goes_from_nothing_to_a_finished_run_and_a_second_time_makes_nothing_twice(cloud):
  said = cloud("up", *RUN)
  (create,) = cloud.calls("tpu-vm", "create")
  assert create[2:] == [
    "grpojax",
    "--version=v2-alpha-tpuv5-lite",
    "--accelerator-type=v5litepod-16",
    "--zone=us-west4-a",
    "--quiet",
  ]
  assert cloud.lines("starts.0") == ["-m|grpojax.main|--config=configs/gspo.py|--workdir=gs://bucket/a run"]
  assert len(cloud.lines("installs")) == 2  # one a worker
  assert all("jax[tpu] --editable .[gcs]" in line for line in cloud.lines("installs"))
  assert "every worker sees 16 devices" in said and "the run on grpojax: finished" in said
  for worker in "01":
    assert (cloud.logs / "grpojax" / f"{worker}.log").read_text() == "step 1/9\nlast words\n"
  cloud("up", *RUN)
  assert len(cloud.calls("tpu-vm", "create")) == 1 and len(cloud.lines("installs")) == 2
  assert len(cloud.calls("tpu-vm", "scp")) == 1


@pytest.mark.slow
def test_a_run_that_goes_on_is_watched_and_left_alone_then_stopped(cloud):
  cloud.plan(ends="long long")
  for command in ("create", "install", "start", "start"):
    cloud(command, *RUN)
  assert len(cloud.lines("starts.0")) == 1
  assert "worker 1:  step 1/9  run running" in cloud("status")
  up = [cloud.repo / "tpu_setup.sh", "up", "--poll=1", *RUN]
  watching = subprocess.Popen(up, stdout=subprocess.PIPE, text=True, env=cloud.environment())
  assert "step 1/9" in watching.stdout.readline() + watching.stdout.readline()
  cloud("stop")
  assert watching.wait(20) == 75  # and it is not started again
  assert "the run on grpojax: stopped" in watching.stdout.read()
  assert len(cloud.lines("starts.0")) == 1 and len(cloud.calls("tpu-vm", "scp")) == 1
  assert "Stopped after step 3 and saved" in (cloud.logs / "grpojax" / "0.log").read_text()
  cloud("start", *RUN)
  assert "run running" in cloud("status")


@pytest.mark.slow
def test_a_spot_slice_from_the_queue_that_is_taken_away_comes_back_and_the_same_run_is_started_again(cloud):
  waiting = ["WAITING_FOR_RESOURCES"] * 2 + ["ACTIVE"]
  cloud.plan(ends="long 0", queue=waiting + waiting, preempt=[False, True])
  said = cloud("up", "--spot", "--queued", "--name=mine", *RUN)
  assert said.count("mine: WAITING_FOR_RESOURCES") == 2 and "mine: GONE" in said
  creates = cloud.calls("queued-resources", "create")
  assert len(creates) == 2 and {"--spot", "--node-id=mine"} <= set(creates[0])
  (delete,) = cloud.calls("queued-resources", "delete")
  assert "--force" in delete
  assert len(cloud.lines("starts.0")) == 2 and len(set(cloud.lines("starts.0"))) == 1
  assert len(cloud.lines("installs")) == 4  # its disks were empty
  assert "starting again (1 of 10)" in said and "finished" in said


@pytest.mark.slow
def test_a_run_that_may_go_on_is_started_again_where_it_is(cloud):
  """Asked to stop by the machine, terminated, killed, aborted for want of a peer."""
  cloud.plan(ends="75 143 137 134 0")
  (cloud.fake / "ends.1").write_text("75\n75\n0\n137\n0\n")
  cloud("up", *RUN)
  assert len(cloud.lines("starts.0")) == 5 and len(cloud.calls("tpu-vm", "create")) == 1


def test_a_run_that_fails_is_not_started_again_and_the_worker_that_failed_is_shown(cloud):
  cloud.plan(ends="75")  # worker 0 only lost its peer
  (cloud.fake / "ends.1").write_text("1\n")
  said = cloud("up", *RUN, code=1)
  assert len(cloud.lines("starts.0")) == 1
  assert "error: worker 1 failed:\n  step 1/9\n  last words" in said


@pytest.mark.slow
def test_runs_that_end_early_are_started_again_a_few_times_only_unless_they_last(cloud):
  cloud.plan(ends="75 75 75 75 0")
  assert "3 runs in a row ended early" in cloud("up", "--retries=2", *RUN, code=1)
  assert len(cloud.lines("starts.0")) == 3
  script = cloud.repo / "tpu_setup.sh"
  script.write_text(script.read_text().replace("LASTING=600", "LASTING=0"))
  cloud("up", "--retries=1", *RUN)  # two more
  assert len(cloud.lines("starts.0")) == 5


@pytest.mark.slow
def test_a_full_zone_is_asked_again_a_few_times_only(cloud):
  cloud.plan(create=["stockout", "stockout"])
  assert cloud("create").count("not to be had now") == 2
  cloud("delete")
  cloud.plan(create=["stockout"] * 9)
  assert "could not be had" in cloud("create", "--retries=2", code=1)
  assert len(cloud.calls("tpu-vm", "create")) == 3 + 3


@pytest.mark.parametrize(
  ("wrong", "sentence"), [("quota", "no quota for v5litepod-16"), ("permission", "PERMISSION_DENIED")]
)
def test_what_no_patience_cures_is_said_at_once(cloud, wrong, sentence):
  cloud.plan(create=[wrong] * 9)
  assert sentence in cloud("up", *RUN, code=1)
  assert len(cloud.calls("tpu-vm", "create")) == 1


@pytest.mark.slow
def test_a_queue_that_refuses_is_joined_again(cloud):
  cloud.plan(queue=["FAILED", "WAITING_FOR_RESOURCES", "ACTIVE"])
  cloud("create", "--queued")
  assert len(cloud.calls("queued-resources", "create")) == 2
  assert len(cloud.calls("queued-resources", "delete")) == 1


def test_a_slice_that_somebody_else_has_just_made_is_taken_and_another_kind_is_refused(cloud):
  cloud.plan(create=["exists"])
  cloud("create")
  said = cloud("create", "--type=v5p-32", code=1)
  assert "grpojax is a v5litepod-16, not a v5p-32" in said and not cloud.calls("tpu-vm", "delete")


@pytest.mark.slow
def test_connections_that_fail_are_made_again(cloud):
  cloud.plan(ssh=[1, None, 0, 1], scp=[True], describe=["network"])
  said = cloud("up", *RUN)
  assert said.count("1 of 2 workers answered; asking again") == 3
  assert len(cloud.lines("starts.0")) == 1 and len(cloud.calls("tpu-vm", "scp")) == 2
  cloud.plan(ssh=[1] * 9)
  assert "not all workers of grpojax answer" in cloud("status", code=1)
  cloud.plan(describe=["network"] * 9)
  assert "gcloud cannot tell about grpojax" in cloud("status", code=1)


@pytest.mark.slow
def test_a_slice_that_is_gone_before_its_run_has_started_comes_back(cloud):
  cloud("create")
  cloud("install")
  node = json.loads((cloud.fake / "node.json").read_text())
  (cloud.fake / "node.json").write_text(json.dumps(node | {"state": "PREEMPTED"}))
  assert "no slice grpojax to speak to: GONE" in cloud("start", *RUN, code=76)
  cloud("up", *RUN)
  assert len(cloud.calls("tpu-vm", "delete")) == 1 and len(cloud.calls("tpu-vm", "create")) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "seen"), [("12", "12"), ("0", "no")])
def test_a_worker_that_lacks_devices_is_named_before_anything_runs(cloud, devices, seen):
  (cloud.fake / "devices.1").write_text(devices)
  said = cloud("up", *RUN, code=1)
  assert f"worker 1 sees {seen} devices, a v5litepod-16 has 16" in said
  assert ("RuntimeError" in said) == (seen == "no") and not cloud.lines("starts.0")


@pytest.mark.parametrize(
  ("kind", "devices", "image"),
  [
    ("v5p-32", 16, "v2-alpha-tpuv5"),
    pytest.param("v4-16", 8, "tpu-ubuntu2204-base", marks=pytest.mark.slow),
    pytest.param("v6e-8", 8, "v2-alpha-tpuv6e", marks=pytest.mark.slow),
    pytest.param("v2-8", 8, "tpu-ubuntu2204-base", marks=pytest.mark.slow),
  ],
)
def test_devices_and_image_follow_from_the_type(cloud, kind, devices, image):
  (cloud.fake / "devices.0").write_text(str(devices))
  for command in ("create", "install", "check"):
    cloud(command, TPU_TYPE=kind, FAKE_WORKERS="1")
  assert f"--version={image}" in cloud.calls("tpu-vm", "create")[0]


@pytest.mark.slow
def test_an_install_that_fails_says_why_and_is_tried_again_by_the_next_command(cloud):
  cloud("create")
  (cloud.fake / "pip_fails").touch()
  said = cloud("install", code=1)
  assert "worker 0 could not install:\n  ERROR: No matching distribution found" in said
  (cloud.fake / "pip_fails").unlink()
  cloud("install")
  assert len(cloud.calls("tpu-vm", "scp")) == 2


def test_delete_takes_the_place_in_the_queue_too_and_may_be_repeated(cloud):
  cloud("create", "--queued")
  cloud("delete")
  cloud("delete")
  assert not (cloud.fake / "node.json").exists() and not (cloud.fake / "queue.json").exists()
  assert len(cloud.calls("queued-resources", "delete")) == 1 and not cloud.calls("tpu-vm", "delete")


@pytest.mark.parametrize(
  ("words", "sentence"),
  [
    (["op"], "'op' is no command"),
    (["up", "--spott"], "'--spott' is no option"),
    (["up", "--", "--config=configs/gspo.py", "--workdir=runs/mine"], "--workdir=gs://BUCKET/RUN"),
    (["create", "--type=v9-8"], "--type=v9-8 is of no known kind"),
    (["create", "--type="], "which slice?"),
    (["start"], "what shall run?"),
  ],
)
def test_mistakes_are_said_in_one_sentence_before_anything_is_asked_of_the_cloud(cloud, words, sentence):
  said = cloud(*words, code=1)
  assert sentence in said and len(said.splitlines()) == 1 and not cloud.calls()


def test_a_dry_run_prints_every_command_and_runs_none(cloud):
  said = cloud("up", "--dry_run", "--spot", "--queued", *RUN)
  assert not cloud.calls() and not cloud.logs.exists()
  for command in ("queued-resources create", "tpu-vm scp", "launch/worker.sh start"):
    assert command in said
  assert "--workdir=gs://bucket/a\\ run" in said and "No such file" not in said


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcloud"), reason="needs gcloud, whose own parser reads the commands")
def test_gcloud_itself_knows_the_commands_and_their_flags(cloud, tmp_path):
  said = ""
  for words in (["up", "--queued", "--spot"], ["create", "--spot"], ["delete"], ["status"], ["stop"]):
    said += cloud(*words, "--dry_run", "--project=mine", *RUN)
  commands = sorted({line for line in said.splitlines() if line.startswith("gcloud")})
  assert len(commands) > 8
  (tmp_path / "commands").write_text("\n".join(["```sh", *commands, "```", ""]))
  lint = ["gcloud", "meta", "lint-gcloud-commands", f"--commands-text-file={tmp_path / 'commands'}"]
  environment = os.environ | {"CLOUDSDK_CONFIG": str(tmp_path / "config")}
  done = subprocess.run(lint, env=environment, capture_output=True, text=True)
  seen = json.loads(done.stdout)
  assert len(seen) == len(commands), done.stderr
  assert all(one["success"] for one in seen), [one["error_message"] for one in seen]


def test_here_installs_once_and_runs_its_arguments(cloud):
  python = {"GRPOJAX_VENV": "own", "WORKER": "0"}
  assert "16" in cloud("here", "--cpu", "python", "-c", "import jax; jax.distributed", **python)
  cloud("here", "--cpu", "true", **python)
  assert cloud.lines("installs") == ["pip install --quiet --editable ."]
  assert (cloud.repo / "own" / "installed").exists()


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_are_clean(script):
  shellcheck = shutil.which("shellcheck") or shutil.which("shellcheck", path=Path(sys.executable).parent)
  if not shellcheck:
    pytest.skip("needs shellcheck: pip install -e '.[test]'")
  done = subprocess.run([shellcheck, ROOT / script], capture_output=True, text=True)
  assert done.returncode == 0, done.stdout
