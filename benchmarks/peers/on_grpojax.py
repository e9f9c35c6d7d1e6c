"""The workload in grpojax: the real command line, `train.prepare` and `train.run`.

    python on_grpojax.py FOLDER WHAT --config.cache_dir=CACHE ...      WHAT as in recipe.py

Two things are put into the job: every rollout waits at the gate, and the workload says what ends a
response.
"""

import itertools
import sys
import tempfile
from pathlib import Path

import serve  # first: what follows prints

from benchmarks import ends
from benchmarks.peers import workload as w
from grpojax import train
from grpojax.config import commandline

import jax  # isort: skip  (after the command line has set its environment)

HERE = Path(__file__).parent


def prepared(folder: Path, what: str, flags: list[str]):
  sys.argv[1:] = [  # where ml_collections looks for overrides
    f"--config={HERE / 'recipe.py'}:{what}", f"--config.model.path={folder}",
    f"--config.data.path={folder.parent / 'prompts.jsonl'}", *flags,
  ]  # fmt: skip
  config = commandline.start(commandline.parse(sys.argv))
  job = train.prepare(config, Path(tempfile.mkdtemp()))
  eos = w.HEAVY_EOS if what in ("heavy", "static") else (w.VOCAB,)
  return job.with_programs(ends.programs(config, job.model, job.data.tokenizer, job.mesh, eos))


def remembering(calls: dict, name: str, fn, before=lambda: None):
  """Returns fn, which leaves in calls[name] the arguments of its last call."""

  def call(*args, **kwargs):
    calls[name] = args, kwargs
    before()
    return fn(*args, **kwargs)

  return call


def main():
  folder, what, *flags = sys.argv[1:]
  job = prepared(Path(folder), what, flags)
  programs, last = job.programs, {}
  batches = w.HEAVY_PROMPTS // w.PROMPTS if what == "static" else 1
  draws = itertools.count()

  def rollout() -> int:
    (params, prompts, key, *rest), kwargs = last["sample"]
    useful = 0
    for draw in itertools.islice(draws, batches):
      key = jax.random.fold_in(key, draw)
      sampled, _ = programs.sample.finish(programs.sample.start(params, prompts, key, *rest, **kwargs))
      useful += int(sampled.length.sum())
    return useful

  def logprobs() -> int:
    args, kwargs = last["logp"]  # of a reference, whose parameters are still there
    jax.block_until_ready(programs.logp(*args, **kwargs))
    return 0

  gate = serve.Gate(
    {"rollout": rollout, f"rollout{what}": rollout, "heavy": rollout, "logprobs": logprobs},
    lambda: jax.block_until_ready(jax.live_arrays()),
    {"jax": jax.__version__},
  )
  gated = programs._replace(
    sample=programs.sample._replace(start=remembering(last, "sample", programs.sample.start, gate)),
    sample_eval=programs.sample,
    logp=remembering(last, "logp", programs.logp),
  )
  train.run(job.with_programs(gated))


if __name__ == "__main__":
  main()
