"""Games of textarena for one player, as `textarena:TowerOfHanoi-v0-train` (https://github.com/LeonGuertler/TextArena).

IDs that end in -train show the board as it is, and the others all that has been said: no two such texts are
equal.  textarena draws from Python's global generator, which in the pool is the episode's alone.
"""

import random

from grpojax.rollout.envs.interface import Turn

try:
  import textarena
except ModuleNotFoundError:
  raise ValueError("textarena is not installed; pip install 'grpojax[envs]'") from None


class TextArena:
  """The example's `number` is the seed of the game.  The rules are in the first observation alone.

  The reward is the game's own, at its end.  An invalid move is forgiven, and a second in a row ends the game.
  """

  def __init__(self, game: str):
    if game not in textarena.envs.registration.ENV_REGISTRY:
      raise ValueError(f"textarena has no game '{game}'; see textarena.pprint_registry_detailed().")
    self.game = game

  @staticmethod
  def check(game: str) -> None:
    """Raises ValueError for a game that one player cannot play, or that does not start."""
    try:
      TextArena(game).reset({"number": 0}, 0)
    except Exception as error:
      raise ValueError(
        f"textarena cannot start '{game}' for one player ({error or type(error).__name__})."
      ) from error

  def reset(self, example: dict, seed: int) -> Turn:
    self.env = textarena.make(self.game)
    self.env.reset(num_players=1, seed=int(example["number"]))
    random.seed(seed)  # the board is drawn
    self.rules = self.env.state.logs[0][1] if self.env.state.logs else ""
    _, text = self.env.get_observation()
    return Turn(text.strip(), anchor=self._board(text))

  def step(self, action: str) -> Turn:
    done, _ = self.env.step(action)
    _, text = self.env.get_observation()
    board, reward = self._board(text), 0.0
    valid = not self.env.state.error_count
    if done:
      rewards, info = self.env.close()
      reward, valid = float((rewards or {}).get(0, 0.0)), not info[0]["invalid_move"]
    return Turn(board, reward, done, anchor=board, valid=valid)

  def close(self) -> None:
    pass

  def _board(self, text: str) -> str:
    return text.replace(self.rules.strip(), "", 1).strip()


make = TextArena
