"""Office: meeting rooms, bookings, what people ask for, and the tools that refuse what is wrong."""

import random
from typing import NamedTuple

HOURS = range(9, 17)
ROOMS = ("A", "B", "C")
NAMES = (
  "amy", "ann", "ben", "bob", "dan", "eli", "eve", "fay", "guy", "ian", "ida", "ivy", "jan", "joe", "kay",
  "leo", "liz", "max", "mia", "ned", "pat", "ray", "sue", "tom",
)  # fmt: skip
_STAFF = 6  # of them in one office
_NUMBERS = range(1, 10)  # of bookings at the start: a digit, which the smallest policies learn to repeat
_SEATS = range(2, 13)


class Refusal(Exception):
  """Reason why a tool did nothing, in words for the policy."""


class Booking(NamedTuple):
  name: str
  room: str
  hour: int
  seats: int  # that it needs


class Goal(NamedTuple):
  """Request of a person."""

  verb: str  # "book", "change" or "cancel"
  name: str
  hour: int  # of the booking; with "change", of the one that there is
  to: int = 0  # "change": the new hour
  seats: int = 0  # "book": what it needs
  number: int = 0  # of the booking that there is

  def __str__(self) -> str:
    what = {"book": f"{self.hour}, {self.seats} seats", "change": f"{self.number} to {self.to}"}
    return f"{self.name}: {self.verb} {what.get(self.verb, self.number)}"


class Office:
  """`seats` by room, bookings by number, and the goals still to be reached; the tools are its methods."""

  def __init__(self, seats: dict[str, int], bookings: dict[int, Booking]):
    self.seats, self.bookings = seats, bookings
    self.goals: list[Goal] = []

  def rooms(self, hour: int) -> str:
    """Lists the rooms that are free at an hour, with their seats."""
    self._open(hour)
    return ", ".join(f"{room} {self.seats[room]}" for room in self.free(hour)) or "none"

  def find(self, name: str) -> str:
    """Lists somebody's bookings: their number, room and hour, and the seats that they need."""
    self._known(name)
    found = [(number, b) for number, b in sorted(self.bookings.items()) if b.name == name]
    return ", ".join(f"{number} {b.room} {b.hour} for {b.seats}" for number, b in found) or "none"

  def book(self, name: str, room: str, hour: int) -> str:
    """Books a room for somebody who has asked for one."""
    self._known(name)
    goal = next((goal for goal in self.goals if (goal.verb, goal.name) == ("book", name)), None)
    if goal is None:
      raise Refusal(f"'{name}' has not asked for a room")
    self._fits(name, room, hour, wanted=goal.hour, seats=goal.seats)
    number = max(self.bookings, default=9) + 1
    return self._done(goal, number, Booking(name, room, hour, goal.seats))

  def change(self, number: int, room: str, hour: int) -> str:
    """Moves a booking to another room or hour."""
    booking = self._numbered(number)
    goal = self._goal("change", booking)
    if goal is None:
      raise Refusal(f"{number} is of '{booking.name}' at {booking.hour}, who does not want it changed")
    self._fits(booking.name, room, hour, wanted=goal.to, seats=booking.seats)
    return self._done(goal, number, booking._replace(room=room, hour=hour))

  def cancel(self, number: int) -> str:
    """Cancels a booking."""
    booking = self._numbered(number)
    goal = self._goal("cancel", booking)
    if goal is None:
      raise Refusal(f"{number} is of '{booking.name}' at {booking.hour}, who does not want it cancelled")
    return self._done(goal, number, None)

  def free(self, hour: int, seats: int = 0) -> list[str]:
    """Returns the rooms with so many seats that nobody has at an hour."""
    taken = {booking.room for booking in self.bookings.values() if booking.hour == hour}
    return [room for room in self.seats if room not in taken and self.seats[room] >= seats]

  def number_of(self, name: str, hour: int) -> int:
    """Returns the number of somebody's booking at an hour; 0 if there is none."""
    return next(
      (n for n, booking in self.bookings.items() if (booking.name, booking.hour) == (name, hour)), 0
    )

  def _goal(self, verb: str, booking: Booking) -> Goal | None:
    asks = (goal for goal in self.goals if goal[:3] == (verb, booking.name, booking.hour))
    return next(asks, None)

  def _open(self, hour: int) -> None:
    if hour not in HOURS:
      raise Refusal(f"the office is closed at {hour}")

  def _known(self, name: str) -> None:
    if name not in NAMES:
      raise Refusal(f"nobody is called '{name}'")

  def _numbered(self, number: int) -> Booking:
    if number not in self.bookings:
      raise Refusal(f"there is no booking {number}")
    return self.bookings[number]

  def _fits(self, name: str, room: str, hour: int, wanted: int, seats: int) -> None:
    self._open(hour)
    if hour != wanted:
      raise Refusal(f"'{name}' wants {wanted}, and not {hour}")
    if room not in self.seats:
      raise Refusal(f"there is no room '{room}'")
    if self.seats[room] < seats:
      raise Refusal(f"'{room}' has {self.seats[room]} seats, and '{name}' needs {seats}")
    if room not in self.free(hour):
      holder = next(b.name for b in self.bookings.values() if (b.room, b.hour) == (room, hour))
      raise Refusal(f"'{room}' is taken at {hour} by '{holder}'")

  def _done(self, goal: Goal, number: int, booking: Booking | None) -> str:
    if booking:
      self.bookings[number] = booking
    else:
      del self.bookings[number]
    self.goals.remove(goal)
    return f"ok {number}"


