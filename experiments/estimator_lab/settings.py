"""Distances between the three policies: staleness and sampler mismatch, by name."""

import jax.numpy as jnp
import numpy as np

from experiments.estimator_lab import measure, policy, variants

UPDATE_GROUP = 8  # completions behind one update


def stale(world: policy.World, old: np.ndarray, updates: int, rate: float, seed: int):
  """Returns a setting whose π_old sampled and whose π_θ is RLOO updates (G = 8, one group each) ahead."""
  theta, objective = old, variants.build("rloo")
  for update in range(updates):
    now = measure.on_policy(world, theta)
    rows = measure.sample_groups(now, UPDATE_GROUP, 1, seed * 1000 + update).rows
    theta = theta + rate * measure.estimates(objective, now, rows)[0][0]
  return measure.Setting(world, theta, old, old, old)


def mismatched(world: policy.World, theta: np.ndarray, kind: str, seed: int):
  """Returns a setting whose sampler differs from the learner on the same parameters; nothing is stale."""
  return measure.on_policy(world, theta)._replace(sampler=sampler(theta, kind, seed))


def sampler(theta: np.ndarray, kind: str, seed: int) -> np.ndarray:
  """Returns logits of μ: "noise 0.5" (deviation per logit), "temperature 0.8", or "bf16"."""
  name, _, number = kind.partition(" ")
  if name == "noise":
    return theta + np.random.default_rng(seed).normal(0.0, float(number), theta.shape)
  if name == "temperature":
    return theta / float(number)
  if name == "bf16":
    return np.asarray(jnp.asarray(theta, jnp.bfloat16), float)
  raise ValueError(f"Sampler mismatch '{kind}' is unknown; choose noise, temperature or bf16.")


def scenarios(world: policy.World, theta: np.ndarray, seed: int) -> dict[str, measure.Setting]:
  """Returns the columns of the table of variants."""
  return {
    "on-policy": measure.on_policy(world, theta),
    "1 update stale": stale(world, theta, 1, 0.5, seed),
    "4 updates stale": stale(world, theta, 4, 0.5, seed),
    "16 updates stale": stale(world, theta, 16, 0.5, seed),
    "sampler noise 0.5": mismatched(world, theta, "noise 0.5", seed),
    "sampler bf16": mismatched(world, theta, "bf16", seed),
    "sampler temperature 0.8": mismatched(world, theta, "temperature 0.8", seed),
  }
