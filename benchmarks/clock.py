"""Calls timed in turns: a machine that slows down slows all of them."""

import time

import jax
import numpy as np

SETTLING = 2  # runs of each that are not counted: they compile, and take their memory


def interleaved(calls: dict, rounds: int) -> dict[str, dict]:
  """Returns name -> medians of seconds, by the wall and of all threads, and the wall's quartiles.

  The calls take turns, `rounds` times.
  """
  timed = {name: [] for name in calls}
  for number in range(SETTLING + rounds):
    for name, call in calls.items():
      wall, cpu = time.perf_counter(), time.process_time()
      jax.block_until_ready(call())
      if number >= SETTLING:
        timed[name].append((time.perf_counter() - wall, time.process_time() - cpu))
  times = {name: np.transpose(pairs) for name, pairs in timed.items()}
  return {name: summary(wall) | dict(cpu=float(np.median(cpu))) for name, (wall, cpu) in times.items()}


def summary(seconds) -> dict:
  """Returns median and quartiles, by the wall."""
  low, wall, high = np.percentile(seconds, (25, 50, 75))
  return dict(wall=float(wall), low=float(low), high=float(high))


def said(t: dict) -> str:
  """Formats the median by the wall (and quartiles), in seconds."""
  return f"{t['wall']:.3f} s ({t['low']:.3f}-{t['high']:.3f})"
