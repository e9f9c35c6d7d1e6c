"""FrozenLake, Taxi, CliffWalking, Sokoban: the board that is shown is the game's, and planners solve it."""

import random
import re
from collections import deque

import gymnasium
import pytest

from grpojax.rollout.envs import build, moves
from grpojax.rollout.envs.cliff_walking import CliffWalking
from grpojax.rollout.envs.frozen_lake import FrozenLake
from grpojax.rollout.envs.sokoban import Sokoban
from grpojax.rollout.envs.taxi import Taxi

BOARDS = [FrozenLake, Taxi, CliffWalking, Sokoban]
WORDS = {Sokoban: ("left", "down", "right", "up")}


def words_of(kind) -> tuple[str, ...]:
  return WORDS.get(kind) or kind.words


def play(environment, number: int, seed: int, actions: list[str]) -> list:
  turns = [environment.reset({"number": number}, seed)]
  for action in actions:
    if not turns[-1].ended:
      turns.append(environment.step(action))
  return turns


@pytest.mark.parametrize("kind", BOARDS)
def test_a_number_decides_the_task_and_equal_seeds_the_episode(kind):
  actions = random.Random(0).choices(words_of(kind), k=30)
  for number in range(5):
    assert play(kind(), number, 1, actions) == play(kind(), number, 1, actions)
    assert kind().reset({"number": number}, 1) == kind().reset({"number": number}, 2)
  first = {kind().reset({"number": number}, 0).text for number in range(20)}
  assert len(first) == (1 if kind is CliffWalking else 20)


@pytest.mark.parametrize("kind", BOARDS)
def test_any_text_is_answered_and_what_names_no_action_moves_nothing(kind):
  environment = kind()
  start = environment.reset({"number": 4}, 0)
  for text in ("", " ", "jump", "\ud800", "<|im_end|>", "x" * 10_000, "[[[", "5"):
    turn = environment.step(text)
    assert not turn.valid and not turn.done and turn.reward == 0
    assert turn.anchor == start.anchor and turn.text == f"say {', '.join(words_of(kind))}\n{start.anchor}"


@pytest.mark.parametrize("kind", BOARDS)
def test_the_limit_of_steps_truncates_and_rules_come_first(kind):
  limit = dict(max_moves=3) if kind is Sokoban else {}
  environment = kind(max_steps=3, rules=True, **limit)
  assert environment.reset({"number": 0}, 0).text.startswith(f"{kind.about}\n")
  assert [environment.step("?").truncated for _ in range(3)] == [False, False, True]
  with pytest.raises(ValueError, match="max_steps = 0"):
    kind(max_steps=0)


def test_a_text_names_an_action_by_its_letter_alone_or_by_its_last_word():
  words = ("left", "down", "right", "up")
  texts = {" L\n": "left", "u": "up", "I go down": "down", "Not left, but RIGHT.": "right", "[up]": "up"}
  assert {text: moves.read(text, words) for text in texts} == texts
  assert [moves.read(text, words) for text in ("x", "", "upright", "leftover", "lr")] == [None] * 5


NAMES = {FrozenLake: "FrozenLake-v1", Taxi: "Taxi-v4", CliffWalking: "CliffWalking-v1"}


@pytest.mark.parametrize("kind", NAMES)
def test_episodes_are_gymnasiums_own(kind):
  """States, rewards and ends of the registered environment; of FrozenLake, on the map that is shown."""
  for number in range(8):
    ours = kind()
    turn = ours.reset({"number": number}, 0)
    more = {}
    if kind is FrozenLake:
      more = dict(desc=turn.text.replace("P", "S").split(), is_slippery=False)
    theirs = gymnasium.make(NAMES[kind], render_mode="ansi", **more)
    theirs.reset(seed=number)
    assert int(ours.game.s) == theirs.unwrapped.s
    rng = random.Random(number)
    for _ in range(60):
      action = rng.randrange(len(kind.words))
      state, reward, done, *_ = theirs.step(action)
      turn = ours.step(kind.words[action])
      assert (int(ours.game.s), turn.reward, turn.done) == (state, reward, done)
      if kind is FrozenLake:
        board = re.sub(r"\x1b\[41m.\x1b\[0m", "P", theirs.render())
        assert turn.text.splitlines() == board.split()[-6:]
      if done:
        break


def test_frozen_lakes_player_is_where_the_moves_lead():
  lake = FrozenLake(size=3, frozen=1.0)
  turns = play(lake, 0, 0, ["right", "down", "left", "up", "left"])
  assert [turn.text.replace("\n", "|") for turn in turns] == [
    "PFF|FFF|FFG", "SPF|FFF|FFG", "SFF|FPF|FFG", "SFF|PFF|FFG", "PFF|FFF|FFG", "PFF|FFF|FFG",
  ]  # fmt: skip


def test_taxi_and_cliff_show_where_everything_is():
  taxi = Taxi()
  assert (
    taxi.reset({"number": 3}, 0).text == "R .|T . G\n. .|. . .\n. . . . .\n.|. .|. .\nY|. .|B .\nfrom R to Y"
  )
  turns = play(taxi, 3, 0, ["south", "south", "west", "west", "north", "north", "pickup"])
  assert turns[-1].text.endswith("aboard to Y") and turns[-1].text.startswith("T .|. . G")
  turns = play(
    taxi, 3, 0, [*["south", "south", "west", "west", "north", "north", "pickup"], *["south"] * 4, "dropoff"]
  )
  assert turns[-1].done and turns[-1].reward == 20
  cliff = play(CliffWalking(), 0, 0, ["up", "right", "down"])
  assert cliff[2].text.splitlines()[2] == ".P.........." and cliff[3].reward == -100
  assert cliff[3].text.splitlines()[3] == "PCCCCCCCCCCG"


