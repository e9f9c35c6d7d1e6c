"""Replays the cases through Tunix' own loss and advantages.  Written for google-tunix 0.1.7.

    python on_tunix.py CASES_FOLDER        # prints a line of JSON for each case

`grpo_loss_fn` of tunix/rl/algo_core.py is called as it is; the function of tunix/rl/common.py that asks a
model for log-probs gives the case's.  It computes in float32.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import asked
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tunix.rl import algo_core, common, function_registry
from tunix.rl.grpo.grpo_learner import GRPOConfig

FIELDS = {
  "advantage_estimator", "loss_agg_mode", "loss_algo", "num_generations", "beta", "kl_loss_mode", "epsilon",
}  # fmt: skip


def on(case: dict) -> np.ndarray:
  """Returns the mask [B, T] of valid rows."""
  valid = np.asarray(case.get("valid") or [1.0] * len(case["mask"]), float)
  return np.asarray(case["mask"], float) * valid[:, None]


def config_of(config: dict) -> GRPOConfig:
  """Returns Tunix' config, with what its loss reads by hasattr and getattr."""
  made = GRPOConfig(**{key: value for key, value in config.items() if key in FIELDS})
  for key in config.keys() - FIELDS:
    setattr(made, key, config[key])
  made.temperature = 1.0
  return made


def solve(case: dict, config: dict, advantages) -> dict:
  """Returns the loss and its gradient by logp."""
  made, mask = config_of(config), jnp.asarray(on(case))
  maybe = lambda key: None if case[key] is None else jnp.asarray(case[key], jnp.float32)
  example = common.TrainExample(
    prompt_ids=jnp.ones((len(mask), 1), int), prompt_mask=jnp.ones((len(mask), 1)),
    completion_ids=jnp.ones(mask.shape, int), completion_mask=mask, advantages=jnp.asarray(advantages),
    ref_per_token_logps=maybe("logp_ref") if config.get("beta") else None,
    old_per_token_logps=maybe("logp_old"),
  )  # fmt: skip
  model = nnx.Linear(1, 1, rngs=nnx.Rngs(0))

  def loss(logp):
    common.compute_per_token_logps = lambda *args, **kwargs: (logp, jnp.zeros((*mask.shape, 2)))
    return algo_core.grpo_loss_fn(model, example, made, pad_id=0, eos_id=1)[0]

  value, gradient = jax.value_and_grad(loss)(jnp.asarray(case["logp"], jnp.float32))
  return dict(loss=float(value), gradient=np.asarray(gradient, float).tolist())


def one(case: dict) -> dict:
  """Returns what Tunix computes: from the case's rewards (`own`), with the case's advantages (`given`)."""
  found, config, own = {}, {}, {}
  try:
    config = asked.tunix(case)
  except asked.Lacks as why:
    found["none"] = str(why)
  try:
    asked.policy_term(case)
    own = asked.tunix_advantage(case)
    estimator = function_registry.get_advantage_estimator(own["advantage_estimator"])
    score = estimator(rewards=np.asarray(case["rewards"], float), num_generations=case["group_size"])
    advantages = np.asarray(score, float)[:, None] * on(case)
    found["advantages"] = advantages.tolist()
  except asked.Lacks as why:
    found["no_advantage"] = str(why)
  if config:
    stored = np.asarray(case.get("advantages") or case["expected_advantages"], float)
    found |= dict(asked=config | own, given=solve(case, config, stored))
    if own:
      found |= dict(own=solve(case, config, advantages))
  return found


def main(cases: str) -> None:
  """Prints the versions, and then what Tunix computes of each case."""
  versions = {name: importlib.metadata.version(name) for name in ("google-tunix", "jax")}
  out, sys.stdout = sys.stdout, sys.stderr
  print(json.dumps(dict(versions=versions)), file=out, flush=True)
  for path in sorted(Path(cases).glob("*.json")):
    for case in json.loads(path.read_text()):
      print(json.dumps({case["name"]: one(case)}), file=out, flush=True)


if __name__ == "__main__":
  main(sys.argv[1])
