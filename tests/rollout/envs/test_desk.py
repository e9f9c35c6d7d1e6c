"""The desk: what its tools refuse, what they change, and the fingerprints of their answers."""

import copy
import random
import re

import pytest

from grpojax.rollout import anchors
from grpojax.rollout.envs import build, calls, office
from grpojax.rollout.envs.desk import Desk
from grpojax.rollout.envs.office import Booking, Goal, Office


def desk_of(*goals: Goal, **knobs) -> Desk:
  """A small office: A has 4 seats and B has 9; bob is in A at 10, and eve in B at 10 and at 12."""
  desk = Desk(**knobs)
  desk.reset({"number": 0}, 0)
  bookings = {31: Booking("bob", "A", 10, 3), 42: Booking("eve", "B", 10, 6), 53: Booking("eve", "B", 12, 2)}
  desk.office = Office({"A": 4, "B": 9}, bookings)
  desk.office.goals = list(goals)
  return desk


ASKED = (Goal("book", "ann", 12, seats=3), Goal("change", "bob", 10, to=12), Goal("cancel", "eve", 10))

# Action -> the answer and its anchor; every refusal that there is.
ANSWERS = {
  "rooms 10": ("none", ("read", "rooms", "10")),
  "rooms 11": ("A 4, B 9", ("read", "rooms", "11")),
  "find eve": ("42 B 10 for 6, 53 B 12 for 2", ("read", "find", "eve")),
  "find tom": ("none", ("read", "find", "tom")),
  "rooms 3": ("the office is closed at 3", ("write", "rooms", "the office is closed at <N>")),
  "find zoe": ("nobody is called 'zoe'", ("write", "find", "nobody is called '<X>'")),
  "book zoe A 12": ("nobody is called 'zoe'", ("write", "book", "nobody is called '<X>'")),
  "book tom A 12": ("'tom' has not asked for a room", ("write", "book", "'<X>' has not asked for a room")),
  "book ann A 11": ("'ann' wants 12, and not 11", ("write", "book", "'<X>' wants <N>, and not <N>")),
  "book ann A 20": ("the office is closed at 20", ("write", "book", "the office is closed at <N>")),
  "book ann Z 12": ("there is no room 'Z'", ("write", "book", "there is no room '<X>'")),
  "book ann B 12": ("'B' is taken at 12 by 'eve'", ("write", "book", "'<X>' is taken at <N> by '<X>'")),
  "change 99 A 12": ("there is no booking 99", ("write", "change", "there is no booking <N>")),
  "change 42 A 12": (
    "42 is of 'eve' at 10, who does not want it changed",
    ("write", "change", "<N> is of '<X>' at <N>, who does not want it changed"),
  ),
  "change 31 A 11": ("'bob' wants 12, and not 11", ("write", "change", "'<X>' wants <N>, and not <N>")),
  "cancel 53": (
    "53 is of 'eve' at 12, who does not want it cancelled",
    ("write", "cancel", "<N> is of '<X>' at <N>, who does not want it cancelled"),
  ),
  "cancel 7": ("there is no booking 7", ("write", "cancel", "there is no booking <N>")),
}


@pytest.mark.parametrize("action", ANSWERS)
def test_answers_and_their_fingerprints(action):
  desk = desk_of(*ASKED)
  before = copy.deepcopy(vars(desk.office))
  turn = desk.step(action)
  assert (turn.text, turn.anchor) == ANSWERS[action]
  assert turn.valid and not turn.done and turn.reward == 0
  assert turn.feedback == (turn.text if turn.anchor[0] == "write" else "")
  assert vars(desk.office) == before


def test_a_room_may_be_too_small():
  desk = desk_of(Goal("book", "ann", 11, seats=7))
  assert desk.step("book ann A 11").text == "'A' has 4 seats, and 'ann' needs 7"


@pytest.mark.parametrize("action, words", [
  ("", "say rooms HOUR"), ("hello there", "say rooms HOUR"), ("book ann A", "say rooms HOUR"),
  ("goals", "say rooms HOUR"), ("free 10", "say rooms HOUR"),
  ("rooms ten", 'hour of rooms is int, and not "ten"'),
  ('{"name": "rooms"}', "rooms needs hour"), ('{"name": "__init__", "arguments": {}}', "say rooms HOUR"),
  ('{"name": "cancel", "arguments": {"number": "42"}}', 'number of cancel is int, and not "42"'),
  ("<tool_call>{nonsense</tool_call>", "the call is no JSON"),
])  # fmt: skip
def test_what_cannot_be_read_is_invalid_and_does_nothing(action, words):
  turn = desk_of(*ASKED).step(action)
  assert not turn.valid and turn.anchor == ("invalid",) and turn.text.startswith(words)