def test_chance_is_the_seeds_and_not_the_tasks():
  """On slippery ice, episodes of one map differ by their seeds alone."""
  lake = FrozenLake(slippery=True)
  walks = [tuple(turn.text for turn in play(lake, 0, seed, ["down"] * 6)) for seed in range(8)]
  assert len(set(walks)) > 4 and len({walk[0] for walk in walks}) == 1


def test_every_map_has_a_way_and_the_planner_takes_a_shortest():
  for number in range(40):
    lake = FrozenLake(size=5)
    board = lake.reset({"number": number}, 0).text.split()
    assert len(play(lake, number, 0, [])) == 1
    steps, turn = 0, None
    while not (turn and turn.ended):
      turn, steps = lake.step(lake.best()[0]), steps + 1
    assert turn.done and turn.reward == 1 and steps == breadth_first(board)


def breadth_first(board: list[str]) -> int:
  """Moves from the upper left to the lower right corner, around holes."""
  size, frontier, seen = len(board), deque([(0, 0, 0)]), {(0, 0)}
  while frontier:
    row, column, steps = frontier.popleft()
    if (row, column) == (size - 1, size - 1):
      return steps
    for r, c in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
      if 0 <= r < size and 0 <= c < size and (r, c) not in seen and board[r][c] != "H":
        seen.add((r, c))
        frontier.append((r, c, steps + 1))
  raise AssertionError("no way")


@pytest.mark.parametrize("kind", [FrozenLake, Sokoban])
def test_a_planner_errs_in_the_share_that_is_asked_for(kind):
  """Of moves that are drawn at random, some are right, as many as there are right moves."""
  rng, wrong, expected, n = random.Random(0), 0, 0.0, 0
  for number in range(60):
    environment = kind()
    turn = environment.reset({"number": number}, 0)
    while not turn.ended:
      best = environment.best()
      move = environment.demonstrate(rng, 0.5)
      wrong, expected, n = wrong + (move not in best), expected + 0.5 * (1 - len(best) / 4), n + 1
      turn = environment.step(move)
  assert abs(wrong / n - expected / n) < 4 * (0.25 / n) ** 0.5
  environment.reset({"number": 0}, 0)
  assert all(environment.demonstrate(rng, 0.0) in environment.best() for _ in range(20))


def test_a_box_is_pushed_and_never_pulled():
  game = Sokoban()
  game.reset({"number": 0}, 0)
  game.floor, game.goal = frozenset((row, column) for row in range(3) for column in range(3)), (0, 2)
  game.size, game.state = 3, ((1, 0), (1, 1))
  assert game.board() == "--.\n@$-\n---"
  boards = [
    game.step(word).anchor.replace("\n", "|") for word in ("right", "right", "left", "down", "right", "right")
  ]
  assert boards == ["--.|-@$|---", "--.|-@$|---", "--.|@-$|---", "--.|--$|@--", "--.|--$|-@-", "--.|--$|--@"]
  turn = game.step("up")
  assert turn.done and turn.reward == 1 and turn.text == "--*\n--@\n---"


@pytest.mark.parametrize("size", [3, 5])
def test_every_puzzle_has_a_solution_of_few_moves_and_the_planner_a_shortest(size):
  lengths = []
  for number in range(25):
    game = Sokoban(size=size)
    turn, steps = game.reset({"number": number}, 0), 0
    assert turn.text.count("$") == 1 and turn.text.count(".") == 1 and turn.text.count("@") == 1
    shortest = forward_search(game)
    while not turn.ended:
      turn, steps = game.step(game.best()[0]), steps + 1
    assert turn.reward == 1 and steps == shortest <= 16
    lengths.append(steps)
  assert len(set(lengths)) > 3


def forward_search(game: Sokoban) -> int:
  """Moves to a solution, found by playing forwards; the planner's are found backwards."""
  from grpojax.rollout.envs.sokoban import move

  frontier, seen = deque([(game.state, 0)]), {game.state}
  while frontier:
    state, steps = frontier.popleft()
    if state[1] == game.goal:
      return steps
    for word in ("left", "down", "right", "up"):
      after = move(game.floor, state, word)
      if after not in seen:
        seen.add(after)
        frontier.append((after, steps + 1))
  raise AssertionError("no solution")


def test_a_box_in_a_corner_has_no_best_move():
  game = Sokoban()
  game.reset({"number": 0}, 0)
  game.floor, game.goal = frozenset((row, column) for row in range(3) for column in range(3)), (0, 2)
  game.size, game.state = 3, ((1, 1), (0, 0))
  assert game.best() == ["left", "down", "right", "up"]


@pytest.mark.parametrize("name, knobs, word", [
  ("frozen_lake", dict(size=1), "size = 1"), ("frozen_lake", dict(frozen=0.0), "frozen = 0.0"),
  ("sokoban", dict(walls=0.9), "walls = 0.9"), ("sokoban", dict(max_moves=50), "max_moves = 50"),
  ("sokoban", dict(size=3, max_moves=3), "max_moves = 3 from 4"),
])  # fmt: skip
def test_knobs_out_of_range_are_refused(name, knobs, word):
  with pytest.raises(ValueError, match=word):
    build.check(name, knobs, 1.0)
