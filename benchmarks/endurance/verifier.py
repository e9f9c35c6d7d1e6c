"""Rewards that fail as verifiers do: they raise, give NaN, hang, or die.

Which completions they fail on is decided by the text alone, so that a run which is disturbed and one which is
not exclude the same rows.  All have weight 0 beside the job's own reward.
"""

import os
import signal
import time
import zlib
from pathlib import Path

from grpojax.rewards import pool

SHARES = {"raises": 64, "gives_nan": 64, "hangs": 1024, "dies": 512}  # one in so many completions
LOG = "ENDURANCE_SAMPLED"  # environment variable: the file that `seen` writes


def _hit(what: str, text: str) -> bool:
  return zlib.crc32(f"{what} {text}".encode()) % SHARES[what] == 0


def raises(sample) -> float:
  if _hit("raises", sample.text):
    raise RuntimeError("a planted fault")
  return 0.0


def gives_nan(sample) -> float:
  return float("nan") if _hit("gives_nan", sample.text) else 0.0


def hangs(samples, *, timeout: float = 2.0) -> list:
  """Hangs for ever on some samples, in a worker that is killed after `timeout` seconds."""
  return _in_workers("hangs", samples, timeout)


def dies(samples, *, timeout: float = 20.0) -> list:
  """Dies on some samples, with its worker."""
  return _in_workers("dies", samples, timeout)


def _in_workers(what: str, samples, timeout: float) -> list:
  asked = [[what, sample.text] for sample in samples]
  return pool.call(f"{__name__}:check", asked, timeout=timeout, workers=1)


def check(what: str, text: str) -> float:
  """Checks one text in a worker."""
  if _hit(what, text):
    if what == "dies":
      os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)
  return 0.0


def seen(samples) -> list:
  """Notes the samples: a line for each completion."""
  with Path(os.environ[LOG]).open("a") as file:
    lines = (f"{s.example['question']!r} {s.length} {s.ended} {s.text!r}\n" for s in samples)
    file.write("".join(lines))
  return [0.0] * len(samples)
