"""Environments of OpenEnv (https://github.com/meta-pytorch/OpenEnv): of a class, or behind an address.

    openenv:my_module:MyEnvironment     a subclass of openenv's Environment, in the worker itself
    openenv:http://localhost:8000       a server of one, with a session for each episode

An action there is a record, and an observation, too: `action` is the field that the policy's text goes into,
and `text` the field that the policy reads.  OpenEnv has one seed for all of an episode: the `number` of the
example, so that the trajectories of a prompt start alike; chance then falls alike in them, too.
"""

import importlib
import typing
from typing import Any

from grpojax.rollout.envs.interface import Turn

try:
  from openenv.core import GenericEnvClient
except ModuleNotFoundError:
  raise ValueError("openenv is not installed; pip install 'grpojax[envs]'") from None


class OpenEnv:
  """`source` is an address or 'module:Class'; `other` are further fields of every action."""

  def __init__(
    self, source: str, action: str = "message", text: str = "text", other: dict[str, Any] | None = None
  ):
    self.source, self.action, self.text, self.other = source, action, text, dict(other or {})
    self.remote = source.startswith(("http://", "https://", "ws://", "wss://"))
    self.kind = None if self.remote else _find(source)

  def reset(self, example: dict, seed: int) -> Turn:
    if self.remote:
      self.env = GenericEnvClient(base_url=self.source).sync()
      self.env.connect()
    else:
      self.env = self.kind()
      self.act = typing.get_type_hints(self.kind.step)["action"]
    return self._turn(self.env.reset(seed=int(example["number"])))._replace(reward=0.0)

  def step(self, action: str) -> Turn:
    fields = self.other | {self.action: action}
    return self._turn(self.env.step(fields if self.remote else self.act(**fields)))

  def close(self) -> None:
    self.env.close()

  def _turn(self, answer) -> Turn:
    """Returns an answer as a turn.  Raises KeyError where the observation has no field `text`."""
    observation = answer.observation if self.remote else answer.model_dump()
    if not isinstance(observation.get(self.text), str):
      fields = ", ".join(observation)
      raise KeyError(
        f"the observation has no text in '{self.text}', only {fields}; name another field by `text`"
      )
    return Turn(observation[self.text], reward=float(answer.reward or 0.0), done=bool(answer.done))


def _find(source: str) -> type:
  module, _, name = source.partition(":")
  try:
    found = getattr(importlib.import_module(module), name)
    typing.get_type_hints(found.step)["action"]
  except (ModuleNotFoundError, AttributeError) as error:
    raise ValueError(f"openenv: there is no environment '{source}' ({error}).") from None
  except KeyError:
    raise ValueError(f"openenv: annotate `action` of {name}.step with its class.") from None
  return found


make = OpenEnv
