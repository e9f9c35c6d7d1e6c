"""The tables of `grpojax port` against what the peers computed (benchmarks/results/conformance.json).

A peer's arguments of a case become our flags, and our objective then gives the peer's own loss and gradient,
from the rewards on: its epsilons, denominators and weights, where they are other than the case's, too.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.tree_util import Partial
from objective_cases import given
from objective_cases_2026 import batch_of as batch_2026

from grpojax import objective as lib
from grpojax.config import commandline
from grpojax.tools.port import command
from grpojax.tools.port.translate import translate

ROOT = Path(__file__).parents[2]
RECORDS = json.loads((ROOT / "benchmarks" / "results" / "conformance.json").read_text())
CASES = {
  case["name"]: case
  for path in (ROOT / "conformance" / "cases").glob("*.json")
  for case in json.loads(path.read_text())
}
LEAST = dict(trl={}, verl={"algorithm.adv_estimator": "grpo"}, tunix={})
PADDED = "Dr. GRPO's constant is the padded width, over rows with a token"
REMAINS = {  # what no flag makes up for; `port` says the most of it under "the same word, another formula"
  ("trl", "gmpo_toyA"): "GMPO is a trainer of its own, and no key of GRPOConfig",
  ("trl", "gmpo_toyB"): "GMPO is a trainer of its own, and no key of GRPOConfig",
  ("trl", "grpo_padding_hazard"): "masked after exp, which is NaN for infinite log-probs",
  ("tunix", "grpo_padding_hazard"): "masked after exp, which is NaN for infinite log-probs",
  ("trl", "vespo_k1_lambda0_is_sequence_is"): "lambda is at least 1e-4",
  ("trl", "gdpo_unscored"): "a completion without any reward stays in the denominators",
  ("tunix", "combo_gspo_token_gigpo_drgrpo"): PADDED,
  ("tunix", "combo_gspo_token_gigpo_drgrpo_unclipped"): PADDED,
  ("tunix", "combo_grpo_drgrpo_dapo_toyB"): PADDED,
  ("tunix", "combo_rloo_drgrpo_toyB"): PADDED,
  ("tunix", "combo_grpo_gspo_drgrpo_toyB"): PADDED,
  ("tunix", "dr_grpo_toyA"): PADDED,
  ("tunix", "dr_grpo_toyB"): PADDED,
  ("tunix", "ema_baseline_mix_toyB"): PADDED,
  ("tunix", "kl_k1_in_reward_toyA"): PADDED,
}
ROWS = [
  (peer, name)
  for peer, record in RECORDS.items()
  for name, answer in record["cases"].items()
  if "given" in answer and (peer, name) not in REMAINS
]
FEW = [
  ("trl", "dapo_toyB"), ("trl", "grpo_toyB_ragged_zero_var"), ("verl", "dr_grpo_toyB"),
  ("verl", "gpg_nonzero_scale"), ("tunix", "gspo_token_toyB_wide"),
]  # fmt: skip


def objective_of(peer: str, asked: dict):
  """The objective of the printed flags, as a run builds it."""
  answer = translate(command.table(peer), LEAST[peer] | asked, {})
  recipe, *flags = command.flags(answer)
  return lib.build(commandline.config_of([f"--config={recipe}", *flags]).objective)


@jax.jit
def run(objective, logp, batch):
  batch = lib.prepare(objective, batch, logp)
  return jax.value_and_grad(lambda x: lib.loss(objective, x, batch)[0])(logp)


def check(peer: str, name: str) -> None:
  case, answer = CASES[name], RECORDS[peer]["cases"][name]
  case = {"valid": None, "extra": None} | case
  objective, batch = objective_of(peer, answer["asked"]), batch_2026(case)
  wanted = answer.get("own", answer["given"])
  if "own" not in answer:
    stored = np.asarray(case.get("advantages") or case["expected_advantages"], float)
    objective = objective._replace(advantage=Partial(given), rescale=Partial(lambda a, batch: a))
    batch = batch._replace(extra={"given": np.reshape(stored, batch.mask.shape)})
  with jax.enable_x64(True):
    loss, grad = run(objective, np.reshape(case["logp"], batch.mask.shape), batch)
  scale = max(np.abs(wanted["gradient"]).max(), 1e-9)
  np.testing.assert_allclose(np.reshape(grad, np.shape(case["mask"])), wanted["gradient"], atol=1e-6 * scale)
  np.testing.assert_allclose(loss, wanted["loss"], atol=1e-6)


@pytest.mark.parametrize("peer, name", FEW)
def test_the_flags_compute_what_the_peer_computes(peer, name):
  check(peer, name)


@pytest.mark.slow
@pytest.mark.parametrize("peer, name", REMAINS)
def test_what_remains_different_is_different(peer, name):
  with pytest.raises(AssertionError):
    check(peer, name)


@pytest.mark.slow
@pytest.mark.parametrize("peer, name", [row for row in ROWS if row not in FEW])
def test_the_flags_compute_what_the_peer_computes_in_every_case(peer, name):
  check(peer, name)
