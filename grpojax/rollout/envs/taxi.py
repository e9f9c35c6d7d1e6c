"""Taxi of gymnasium (v4): fetch the passenger at R, G, Y or B, and bring them to another of these places.

    R .|. . G
    . .|T . .
    . . . . .
    .|. .|. .
    Y|. .|B .
    from R to B

T is the taxi, and | a wall.  With the passenger in the taxi, the last line is "aboard to B".
"""

from gymnasium.envs.toy_text.taxi import MAP, TaxiEnv

from grpojax.rollout.envs.toy_text import ToyText

_PLACES = ("from R", "from G", "from Y", "from B", "aboard")


class Taxi(ToyText):
  """Rewards are gymnasium's: -1 a step, 20 at the end, -10 for a pickup or a dropoff where none is.

  In the `rain`, one move in five goes aside.
  """

  words = ("south", "north", "east", "west", "pickup", "dropoff")
  about = (
    "You drive the taxi T. Fetch the passenger and bring them where they want to go; | is a wall."
    " Say south, north, east, west, pickup or dropoff."
  )

  def __init__(self, rain: bool = False, max_steps: int = 200, rules: bool = False):
    super().__init__(max_steps, rules)
    self.rain = rain

  def start(self, number: int) -> TaxiEnv:
    return TaxiEnv(is_rainy=self.rain)

  def board(self) -> str:
    row, column, passenger, goal = self.game.decode(int(self.game.s))
    lines = [list(line[1:-1].replace(":", " ")) for line in MAP[1:-1]]  # fields are at even places
    for line in lines:
      line[::2] = [field if field.isalpha() else "." for field in line[::2]]
    lines[row][2 * column] = "T"
    return "\n".join([*map("".join, lines), f"{_PLACES[passenger]} to {'RGYB'[goal]}"])


make = Taxi
