"""The host's half of the sampler of trajectories: which slot plays which, and what its environment says.

A slot reads its prompt, acts, waits for its environment, reads what it says, and acts again, while the others
go on; the device's half is sampler/turns.py.  Banks of slots take turns, so that the environments of one work
while the device does for the other.  A clock decides when an answer is looked at, and nothing else: what a
trajectory holds depends on its address alone, (seed and step, prompt, sample).
"""

import dataclasses
import functools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from grpojax.data import dialogue, text
from grpojax.rollout.envs.interface import Environments, Turn
from grpojax.rollout.sampler.turns import Slots
from grpojax.rollout.turns.reading import Reader
from grpojax.rollout.turns.table import Player, Table
from grpojax.rollout.turns.trajectory import Trajectory, to_rollout
from grpojax.runtime import console
from grpojax.types import (
  DONE,
  FAILED,
  INJECTED,
  INVALID,
  OBSERVATION,
  TOKENS,
  TRUNCATED,
  TURNS,
  Prompts,
  Rollout,
)  # fmt: skip

WAIT = 1.0  # seconds between two looks at environments of which none answers


@dataclasses.dataclass
class Bank:
  """Slots that decode together."""

  first: int  # number of its first slot among those of all banks
  slots: Slots
  reader: Reader
  free: deque[int]
  players: dict[int, Player] = dataclasses.field(default_factory=dict)  # by slot
  acting: set[int] = dataclasses.field(default_factory=set)  # slots whose action goes on
  paces: deque[float] = dataclasses.field(default_factory=lambda: deque([0.0], maxlen=2))  # seconds of turns

  @property
  def due(self) -> int:
    """Returns the slots whose environment has yet to answer."""
    return sum(player.waits for player in self.players.values())

  @property
  def ready(self) -> int:
    """Returns the slots that have something to read or to decode."""
    return len(self.acting) + sum(bool(player.unread) for player in self.players.values())


