"""What a run says of itself: why nothing is learned, what a stop waits for, what an evaluation found."""

from types import SimpleNamespace

import pytest

from grpojax.runtime import metrics
from grpojax.train import banner, step_log
from grpojax.train.session import Session

NONE_KEPT = {
  "reward": float("nan"), "accuracy": float("nan"), "entropy": 0.0, "update/skipped": 0.0,
  "update/nonfinite": 0.0, "update/nonfinite_steps": 0.0, "grad_norm": 0.0,
}  # fmt: skip
DRAWN = {
  "dynamic_sampling/keep_rate": 0.0, "dynamic_sampling/tries": 4, "drawn/reward": 0.1, "drawn/accuracy": 0.0,
  "drawn/completions/mean_length": 48.0, "drawn/completions/clipped_ratio": 1.0, "rewards/graded": 64,
}  # fmt: skip


def a_job(workdir, steps):
  rollout = SimpleNamespace(timer=None)
  return SimpleNamespace(config=SimpleNamespace(steps=steps), workdir=workdir, rollout=rollout)


def test_a_short_run_that_learned_nothing_ends_with_a_sentence(tmp_path, capsys):
  with metrics.Writer(tmp_path) as writer:
    for step in (1, 2):
      writer.write("train", step, NONE_KEPT | DRAWN)
  session = Session(a_job(tmp_path, 2))
  session.files, session.first, session.upload = tmp_path, 0, lambda: None
  banner.finish(session.job, session, 2)
  said = capsys.readouterr().out
  assert "Nothing is being learned in steps 1 to 2: no group had contrast in 8 tries" in said
  assert "Of 128 completions 100 % were wrong and 100 % were truncated" in said


def test_a_cause_is_told_once(capsys):
  records, told = [NONE_KEPT | DRAWN | {"step": step} for step in (1, 2)], set()
  step_log.tell(records, told)
  step_log.tell(records, told)
  assert capsys.readouterr().out.count("no group had contrast") == 1


def test_a_step_shows_what_was_drawn(capsys, tmp_path):
  guard = dict(nonfinite=3, failed_rewards=0.0, stop_mismatch=0.0, warn_mismatch=0.0)
  config = SimpleNamespace(staleness=0, guard=SimpleNamespace(**guard))
  writer = SimpleNamespace(write=lambda *_: None, completions=lambda *_: None)
  times = {"time/step": 1.0, "time/rollout": 0.5, "time/update": 0.5}
  metrics = {name: x for name, x in NONE_KEPT.items() if not name.startswith(("update", "grad", "entropy"))}
  updates = [{name: x for name, x in NONE_KEPT.items() if name not in metrics}]
  pending = step_log.PendingRecord(1, updates, metrics | DRAWN | {"num_tokens": 99}, [], times, None)
  step_log.write(config, tmp_path, writer, SimpleNamespace(disable=True, total=2), pending)
  assert capsys.readouterr().out == "step 1/2 reward 0.1 acc 0 length 48 198 tok/s\n"


@pytest.mark.parametrize(("saved", "lost"), [(10, "from step 10."), (0, "from the beginning, as nothing")])
def test_a_stop_says_what_it_waits_for_and_what_a_second_one_loses(tmp_path, saved, lost):
  session = Session(a_job(tmp_path, 20))
  session.step, session.step_seconds, session.saved = 12, 18.24, saved
  said = session._waits_for()
  assert said.startswith("Stopping after step 12: waiting until it is done (the last took 18.2 s) and saved.")
  assert f"Once more ends at once, and the same command then goes on {lost}" in said
