"""Prompts -> completions, in process, on the mesh the learner uses."""

from grpojax.rollout.sampler import continuous, kv_budget
from grpojax.rollout.sampler.engine import Sampler, continuous, plain
from grpojax.rollout.sampler.static_batch import build
from grpojax.rollout.sampler.token_sampling import Choice

__all__ = ["Choice", "Sampler", "budget", "build", "continuous", "plain", "slots"]