def draw(number: int, goals: int) -> Office:
  """Returns office `number` with so many goals, all of which can be reached, in any order."""
  rng = random.Random(f"desk/{number}")
  while True:
    office = _draw_office(rng)
    for _ in range(20 * goals):
      goal = _draw_goal(office, rng)
      apart = {hour for other in office.goals for hour in (other.hour, other.to)}  # none is in another's way
      if (
        goal and not {goal.hour, goal.to} & (apart - {0}) and goal.name not in [g.name for g in office.goals]
      ):
        office.goals.append(goal)
      if len(office.goals) == goals:
        return office


def _draw_office(rng: random.Random) -> Office:
  seats = dict(zip(ROOMS, rng.sample(_SEATS, len(ROOMS)), strict=True))
  staff = rng.sample(NAMES, _STAFF)
  places = [(hour, *one) for hour in HOURS for one in zip(ROOMS, rng.sample(staff, len(ROOMS)), strict=True)]
  bookings = {
    number: Booking(name, room, hour, rng.randint(_SEATS[0], seats[room]))
    for number, (hour, room, name) in zip(_NUMBERS, rng.sample(places, len(_NUMBERS)), strict=True)
  }
  return Office(seats, bookings)


def _draw_goal(office: Office, rng: random.Random) -> Goal | None:
  """Returns a goal that can be reached, though not in every room; None where the draw gives none."""
  verb = rng.choice(("book", "change", "cancel"))
  if verb == "book":
    name, hour, seats = rng.choice(NAMES), rng.choice(HOURS), rng.choice(_SEATS)
    fitting = office.free(hour, seats)
    hard = 0 < len(fitting) < len(ROOMS)
    return Goal("book", name, hour, seats=seats) if hard and not office.number_of(name, hour) else None
  if not office.bookings:
    return None
  number = rng.choice(sorted(office.bookings))
  booking = office.bookings[number]
  if verb == "cancel":
    return Goal("cancel", booking.name, booking.hour, number=number)
  to = rng.choice([hour for hour in HOURS if hour != booking.hour])
  can = office.free(to, booking.seats) and not office.number_of(booking.name, to)
  return Goal("change", booking.name, booking.hour, to, number=number) if can else None
