"""An environment of OpenEnv for its tests, in process or behind an address."""

import random

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Say(Action):
  message: str
  loud: bool = False


class Heard(Observation):
  text: str = ""


class Guess(Environment):
  """A number from 0 to 9 is to be said."""

  SUPPORTS_CONCURRENT_SESSIONS = True

  def reset(self, seed=None, episode_id=None, **kwargs) -> Heard:
    self.number = random.Random(seed).randint(0, 9)
    self.said = 0
    return Heard(text=f"a number, {seed}")

  def step(self, action: Say, timeout_s=None, **kwargs) -> Heard:
    self.said += 1
    right = action.message.strip() == str(self.number)
    return Heard(
      text=f"{'right' if right else 'wrong'} {self.said} {action.loud}", reward=float(right), done=right
    )

  @property
  def state(self) -> State:
    return State(episode_id="", step_count=self.said)


app = create_fastapi_app(Guess, Say, Heard, max_concurrent_envs=8)