def test_goals_are_reached_in_words_and_in_json_and_only_the_last_one_pays():
  desk = desk_of(*ASKED)
  written = '<tool_call>\n{"name": "cancel", "arguments": {"number": 42}}\n</tool_call>'
  turns = [desk.step(action) for action in (written, "book ann A 12", "change 31 B 12", "change 31 A 12")]
  assert [turn.text for turn in turns] == [
    "ok 42", "ok 54", "'B' is taken at 12 by 'eve'", "'A' is taken at 12 by 'ann'",
  ]  # fmt: skip
  assert turns[0].anchor == ("ok", "cancel") and turns[1].anchor == ("ok", "book")
  assert not any(turn.done or turn.reward for turn in turns)
  assert desk.office.bookings == {
    31: Booking("bob", "A", 10, 3), 53: Booking("eve", "B", 12, 2), 54: Booking("ann", "A", 12, 3),
  }  # fmt: skip
  desk = desk_of(ASKED[1])
  last = desk.step("change 31 A 12")
  assert last.done and last.reward == 1 and desk.office.bookings[31] == Booking("bob", "A", 12, 3)


def test_the_same_error_with_other_names_and_numbers_has_one_anchor():
  """ESSA's anchors, as grpojax/rollout/anchors.py numbers them; GiGPO's are the texts."""
  actions = ["cancel 7", "cancel 8", "book ann Z 12", "rooms 10", "rooms 11", "what", "hm"]
  turns = [desk_of(*ASKED).step(action) for action in actions]
  assert anchors.ids([turn.anchor for turn in turns]).tolist() == [0, 0, 1, 2, 3, 4, 4]
  assert desk_of(*ASKED, anchor="text").step("cancel 7").anchor is None


def test_every_office_is_drawn_by_its_number_and_its_goals_can_be_reached():
  texts = set()
  for number in range(60):
    for goals in (1, 2, 3):
      drawn, again = office.draw(number, goals), office.draw(number, goals)
      assert vars(drawn) == vars(again) and len(drawn.goals) == goals
      assert len({goal.name for goal in drawn.goals}) == goals
      desk, rng = Desk(goals=goals, max_steps=3 * goals), random.Random(number)
      turn = desk.reset({"number": number}, 0)
      texts.add(turn.text)
      steps = 0
      while not turn.ended:
        turn, steps = desk.step(desk.demonstrate(rng, 0.0)), steps + 1
        assert turn.valid and turn.feedback == ""
      assert turn.done and turn.reward == 1 and goals <= steps
  assert len(texts) > 160


def test_the_clerk_says_nothing_that_it_has_not_read():
  """Every number and room of a write was in the request, or in an answer before it."""
  for number in range(30):
    desk, rng = Desk(), random.Random(number)
    turn = desk.reset({"number": number}, 0)
    seen = turn.text
    while not turn.ended:
      action = desk.demonstrate(rng, 0.0)
      verb, *words = action.split()
      if verb in ("book", "change", "cancel"):
        wanted = [word for word in words if word.isupper() or (word.isdigit() and word == words[0])]
        assert all(re.search(rf"\b{word}\b", seen) for word in wanted), (action, seen)
      turn = desk.step(action)
      seen += f" {turn.text}"


def test_a_clerk_who_guesses_is_refused_and_recovers():
  refused = won = 0
  for number in range(80):
    desk, rng = Desk(), random.Random(number)
    turn = desk.reset({"number": number}, 0)
    while not turn.ended:
      turn = desk.step(desk.demonstrate(rng, 0.5))
      refused += turn.anchor[0] == "write"
    won += turn.reward
  assert refused > 80 and 40 < won < 80


def test_tools_are_described_and_knobs_are_checked():
  described = calls.schema(office.draw(0, 1).book)["function"]
  assert described["name"] == "book" and described["parameters"]["required"] == ["name", "room", "hour"]
  for knobs, word in (
    (dict(goals=0), "goals = 0"),
    (dict(anchor="x"), "anchor = 'x'"),
    (dict(goals=3, max_steps=5), "max"),
  ):
    with pytest.raises(ValueError, match=word):
      build.check("desk", knobs, 1.0)
