"""Prompts -> completions, in process, on the mesh the learner uses."""

from grpojax.rollout.sampler import build, continuous, engine, kv_budget, static_batch
from grpojax.rollout.sampler.build import GenerationSpec
from grpojax.rollout.sampler.engine import Engine, PromptQueue
from grpojax.rollout.sampler.token_sampling import SamplingParams

__all__ = [
  "Engine", "GenerationSpec", "PromptQueue", "SamplingParams", "build", "continuous", "engine", "kv_budget",
  "static_batch",
]  # fmt: skip
