"""A run goes on from what it stands on, and says what differs; folders' names prove nothing."""

import json
import re
import shutil

import jax
import numpy as np
import pytest
from toy_run import disturbed, newest, timeless

from grpojax import train
from grpojax.runtime import checkpointer, lock, processes
from grpojax.runtime.timer import Timer
from grpojax.train import checkpoint, manifest

pytestmark = [
  pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # readers that gave up
  pytest.mark.usefixtures("quick_jobs"),
]
HOST = "_CHECKPOINT_METADATA"


def go_on(run, **changes):
  """Another start in the workdir, with other attributes of the job; the records that are left."""
  workdir, job = run
  job.data.stream.set_state({"position": 0})
  train.run(job._replace(workdir=workdir, **changes))
  return timeless(workdir)


def with_config(job, **changes):
  c = job.config.copy_and_resolve_references()
  c.update_from_flattened_dict(changes)
  return job.rollout._replace(config=c), c


def go_on_with(run, **changes):
  rollout, c = with_config(run[1], **changes)
  return go_on(run, config=c, asked=c, rollout=rollout)


def changed_host(workdir, step, change, digest=False):
  """Changes the plain data of a checkpoint on disk; with `digest` its digest, too."""
  file = workdir / "checkpoints" / str(step) / HOST
  whole = json.loads(file.read_text())
  kept = whole["custom_metadata"]
  change(kept)
  if digest:
    kept.pop("sha256")
    kept["sha256"] = checkpointer._digest(kept)
  file.write_text(json.dumps(whole))


# One owner.


def test_a_second_start_is_told_who_runs_there_and_changes_nothing(finished, tmp_path):
  whole, job = finished
  workdir, refused = tmp_path / "run", []

  def second(_):
    before = {file.name: file.read_bytes() for file in workdir.iterdir() if file.is_file()}
    with pytest.raises(ValueError, match=r"has a run that goes on: process \d+ on .* since 20") as error:
      train.run(job._replace(workdir=workdir, rollout=job.rollout._replace(timer=Timer())))
    refused.append(str(error.value))
    assert before == {file.name: file.read_bytes() for file in workdir.iterdir() if file.is_file()}

  assert disturbed(job, workdir, 3, second) and refused
  assert timeless(workdir) == timeless(whole)


def test_a_workdir_that_is_held_is_not_even_claimed(run):
  workdir, _ = run
  before = (workdir / "config.json").read_bytes()
  with lock.hold(workdir / ".lock", "another"), pytest.raises(ValueError, match="has a run that goes on"):
    go_on_with(run, steps=9)
  assert (workdir / "config.json").read_bytes() == before


# Checkpoints that have gone, or have other names.


def test_records_without_a_checkpoints_folder_are_no_new_run(run):
  workdir, _ = run
  records = (workdir / "metrics.jsonl").read_bytes()
  shutil.rmtree(workdir / "checkpoints")
  for _ in range(2):
    with pytest.raises(ValueError, match=r"checkpoints has gone, and the workdir has records; bring .* back"):
      go_on(run)
  (workdir / "checkpoints").mkdir()  # a disk that is not mounted
  with pytest.raises(ValueError, match=r"has saved step 4, and .*checkpoints is empty; bring"):
    go_on(run)
  assert (workdir / "metrics.jsonl").read_bytes() == records


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(run, finished):
  workdir, _ = run
  shutil.rmtree(workdir / "checkpoints")
  (workdir / "checkpoints").mkdir()
  note = json.loads((workdir / "run.json").read_text())
  (workdir / "run.json").write_text(json.dumps(note | {"saved": 0}))
  assert go_on(run) == timeless(finished[0])


def test_an_older_checkpoint_than_was_saved_is_said(run, capsys):
  workdir, _ = run
  shutil.rmtree(workdir / "checkpoints" / "4")
  go_on(run)
  assert "had saved step 4; it goes on from 2, the newest" in capsys.readouterr().out


def rename(workdir, *names):
  for old, new in names:
    (workdir / "checkpoints" / old).rename(workdir / "checkpoints" / new)


NAMES = {
  "higher": [("4", "9")],
  "exchanged": [("2", "x"), ("4", "2"), ("x", "4")],
  "one up": [("4", "6"), ("2", "4")],
  "on its way": [("4", f"4{checkpointer.MOVING}")],
}


@pytest.mark.parametrize("how", NAMES)
def test_a_checkpoint_under_another_name_gets_its_own_again(how, run):
  workdir, job = run
  rename(workdir, *NAMES[how])
  _, host = newest(workdir, job)
  assert host["step"] == 4 and checkpointer.steps(workdir) == [2, 4]
  assert not (workdir / "damaged").exists()


def test_a_copy_under_another_name_is_set_aside_and_saving_goes_on(run):
  workdir, _ = run
  shutil.copytree(workdir / "checkpoints" / "4", workdir / "checkpoints" / "9")
  go_on_with(run, steps=6)
  assert checkpointer.steps(workdir) == [2, 4, 6]
  assert [one.name for one in (workdir / "damaged").iterdir()] == ["9"]


def test_a_link_is_refused_at_the_start_and_not_when_it_is_to_be_deleted(run, tmp_path):
  workdir, _ = run
  (workdir / "checkpoints" / "2").rename(tmp_path / "elsewhere")
  (workdir / "checkpoints" / "2").symlink_to(tmp_path / "elsewhere")
  with pytest.raises(ValueError, match=r"checkpoints/2 is a link, .* put the folder itself in its place"):
    go_on(run)


