"""Prompts -> completions, in process, on the mesh the learner uses."""

from grpojax.rollout.sampler import continuous, engine, kv_budget, static_batch
from grpojax.rollout.sampler.engine import Engine, PromptQueue
from grpojax.rollout.sampler.token_sampling import Choice

__all__ = ["Choice", "Engine", "PromptQueue", "continuous", "engine", "kv_budget", "static_batch"]
