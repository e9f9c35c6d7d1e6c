"""Trajectories of many turns: tokens computed, turns a second, and how long environments are waited for.

    python -m benchmarks.agents

The sampler of trajectories as a job builds it, with environments in processes of their own that take no
time but what they are told to.  The model of `workload` with the embedded tokenizer's vocabulary, float32, as
it is initialised: its tokens are near uniform, so that most actions have their budget of tokens.

A cache that goes on from turn to turn stands beside a fresh prefill every turn (`config.env.memory`, as long
as the trajectory), at 2 and at 20 turns.  Both must sample the same tokens.  And as many environments as
slots take 0, 10 and 100 ms a step, which must change no token.  Timings are interleaved, one run of each in
turn.  Writes benchmarks/results/agents.json and the table in docs/performance.md.
"""

import argparse
import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from benchmarks import workload
from benchmarks.clock import said, summary
from benchmarks.setting import keep, report, setting, where
from grpojax import models
from grpojax.data import dialogue, text
from grpojax.recipes import base
from grpojax.rollout import sampler, turns
from grpojax.rollout.envs.pool import Pool
from grpojax.runtime import sharding
from grpojax.types import ACTION, Prompts

FRESH, SLOW = 3.0, 1.3  # targets: times as fast as a fresh prefill at 20 turns; as long at most as with 0 ms
L = 40  # tokens of a prompt, template included
ENVIRONMENT = "benchmarks.waiting:Waiting"


class Sizes(NamedTuple):
  """Sizes of the games that are measured."""

  slots: int  # of the first part, trajectories of one rollout, 8 a prompt
  turns: tuple[int, int]  # of the first part
  environments: int  # of the second part, and its slots
  steps: int  # turns of the second part
  action: int  # tokens
  letters: int  # of an observation, a token each
  seconds: tuple[float, ...]  # that a step takes
  model: dict  # sizes that are others than the workload's


FULL = Sizes(16, (2, 20), 64, 8, 16, 40, (0.0, 0.01, 0.1), {})
_SMALL = dict(hidden_size=16, num_hidden_layers=1, head_dim=4, intermediate_size=16)
TINY = Sizes(8, (1, 2), 8, 2, 4, 5, (0.0, 0.01), _SMALL)


@functools.cache
def pool() -> Pool:
  return Pool(ENVIRONMENT)


def prompts(count: int, turns: int, seconds: float, letters: int, tokenizer) -> Prompts:
  """Makes prompts of L tokens, whose rows say how long environments take."""
  rng = np.random.default_rng(0)
  tokens, length = np.zeros((count, L), np.int32), np.zeros(count, np.int32)
  asked = ["".join(chr(97 + i) for i in rng.integers(0, 26, L - 8)) for _ in range(count)]
  rows = text.encode_chats(tokenizer, [[dict(role="user", content=question)] for question in asked])
  for row, out in zip(rows, tokens, strict=True):
    out[L - len(row) :] = row
  length[:] = [len(row) for row in rows]
  example = dict(turns=turns, seconds=seconds, letters=letters)
  return Prompts(tokens, length, np.arange(count, dtype=np.int32), [example] * count)


