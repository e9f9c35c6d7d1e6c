"""A run that has been trained: what it measured, and the policy of its newest checkpoint."""

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from grpojax.data import pipeline, templates, text
from grpojax.rollout import sampler
from grpojax.rollout.sampler import Engine
from grpojax.runtime import console, data_shards, metrics, storage
from grpojax.tools import export
from grpojax.train import policy as policy_lib
from grpojax.train import setup
from grpojax.train.setup import Job


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run that grpojax.run has made: its records, and its policy to sample from and to export."""

  job: Job
  finished: bool  # False: it was asked to stop and has saved; the same call goes on

  @property
  def workdir(self) -> Path:
    """Returns the absolute folder with report.html, metrics.jsonl and the checkpoints."""
    return self.job.workdir

  @property
  def metrics(self):
    """Returns the training steps' records: a pandas DataFrame by step, or without pandas a list of dicts."""
    with storage.mirror(self.workdir) as (files, _):
      steps = [record for record in metrics.read(files) if record["kind"] == "train"]
    if not importlib.util.find_spec("pandas"):
      return steps
    import pandas  # here: it is no dependency

    return pandas.DataFrame(steps).set_index("step")

  @functools.cached_property
  def params(self) -> dict:
    """Returns the trained parameters, adapters merged, on the run's mesh."""
    return self._checkpoint[1]

  @functools.cached_property
  def _checkpoint(self) -> tuple[int, dict]:
    """Returns (the step of the newest checkpoint, its parameters)."""
    return export.checkpoint_params(self.workdir, self.job.model, self.job.mesh)

  def generate(
    self,
    prompts: Sequence[str],
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
  ) -> list[str]:
    """Returns a completion of each prompt, asked in the run's own template.

    `temperature` 0 is greedy; `max_tokens` is the most that a completion has.  config.eval has what is not
    given.  Raises ValueError for a prompt of more than config.data.prompt_budget tokens.
    """
    asked, c, job = self._encode(prompts), self.job.config, self.job
    heat = c.eval.temperature if temperature is None else temperature
    engine = self._engine(max_tokens or c.eval.max_tokens, float(heat))
    params, shards, P = engine.sync_weights(self.params), data_shards.of(job.mesh), c.rollout.prompts
    found = []
    for start in range(0, len(asked.prompts), P):
      rows = np.minimum(np.arange(start, start + P), len(asked.prompts) - 1)  # the last batch repeats a row
      batch = pipeline.take(asked, shards.local(rows), job.data.tokenizer.pad_token_id)
      rollout, _ = engine.whole(params, batch, jax.random.key(seed))
      found += [one for (one,) in text.decode(job.data.tokenizer, rollout.tokens, rollout.length)]
    return found[: len(asked.prompts)]

  def export(
    self, folder: str | os.PathLike, dtype: str = "bfloat16", push: str = "", public: bool = False
  ) -> Path:
    """Writes the policy to a new folder, for transformers and vLLM, as `grpojax export` does; returns it.

    `push`, org/name, is a repository of the hub to which the folder is uploaded too; `public`: a new one is
    public, not private.  Raises ValueError in one sentence.
    """
    if dtype not in export.DTYPES:
      raise ValueError(f"export(dtype='{dtype}') must be one of {', '.join(export.DTYPES)}.")
    out = storage.local(folder, "export(folder)").absolute()
    asked = export.Asked(self.workdir, out, dtype, push=push, public=public)
    export.check(asked)
    step, params = self._checkpoint
    export.write(asked, self.job.config, self.job.model, step, params)
    if url := export.upload(asked, step):
      console.say(f"{out} is at {url}")
    return out

  @functools.cache  # noqa: B019 (the programs of a run live as long as it does)
  def _engine(self, max_tokens: int, temperature: float) -> Engine:
    c, job = self.job.config, self.job
    spec = sampler.build.eval_spec(c)
    sampling = spec.sampling._replace(temperature=temperature)
    spec = spec._replace(group_size=1, max_tokens=max_tokens, sampling=sampling)
    model, ends = job.model._replace(lora=None), policy_lib.eos_ids(c, job.data.tokenizer)
    return sampler.build.build(c, "generation", model, job.mesh, ends, spec)

  def _encode(self, prompts: Sequence[str]) -> pipeline.Split:
    """Returns the prompts as the run's own are asked, each at most the budget long."""
    if isinstance(prompts, str) or not prompts:
      raise ValueError("generate() takes a list of prompts, at least one.")
    c = self.job.config.data
    form = setup.prompt_form(self.job.config, self.job.data.tokenizer)
    records = [{"question": prompt} for prompt in prompts]
    tokens = templates.encode(form, self.job.data.tokenizer, records)
    longest = max(map(len, tokens))
    if longest > c.prompt_budget:
      raise ValueError(
        f"A prompt has {longest} tokens, and this run reads config.data.prompt_budget = {c.prompt_budget}."
      )
    ids = np.arange(len(tokens), dtype=np.int32)
    return pipeline.Split("prompts", records, tokens, ids, c.prompt_budget, 0)
