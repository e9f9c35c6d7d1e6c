"""The world of most claims: 3 tokens, length 3, 15 responses, every group of it enumerable."""

from experiments.estimator_lab import measure, policy

EXACT = 1e-9  # relative error of an enumerated float64 quantity that counts as zero
WORLD = policy.tree(3, 3, policy.odd_sum)


def settings(count: int) -> list[measure.Setting]:
  """Returns on-policy settings, one random policy each."""
  return [measure.on_policy(WORLD, policy.random_policy(WORLD, seed)) for seed in range(count)]


def share(values) -> float:
  """Returns the share of the values that are true."""
  values = list(values)
  return sum(map(bool, values)) / len(values)
