"""What slots read, and where an action begins: a prompt once for the slots of a shard that play it.

The first of them reads it.  All sample from the hidden state that it leaves, and copy its columns of the
cache; so does who comes later, as long as some slot of the shard has them.  Everything is read to its end
before any slot decodes: a step of decoding costs for few what it costs for all.
"""

from collections import Counter
from typing import NamedTuple

import jax
import numpy as np

from grpojax.rollout.sampler.turns import Chunk, Slots, Start
from grpojax.rollout.turns.table import Budgets, Device, Player
from grpojax.types import Prompts


class _End(NamedTuple):
  """Place at which a slot's reading has ended."""

  hidden: jax.Array  # [R, width] of the call that read the last token
  place: int  # of R


class Reader:
  """Prefill of new text, of one rollout."""

  def __init__(self, device: Device, budgets: Budgets, params, prompts: Prompts, key, counters: Counter):
    self.device, self.budgets, self.params, self.prompts = device, budgets, params, prompts
    self.key, self.counters = key, counters
    self.ends: dict[tuple[int, int], _End] = {}  # by prompt and shard, where it has been read
    self.holds: dict[int, int] = {}  # by slot: the prompt whose columns it has
    self.started: set[int] = set()  # slots whose player has its prompt

  def prompt(self, row: int) -> list[int]:
    """Returns the tokens of a prompt."""
    tokens = self.prompts.tokens
    return tokens[row, tokens.shape[1] - self.prompts.length[row] :].tolist()

  def leave(self, slot: int) -> None:
    """Notes that another trajectory takes the slot."""
    self.started.discard(slot)

  def __call__(self, slots: Slots, players: dict[int, Player]) -> tuple[Slots, set[int]]:
    """Has slots read all that they have not; returns those, too, which begin an action behind it."""
    unread = [slot for slot, player in players.items() if player.unread]
    for slot in set(unread) - self.started:
      if self.holds.get(slot) != players[slot].row:  # others may not take what is about to be overwritten
        self.holds.pop(slot, None)
    followers, leads = [], set()
    for slot in unread:
      key = self._key(slot, players[slot])
      if slot not in self.started and (key in leads or self._source(slot, players[slot]) is not None):
        followers.append(slot)
      elif slot not in self.started:
        leads.add(key)
    slots, ends = self._read([slot for slot in unread if slot not in followers], slots, players)
    for slot in ends.keys() - self.started:
      self.ends[self._key(slot, players[slot])], self.holds[slot] = ends[slot], players[slot].row
    starts = {slot: (end, slot) for slot, end in ends.items()}
    for slot in followers:
      player = players[slot]
      starts[slot] = self.ends[self._key(slot, player)], self._source(slot, player)
      player.held, player.unread = len(player.unread), []
    for slot in starts:
      self.holds[slot] = players[slot].row
    self.started |= starts.keys()
    return self._begin(starts, slots, players), set(starts)

  def _key(self, slot: int, player: Player) -> tuple[int, int]:
    return player.row, self.device.shard(slot)

  def _source(self, slot: int, player: Player) -> int | None:
    """Returns a slot of the same shard that has the player's prompt, None if there is none."""
    shard = self.device.shard(slot)
    found = (s for s, row in self.holds.items() if row == player.row and self.device.shard(s) == shard)
    return next(found, None)

  def _read(
    self, reading: list[int], slots: Slots, players: dict[int, Player]
  ) -> tuple[Slots, dict[int, _End]]:
    """Has these slots read to the end, chunk by chunk."""
    device, ends = self.device, {}
    R, W = device.readers, device.chunk
    while reading:
      for places in device.places(reading):
        chunk = Chunk(np.full(R, self._nobody), np.zeros((R, W), np.int32), *np.zeros((2, R), np.int32))
        for place, slot in places.items():
          player = players[slot]
          part, player.unread = player.unread[:W], player.unread[W:]
          chunk.slot[place], chunk.start[place] = slot % self._nobody, player.held
          chunk.tokens[place, : len(part)], chunk.length[place] = part, len(part)
          player.held += len(part)
        slots, hidden = device.read(self.params, slots, device.put(chunk))
        ends |= {slot: _End(hidden, place) for place, slot in places.items()}
        self.counters["rollout/prefill_columns"] += R * W
        self.counters["rollout/prompt_tokens"] += int(chunk.length.sum())
      reading = [slot for slot in reading if players[slot].unread]
    return slots, ends

  def _begin(self, starts: dict[int, tuple[_End, int]], slots: Slots, players: dict[int, Player]) -> Slots:
    """Samples first tokens; `starts` has for each slot where its reading ended, and whose prompt it takes."""
    device, R, by_call = self.device, self.device.readers, {}
    for slot, (end, _) in starts.items():
      by_call.setdefault(id(end.hidden), []).append(slot)
    for places in (places for together in by_call.values() for places in device.places(together)):
      start = Start(np.full(R, self._nobody), *np.zeros((7, R), np.int32))
      for place, slot in places.items():
        player, (end, source) = players[slot], starts[slot]
        start.slot[place], start.reader[place] = slot % self._nobody, end.place % (R // device.shards)
        start.source[place], start.position[place] = source % self._nobody, player.held
        start.cap[place] = min(self.budgets.action_tokens, self.budgets.room(player.trajectory))
        start.prompt[place], start.sample[place] = self.prompts.id[player.row], player.sample
        start.turn[place] = len(player.trajectory.rewards)
      slots = device.begin(self.params, slots, end.hidden, self.key, device.put(start))
    return slots

  @property
  def _nobody(self) -> np.int32:
    """Returns the number of slots of a shard, which is no slot's number there."""
    return np.int32(self.device.slots // self.device.shards)
