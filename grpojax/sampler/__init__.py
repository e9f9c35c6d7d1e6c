"""Prompts -> completions, in process, on the mesh the learner uses."""

from grpojax.sampler import budget, slots
from grpojax.sampler.choose import Choice
from grpojax.sampler.flight import Sampler, continuous, plain
from grpojax.sampler.generate import build

__all__ = ["Choice", "Sampler", "budget", "build", "continuous", "plain", "slots"]
