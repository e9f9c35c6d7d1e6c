"""A cold start of three updates on eight demonstrations, and what it gave at the last VERSION of it.

    python tests/cold_start_toy.py        writes tests/data/cold_start.json anew
"""

import json
import tempfile
from pathlib import Path

import jax
import numpy as np

from grpojax.data import pipeline, text
from grpojax.recipes import base
from grpojax.runtime import checksums, metrics, sharding
from grpojax.train import cold_start
from grpojax.train import policy as policy_lib

RECORD = Path(__file__).parent / "data" / "cold_start.json"
TOKENIZER = text.load_tokenizer()
SHOWN = 8  # elements of each array, evenly spaced


def config():
  c = base.get_config("tiny")
  c.verbose, c.mesh.data, c.rollout.max_tokens = False, 1, 24
  c.cold_start.update(steps=3, batch_size=4, warmup_steps=1, learning_rate=0.02)
  return c


def split() -> pipeline.Split:
  """Sums with demonstrations of three lengths, whatever the embedded task asks today."""
  rows = [
    dict(question=f"{7 * i}+{i}=?", answer=f"{8 * i}", demonstration="+" * (i % 3) + f"={8 * i}#{8 * i}")
    for i in range(8)
  ]
  prompts = text.encode_texts(TOKENIZER, [row["question"] for row in rows])
  return pipeline.Split("train", rows, prompts, np.arange(8, dtype=np.int32), budget=16, dropped=0)


def model(c):
  return policy_lib.build_model(c, TOKENIZER, sharding.make_mesh(c.mesh))


def run() -> dict:
  """What the cold start gives, as it is recorded."""
  c = config()
  with tempfile.TemporaryDirectory() as folder:
    with metrics.Writer(Path(folder)) as writer:
      params = cold_start.train(c, model(c), sharding.make_mesh(c.mesh), split(), TOKENIZER, writer)
    (record,) = metrics.read(Path(folder))
  leaves = zip(checksums.paths(params), map(np.ravel, jax.tree.leaves(params)), strict=True)
  shown = {name: x[:: max(1, x.size // SHOWN)][:SHOWN].astype(float).round(6).tolist() for name, x in leaves}
  return {"version": cold_start.VERSION, "loss": round(record["loss"], 5), "parameters": shown}


if __name__ == "__main__":
  RECORD.write_text(json.dumps(run(), indent=1) + "\n")