class Game:
  """One rollout under way, until all trajectories have ended or `stopped`, which any thread may decide."""

  def __init__(
    self, table: Table, environments: Environments, params, prompts: Prompts, key, counters: Counter,
    stopped: Callable[[], bool] = lambda: False,
  ):  # fmt: skip
    self.table, self.environments, self.params, self.prompts = table, environments, params, prompts
    self.key, self.counters, self.stopped = table.device.replicate(key), counters, stopped
    P, G = len(prompts.id), table.budgets.group_size
    self.queue = deque((row, sample) for row in range(P) for sample in range(G))
    self.seeds = np.asarray(_seeds(self.key, prompts.id, G))
    self.ended: list[dict[int, Trajectory]] = [{} for _ in range(P)]  # by prompt and sample
    self.banks = [self._bank(number) for number in range(table.device.banks)]

  def _bank(self, number: int) -> Bank:
    device = self.table.device
    reader = Reader(device, self.table.budgets, self.params, self.prompts, self.key, self.counters)
    return Bank(number * device.slots, device.empty(), reader, deque(range(device.slots)))

  def play(self) -> Iterator[tuple[np.ndarray, Rollout]]:
    """Yields (number of the prompt [1], its trajectories [1, G, ...]) of each group that has ended."""
    while not self.stopped() and (self.queue or any(bank.players for bank in self.banks)):
      for bank in self.banks:
        self._turn(bank)
        yield from self._groups()

  def _turn(self, bank: Bank) -> None:
    """Has a bank read all that it has not, and decode a segment."""
    while bank.free and self.queue:
      self._seat(bank, bank.free.popleft(), *self.queue.popleft())
    self._listen(bank)
    begun = time.perf_counter()
    bank.slots, acting = bank.reader(bank.slots, bank.players)
    bank.acting |= acting
    if bank.acting:
      sent = self._send(bank)
      self._take_answers(self.environments.poll())  # while the device decodes
      self._take_actions(bank, *sent)
      bank.paces.append(time.perf_counter() - begun)

  def close(self) -> None:
    """Ends the episodes that were not played to their end."""
    for bank in self.banks:
      for slot in bank.players:
        self.environments.end(bank.first + slot)

  def _seat(self, bank: Bank, slot: int, row: int, sample: int) -> None:
    """Gives a free slot the next trajectory."""
    bank.reader.leave(slot)
    prompt = bank.reader.prompt(row)
    bank.players[slot] = Player(row, sample, Trajectory(), prompt, asked=time.perf_counter())
    self.environments.reset(bank.first + slot, self.prompts.example[row], int(self.seeds[row, sample]))

  def _send(self, bank: Bank):
    """Sends a segment of decode steps on its way; returns what it makes."""
    device = self.table.device
    playing = np.isin(np.arange(device.slots), list(bank.acting))
    bank.slots, taken, fed = device.act(
      self.params, bank.slots, device.replicate(np.int32(device.segment)), device.put(playing)
    )
    return bank.slots, taken, fed

  def _listen(self, bank: Bank) -> None:
    """Takes in what environments have answered, and waits for more of them as long as that pays.

    A segment takes as long for few slots of a bank as for all.  So those who could go on wait for the others,
    at most as long as a turn takes, times the share of these.  Where nobody could, in any bank, the first
    answer is waited for.
    """
    begun, since = time.perf_counter(), None
    self._take_answers(self.environments.poll())
    while (due := bank.due) and not self.stopped():
      left, now, ready = WAIT, time.perf_counter(), bank.ready
      if ready:
        since = since or now
        pace = min(bank.paces)  # of two turns, as one may have compiled
        left = since + pace * due / (due + ready) - now
      elif any(other.ready for other in self.banks):
        break
      if left <= 0:
        break
      self._take_answers(self.environments.wait(left))
    self.counters["environment/idle_seconds"] += time.perf_counter() - begun

  def _take_answers(self, answers: list[tuple[int, Turn]]) -> None:
    for number, turn in answers:
      bank, slot = divmod(number, self.table.device.slots)
      self._answer(self.banks[bank], slot, turn)

  def _take_actions(self, bank: Bank, slots: Slots, taken, fed) -> None:
    """Fetches the segment, and hands the actions that have ended to their environments."""
    steps, fed, acting, count, actions, logp, entropy = jax.device_get(
      (taken, fed, slots.acting, slots.count, slots.actions, slots.logp, slots.entropy)
    )
    self.counters["rollout/decode_steps"] += int(steps)
    self.counters["rollout/slot_steps"] += int(steps) * self.table.device.slots
    self.counters["rollout/fed_slot_steps"] += int(fed)
    for slot in sorted(slot for slot in bank.acting if not acting[slot]):
      bank.acting.remove(slot)
      player, n = bank.players[slot], int(count[slot])
      player.held += n - 1  # no step has fed its last token yet
      player.trajectory.act(*(x[slot, :n].tolist() for x in (actions, logp, entropy)))
      action = player.trajectory.action
      player.action = text.decode_action(self.table.tokenizer, action, self.table.eos_ids)
      self.counters["rollout/sampled_tokens"] += n
      self._ask(bank.first + slot, player)

  def _ask(self, number: int, player: Player) -> None:
    """Sends a player's action to its environment, once that has answered what it was asked before."""
    if player.action is None or player.waits:
      return
    self.environments.step(number, player.action)
    player.action, player.waits, player.asked = None, True, time.perf_counter()

  def _answer(self, bank: Bank, slot: int, turn: Turn) -> None:
    """Takes in what an environment says: the result of an action or, after a reset, where the task begins."""
    player = bank.players[slot]
    one, player.waits = player.trajectory, False
    self.counters["environment/steps"] += 1
    self.counters["environment/seconds"] += time.perf_counter() - player.asked
    ending = FAILED if turn.failure or (turn.ended and not one.anchors) else None
    if ending == FAILED:
      console.say_once(f"An environment failed: {turn.failure or 'it had ended before the first action'}.")
    if one.anchors and ending is None:
      one.finish_turn(turn.reward, turn.valid)
      ending = self._ending(one, turn)
      if ending is None:
        ending = self._observe(player, turn)
    if ending is not None:
      self._end(bank, slot, ending)
      return
    one.anchors.append(turn.text if turn.anchor is None else turn.anchor)
    self._ask(bank.first + slot, player)

  def _ending(self, one: Trajectory, turn: Turn) -> int | None:
    """Returns why no turn may follow, None if one may."""
    budgets = self.table.budgets
    if turn.done or turn.truncated:
      return DONE if turn.done else TRUNCATED
    if len(one.rewards) == budgets.turns:
      return TURNS
    if budgets.invalid_actions and one.invalid_in_a_row == budgets.invalid_actions:
      return INVALID
    return None

  def _observe(self, player: Player, turn: Turn) -> int | None:
    """Appends an observation, if there is room for it and an action behind it; else returns the ending."""
    one, budgets, tokenizer = player.trajectory, self.table.budgets, self.table.tokenizer
    observation, cut = dialogue.fitted(tokenizer, turn.text, budgets.observation_tokens)
    self.counters["environment/cut_observations"] += cut
    newest = one.tokens[-1]
    tokens, closing = dialogue.between(tokenizer, observation, newest, turn.role)
    if budgets.memory:
      return self._remember(player, tokens)
    if budgets.room(one) <= len(tokens):
      return TOKENS
    one.see(tokens[:closing], INJECTED)
    one.see(tokens[closing:], OBSERVATION)
    player.unread = [newest, *tokens]
    return None

  def _remember(self, player: Player, tokens: list[int]) -> int | None:
    """Begins a context of the prompt, the turns remembered and these tokens; see `_observe`."""
    one, budgets = player.trajectory, self.table.budgets
    action = dialogue.in_history(self.table.tokenizer, one.action)
    seen = one.remember(action, tokens, budgets.memory)
    if len(seen) >= min(budgets.context_tokens, budgets.max_tokens - len(one.tokens)):
      return TOKENS
    one.begin_context(seen, new=len(tokens))
    player.held, player.unread = 0, [*self.banks[0].reader.prompt(player.row), *seen]
    return None

  def _end(self, bank: Bank, slot: int, ending: int) -> None:
    """Takes a trajectory off its slot."""
    player = bank.players.pop(slot)
    player.trajectory.ending = ending
    self.ended[player.row][player.sample] = player.trajectory
    bank.acting.discard(slot)
    bank.free.append(slot)
    self.environments.end(bank.first + slot)
    self.counters["environment/failures"] += ending == FAILED
    self.counters["rollout/responses"] += 1
    one = player.trajectory
    own = len(one.tokens) - one.repeated
    self.counters["rollout/row_tokens"] += int(self.prompts.length[player.row]) + own

  def _groups(self) -> Iterator[tuple[np.ndarray, Rollout]]:
    """Yields the groups that are whole, once."""
    budgets = self.table.budgets
    for row, found in enumerate(self.ended):
      if len(found) == budgets.group_size:
        group = [found.pop(sample) for sample in range(budgets.group_size)]
        yield np.array([row]), to_rollout(group, *budgets.shape)


@functools.partial(jax.jit, static_argnums=2)
def _seeds(key, prompt_id: np.ndarray, group_size: int):
  """Returns [P, G] uint32 below 2^31: what chance does in each episode, by the address of its trajectory."""

  def one(prompt, sample):
    own = jax.random.fold_in(jax.random.fold_in(key, prompt), sample)
    return jax.random.bits(jax.random.fold_in(own, np.uint32(2**32 - 1))) >> 1  # turns are numbered from 0

  samples = jnp.arange(group_size)
  return jax.vmap(lambda prompt: jax.vmap(functools.partial(one, prompt))(samples))(prompt_id)