def rollout_of(sizes: Sizes, slots: int, most: int, fresh: bool) -> Callable:
  """Returns sample(turns, seconds) -> Rollout, counts of the work; trajectories have at most `most` turns."""
  tokenizer, c = text.load_tokenizer(), base.get_config()
  c.model = workload.architecture()
  c.model.update(sizes.model)
  between = len(dialogue.between(tokenizer, "x", -1)[0])
  whole = most * (sizes.action + sizes.letters + between)
  c.data.prompt_budget = L
  c.rollout.update(prompts=slots // 8, group_size=8, max_tokens=whole * (most if fresh else 1), slots=slots)
  c.env.update(name=ENVIRONMENT, turns=most, action_tokens=sizes.action, observation_tokens=sizes.letters)
  c.env.memory = most if fresh else 0
  model, mesh = models.build(c.model, len(tokenizer)), sharding.make_mesh(c.mesh)
  spec = sampler.build.rollout_spec(c)
  given = dict(tokenizer=tokenizer, environments=pool, thread=ThreadPoolExecutor(1))
  engine = turns.build.build(c, "rollout", model, mesh, (tokenizer.eos_token_id,), spec, **given)
  params = jax.jit(model.init)(jax.random.key(0))

  def sample(played: int, seconds: float):
    asked = prompts(slots // 8, played, seconds, sizes.letters, tokenizer)
    return engine.whole(params, asked, jax.random.key(1))

  return sample


def calls(sizes: Sizes) -> dict[tuple, Callable]:
  """Returns (part, what) -> a call that samples one rollout."""
  made = {}
  for count in sizes.turns:
    for name, fresh in ("cache goes on", False), ("fresh prefill", True):
      sample = rollout_of(sizes, sizes.slots, count, fresh)
      made[f"{count} turns", name] = functools.partial(sample, count, 0.0)
  sample = rollout_of(sizes, sizes.environments, sizes.steps, False)
  for seconds in sizes.seconds:
    part = f"{sizes.environments} environments, {sizes.steps} turns"
    made[part, f"{1000 * seconds:g} ms a step"] = functools.partial(sample, sizes.steps, seconds)
  return made


def measured(made: dict[tuple, Callable], rounds: int) -> dict:
  """Returns part -> what -> numbers.  Raises ValueError where a part's calls sample other tokens."""
  found, timed = {}, {key: [] for key in made}
  for number in range(1 + rounds):  # the first compiles
    for (part, name), call in made.items():
      begun = time.perf_counter()
      rollout, counts = call()
      if number:
        timed[part, name].append((time.perf_counter() - begun, counts["environment/idle_seconds"]))
        continue
      n = rollout.length.size
      computed = counts["rollout/prompt_tokens"] + counts["rollout/fed_slot_steps"]
      played = int(rollout.turns.count.sum())
      row = dict(computed=computed / n, tokens=counts["rollout/row_tokens"] / n, turns=played)
      actions = rollout.tokens[rollout.kind == ACTION]
      first = next(iter(found.setdefault(part, {}).values()), row | dict(actions=actions))
      if not np.array_equal(first["actions"], actions):
        raise ValueError(f"{part}: '{name}' sampled other tokens.")
      found[part][name] = row | dict(actions=actions)
  for (part, name), pairs in timed.items():
    wall, idle = np.transpose(pairs)
    row = found[part][name]
    del row["actions"]
    row |= summary(wall) | dict(idle=float(np.median(idle / wall)))
    row["turns_per_second"] = row["turns"] / row["wall"]
  return found


def table(found: dict) -> str:
  """Returns the table, and whether the targets are reached."""
  lines = [
    "| trajectories | sampler or environments | tokens computed, of tokens | wall (quartiles) | turns/s |"
    " device idle | time, first = 1 |",
    "|---|---|---|---|---|---|---|",
  ]
  for part, rows in found.items():
    first = next(iter(rows.values()))
    for name, r in rows.items():
      cells = [f"{r['computed']:,.0f} of {r['tokens']:,.0f}", said(r), f"{r['turns_per_second']:.0f}"]
      cells += [f"{100 * r['idle']:.0f} %", f"{r['wall'] / first['wall']:.2f}"]
      lines.append(f"| {part} | {name} | {' | '.join(cells)} |")
  *_, turned, waited = found.values()
  ratio = lambda rows: list(rows.values())[-1]["wall"] / next(iter(rows.values()))["wall"]
  reached = lambda yes: "reached" if yes else "**not reached**"
  fresh, slow = ratio(turned), ratio(waited)
  return "\n".join([
    *lines,
    "",
    f"A fresh prefill takes {fresh:.2f} times as long in the longest trajectories (≥ {FRESH:g}: "
    f"{reached(fresh >= FRESH)}); the slowest environments take {slow:.2f} times as long as the quickest "
    f"(≤ {SLOW:g}: {reached(slow <= SLOW)}).",
  ])  # fmt: skip


def main(arguments: list[str] | None = None):
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--rounds", type=int, default=4)
  args = parser.parse_args(arguments)
  try:
    found = measured(calls(FULL), args.rounds)
  finally:
    pool().close()
  now = setting("benchmarks.agents") | {"rounds": args.rounds}
  keep("agents", now | {"parts": found})
  report("agents", f"{table(found)}\n\n{where(now)}")


if __name__ == "__main__":
  main()
