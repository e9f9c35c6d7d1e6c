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
ROWS = [
  (peer, name)
  for peer, record in RECORDS.items()
  for name, answer in record["cases"].items()
  if "given" in answer
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
@pytest.mark.parametrize("peer, name", [row for row in ROWS if row not in FEW])
def test_the_flags_compute_what_the_peer_computes_in_every_case(peer, name):
  check(peer, name)
