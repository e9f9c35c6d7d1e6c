"""CliffWalking of gymnasium: from P in one corner to G in the other, beside the cliff C.

    ............
    ............
    ............
    PCCCCCCCCCCG

Rewards are gymnasium's: -1 a step, and -100 for one over the cliff, which leads back to the start.  Every
task is the same.
"""

from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

from grpojax.rollout.envs.toy_text import ToyText

_ROWS, _COLUMNS = 4, 12


class CliffWalking(ToyText):
  """gymnasium's has no limit of steps.  On `slippery` ground two moves in three go aside."""

  words = ("up", "right", "down", "left")
  about = "Walk from P to G, and not over the cliff C. Say up, right, down or left."

  def __init__(self, slippery: bool = False, max_steps: int = 100, rules: bool = False):
    super().__init__(max_steps, rules)
    self.slippery = slippery

  def start(self, number: int) -> CliffWalkingEnv:
    return CliffWalkingEnv(is_slippery=self.slippery)

  def board(self) -> str:
    fields = ["." * _COLUMNS] * (_ROWS - 1) + ["." + "C" * (_COLUMNS - 2) + "G"]
    row, column = divmod(int(self.game.s), _COLUMNS)
    fields[row] = fields[row][:column] + "P" + fields[row][column + 1 :]
    return "\n".join(fields)


make = CliffWalking