def test_a_save_that_orbax_leaves_out_is_an_error(run):
  workdir, job = run
  checkpoints = checkpointer.open_checkpoints(workdir, 3)
  tree, host = checkpointer.latest(checkpoints, *checkpoint.tree_layout(job))
  with pytest.raises(OSError, match="step 3 was not saved, because of a folder of a later step"):
    checkpointer.save(checkpoints, 3, tree, host | {"step": 3})
  checkpoints.close()


# One digest for all plain data.


def move_stream(kept):
  kept["host"]["stream"]["position"] += 1


PLAIN = {
  "the stream's position": (move_stream, False, "not what was saved"),
  "the step": (lambda kept: kept["host"].update(step=7), False, "not what was saved"),
  "a checksum": (lambda kept: kept["digests"].popitem(), False, "not what was saved"),
  "no digest": (lambda kept: kept.pop("sha256"), False, "not what was saved"),
  "another type": (lambda kept: kept.update(host=[1, 2]), True, "TypeError"),
}


@pytest.mark.parametrize("what", PLAIN)
def test_plain_data_that_was_changed_is_damage(what, run, capsys):
  workdir, job = run
  change, digest, said = PLAIN[what]
  changed_host(workdir, 4, change, digest)
  assert newest(workdir, job)[1]["step"] == 2
  assert said in capsys.readouterr().out


# What a run stands on.


def test_a_checkpoint_of_another_run_is_refused_unless_it_is_allowed(run, capsys):
  """The folder of a run with the same config, from elsewhere."""
  workdir, _ = run
  note = json.loads((workdir / "run.json").read_text())
  (workdir / "run.json").write_text(json.dumps(note | {"id": "other"}))
  with pytest.raises(ValueError, match=r"4 differs in run .* -> other.*allow_changed=run") as error:
    go_on(run)
  assert str(error.value).count("\n") == 0
  go_on_with(run, **{"checkpoint.allow_changed": "run"})
  assert "going on from checkpoint 4, which differs in run" in capsys.readouterr().out


def test_a_checkpoint_of_another_seed_is_refused(run):
  workdir, _ = run
  (workdir / "config.json").unlink()  # which would have refused it before
  with pytest.raises(ValueError, match=r"checkpoint 4 differs in config \(seed: 0 -> 1\); bring"):
    go_on_with(run, seed=1)


def test_other_data_is_refused(run):
  _, job = run
  train_split = job.data.train
  other = [train_split.records[0] | {"answer": "another"}, *train_split.records[1:]]
  data = job.data._replace(train=train_split._replace(records=other))
  with pytest.raises(ValueError, match=r"differs in data \(train: .* rows \(.*\) -> .* rows"):
    go_on(run, rollout=job.rollout._replace(data=data))


def test_what_must_be_the_same_and_what_is_said(finished, capsys, monkeypatch):
  _, job = finished
  saved = manifest.describe(job, manifest.Run("id", "now"))
  assert json.loads(json.dumps(saved)) == saved
  manifest.compare(saved, saved, job.config, 4)
  assert not capsys.readouterr().out
  with pytest.raises(ValueError, match=r"differs in devices .*tpu: v5p.*allow_changed=devices"):
    manifest.compare(saved, saved | {"devices": "tpu: v5p"}, job.config, 4)
  with pytest.raises(ValueError, match=r"differs in devices .*allow_changed=all"):
    manifest.compare(saved, saved | {"devices": "tpu: v5p", "run": "other"}, job.config, 4)
  monkeypatch.setattr(processes, "code", lambda: {"grpojax": "0 (source other)", "jax": "9"})
  manifest.compare(saved, manifest.describe(job, manifest.Run("id", "now")), job.config, 4)
  said = capsys.readouterr().out
  assert "the code has changed since checkpoint 4: grpojax: " in said and "jax: " in said


def test_records_that_are_lost_in_the_middle_are_said(run, capsys):
  workdir, _ = run
  kept = [line for line in (workdir / "metrics.jsonl").read_text().splitlines() if '"step": 2,' not in line]
  (workdir / "metrics.jsonl").write_text("\n".join(kept) + "\n")
  go_on(run)
  assert "note: metrics.jsonl has lost the records of 1 steps (2)" in capsys.readouterr().out


def test_a_record_that_was_changed_is_said(run, capsys):
  workdir, _ = run
  file = workdir / "metrics.jsonl"
  go_on(run)
  assert "has changed since" not in capsys.readouterr().out
  file.write_text(re.sub(r'"reward": (-?)\d', r'"reward": \g<1>7', file.read_text(), count=1))
  go_on(run)
  said = capsys.readouterr().out
  assert "note: metrics.jsonl has changed since checkpoint 4: a record of it is another, or lost" in said
  assert "completions.jsonl has changed" not in said


def test_weights_under_adapters_are_those_of_the_checkpoint(finished):
  job = finished[1]
  weights = {"embedding": jax.numpy.arange(8.0), "final_norm": jax.numpy.ones(4)}
  saved = manifest.checksums.of_leaves(weights)
  manifest.compare_frozen(saved, weights, job.config, 4)
  bits = np.asarray(weights["embedding"]).view(np.uint32).copy()
  bits[3] ^= 1
  other = weights | {"embedding": jax.numpy.asarray(bits.view(np.float32))}
  with pytest.raises(ValueError, match=r"differs in frozen \(frozen/ of the workdir holds other weights: e"):
    manifest.compare_frozen(saved, other, job.config, 4)
