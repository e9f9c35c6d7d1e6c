"""Scripted environments in this process, and a small policy that plays them."""

import functools
from collections import Counter

import jax
import numpy as np

from grpojax import models
from grpojax.data import text
from grpojax.recipes import base
from grpojax.rollout.envs.interface import Turn
from grpojax.rollout.sampler import SamplingParams, turns
from grpojax.rollout.turns.game import Game
from grpojax.rollout.turns.table import Budgets, Device, Table
from grpojax.types import Prompts

L, T, A, READERS = 12, 90, 6, 2
BUDGETS = Budgets(
  group_size=2, max_tokens=T, turns=5, action_tokens=A, observation_tokens=8, invalid_actions=0
)


class Scripted:
  """Environments whose answers are a function of (example, seed, actions), at once or late, in any order."""

  def __init__(self, script, delay=0, order=1):
    self.script, self.delay, self.order = script, delay, order
    self.episodes, self.due, self.clock, self.log = {}, {}, 0, []

  def reset(self, slot, example, seed):
    self.episodes[slot] = (example, seed, [])
    self._ask(slot)

  def step(self, slot, action):
    assert slot in self.episodes and slot not in self.due, "no episode waits for an action"
    self.episodes[slot][2].append(action)
    self._ask(slot)

  def _ask(self, slot):
    example, seed, actions = self.episodes[slot]
    self.log.append((example["uid"], seed, tuple(actions)))
    self.due[slot] = (self.clock + self.delay, self.script(example, seed, list(actions)))

  def end(self, slot):
    self.episodes.pop(slot, None)
    self.due.pop(slot, None)

  def poll(self):
    self.clock += 1
    ready = sorted(slot for slot, (when, _) in self.due.items() if when < self.clock)[:: self.order]
    return [(slot, self.due.pop(slot)[1]) for slot in ready]

  def wait(self, timeout):
    assert self.due, "nothing is due"
    while not (answers := self.poll()):
      pass
    return answers

  def close(self):
    self.episodes.clear()


def counting(example, seed, actions):
  """Three to five turns; what it says depends on the seed and on what was done."""
  n = len(actions)
  length = sum(map(len, actions))
  return Turn(
    f"{seed % 10}:{length % 7}", reward=n / 4, done=n >= 3 + seed % 3, anchor=length % 2, valid=length > 2
  )


@functools.cache
def policy():
  """(tokenizer, model, parameters): one layer, sharper than random, so that what was read matters."""
  config, tokenizer = base.get_config("tiny").model, text.load_tokenizer()
  config.num_hidden_layers = 1
  model = models.build(config, len(tokenizer))
  params = model.init(jax.random.key(0))
  return tokenizer, model, params | {"embedding": params["embedding"] * 10}


def prompts(count=3) -> Prompts:
  tokenizer, rng = policy()[0], np.random.default_rng(0)
  rows = text.encode_chats(tokenizer, [[dict(role="user", content="a" * (1 + n))] for n in range(count)])
  tokens, length = np.zeros((count, L), np.int32), np.array([len(row) for row in rows], np.int32)
  for out, row in zip(tokens, rows, strict=True):
    out[L - len(row) :] = row
  ids = rng.permutation(100)[:count].astype(np.int32)
  return Prompts(tokens, length, ids, [dict(uid=int(i)) for i in ids])


@functools.cache
def programs(slots, action_tokens=A, columns=L + T):
  tokenizer, model, _ = policy()
  made = turns.build(
    model, slots=slots, readers=min(READERS, slots), columns=columns, prompt_columns=L,
    action_tokens=action_tokens, sampling=SamplingParams(), eos_ids=(tokenizer.eos_token_id,),
  )  # fmt: skip
  return tuple(map(jax.jit, made))


def table(slots=4, chunk=3, segment=3, budgets=BUDGETS, banks=1) -> Table:
  tokenizer = policy()[0]
  columns = L + max(T, budgets.context_tokens or budgets.max_tokens)
  made = programs(slots, max(A, budgets.action_tokens), columns)
  same = lambda x: x
  device = Device(*made, slots, chunk, min(READERS, slots), segment, same, same, banks=banks)
  return Table(device, budgets, tokenizer, (tokenizer.eos_token_id,))


def play(
  script=counting, delay=0, order=1, seed=0, count=3, environments=None, device=None, params=None, **options
):
  """All groups, joined in the order of their prompts, and the counts of the work."""
  counters = Counter()
  environments = environments or Scripted(script, delay, order)
  at = table(**options)
  at = at._replace(device=device) if device else at
  game = Game(at, environments, params or policy()[2], prompts(count), jax.random.key(seed), counters)
  numbers, parts = zip(*game.play(), strict=True)
  order = np.argsort(np.concatenate(numbers))
  return jax.tree.map(lambda *x: np.concatenate(x)[order], *parts), counters
