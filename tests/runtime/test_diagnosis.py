"""Sentences on why nothing is learned: each cause alone, and silence where a run learns."""

import re

import pytest

from grpojax.runtime import diagnosis

LEARNS = {
  "kind": "train", "reward": 0.4, "accuracy": 0.4, "reward_std": 0.3, "rewards/accuracy/std": 0.5,
  "frac_reward_zero_std": 0.5, "advantage/min": -1.0, "advantage/max": 1.0,
  "completions/clipped_ratio": 0.1, "completions/mean_length": 40.0, "rewards/graded": 16,
  "rewards/answered": 15, "learning_rate": 1e-4,
  "update/skipped": 0.0, "update/nonfinite": 0.0, "grad_norm": 0.7, "kl": 0.01,
  "ppo_kl": 1e-4,
}  # fmt: skip
FLAT = {"frac_reward_zero_std": 1.0, "reward_std": 0.0, "advantage/min": 0.0, "advantage/max": 0.0}
FLAT |= {"grad_norm": 0.0}
WRONG = FLAT | {"reward": 0.0, "accuracy": 0.0, "rewards/accuracy/std": 0.0}
NONE_KEPT = {
  "dynamic_sampling/keep_rate": 0.0, "dynamic_sampling/tries": 4, "reward": None, "accuracy": None,
  "completions/clipped_ratio": None, "drawn/accuracy": 0.0, "drawn/completions/clipped_ratio": 0.625,
  "rewards/graded": 64, "grad_norm": 0.0,
}  # fmt: skip
SKIPPED = {"update/skipped": 1.0}


def steps(change, count=3):
  return [LEARNS | change | {"step": step} for step in range(4, 4 + count)]


def test_a_run_that_learns_is_not_disturbed():
  assert diagnosis.sentences(steps({})) == {}
  assert diagnosis.sentences([]) == {}


@pytest.mark.parametrize(
  ("change", "cause", "numbers"),
  [
    (WRONG, "no contrast", "in steps 4 to 6: in no group did rewards differ.* Of 48 .* 100 % were wrong"),
    (FLAT | {"reward": 1.0, "accuracy": 1.0}, "no contrast", "0 % were wrong and 10 % were truncated"),
    (NONE_KEPT, "no contrast", r"12 tries of dynamic .* Of 192 .* 100 % were wrong and 62\.5 % were"),
    (FLAT | {"reward": 0.3, "rewards/accuracy/std": 0.0}, "constant", r"same reward, 0\.3\."),
    ({"learning_rate": 0.0}, "learning rate", "learning rate was 0"),
    (SKIPPED | {"update/nonfinite": 1.0, "grad_norm": float("nan")}, "skipped", "was not finite"),
    (SKIPPED, "skipped", r"mean norm 0\.7\) counts as a spike"),
    ({"grad_norm": 0.0}, "no gradient", "exactly 0"),
    ({"completions/clipped_ratio": 1.0}, "truncated", "cut before it ended, at 40 tokens"),
    ({"rewards/answered": 0}, "no answer", "no answer was found in any of 48 completions"),
    ({"kl": 2.5}, "kl", r"from the reference was at least 2\.5 nats a token"),
    ({"ppo_kl": 1.5}, "kl", "from the policy that sampled was at least 1.5"),
  ],
)
def test_each_cause_has_its_sentence(change, cause, numbers):
  found = diagnosis.sentences(steps(change))
  assert list(found) == [cause]
  assert re.search(numbers, found[cause]), found[cause]
  if cause not in diagnosis.SIGNS:
    assert found[cause].startswith("Nothing is being learned in steps 4 to 6: ")
  one_other = [*steps(change), LEARNS | {"step": 7}]
  assert diagnosis.sentences(one_other) == {}  # once it no longer holds, it is not said


def test_causes_that_come_together_are_all_said():
  cut = WRONG | {"completions/clipped_ratio": 1.0, "rewards/answered": 0}
  assert list(diagnosis.sentences(steps(cut))) == ["no contrast", "truncated", "no answer"]


def test_a_baseline_beyond_the_group_needs_no_contrast_in_it():
  """As SPO's, whose groups have one completion."""
  moved = FLAT | {"advantage/min": -0.4, "advantage/max": 0.6, "grad_norm": 1.0}
  assert diagnosis.sentences(steps(moved)) == {}


def test_a_share_that_is_not_quite_all_does_not_read_as_all():
  nearly = WRONG | {"completions/clipped_ratio": 0.9999}
  assert "more than 99.9 % were truncated" in diagnosis.sentences(steps(nearly))["no contrast"]


def test_the_sentences_on_a_run_are_about_its_last_steps():
  records = [*steps(WRONG, 9), {"kind": "eval", "step": 12}]
  assert [record["step"] for record in diagnosis.last(records)] == [8, 9, 10, 11, 12]
