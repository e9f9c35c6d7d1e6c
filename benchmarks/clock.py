"""Calls timed in turns: a machine that slows down slows all of them."""

import time

import jax
import numpy as np

SETTLING = 2  # runs of each that are not counted: they compile, and take their memory


def interleaved(calls: dict, rounds: int) -> dict[str, dict]:
  """name -> medians of seconds, by the wall and of all threads: one run of each in turn, `rounds` times."""
  timed = {name: [] for name in calls}
  for number in range(SETTLING + rounds):
    for name, call in calls.items():
      wall, cpu = time.perf_counter(), time.process_time()
      jax.block_until_ready(call())
      if number >= SETTLING:
        timed[name].append((time.perf_counter() - wall, time.process_time() - cpu))
  medians = {name: np.median(times, axis=0) for name, times in timed.items()}
  return {name: dict(wall=float(wall), cpu=float(cpu)) for name, (wall, cpu) in medians.items()}
