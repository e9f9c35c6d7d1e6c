"""Sampling, grading and writing: a policy on its suites, batch by batch.

Every draw is keyed by (seed, suite, question, sample index), and a batch has the same questions in
every run, so that an evaluation that was killed ends with the numbers of one that was not.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import rewards
from grpojax.config import check as config_lib
from grpojax.config.schema import flatten
from grpojax.data import pipeline, text
from grpojax.models import Model
from grpojax.runtime import console, data_shards, processes, sharding
from grpojax.tools.evaluate import items, policy, suites
from grpojax.tools.evaluate.policy import Policy
from grpojax.tools.evaluate.suites import Suite
from grpojax.train import auto, setup, shared
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib

# What the items depend on, beside the parameters and the questions.
SETTINGS = (
  "seed", "eval.temperature", "eval.top_k", "eval.top_p", "eval.min_p", "eval.samples", "eval.max_tokens",
  "data.template", "data.system", "data.chat", "data.prompt_budget", "model.dtype", "model.head_dtype",
)  # fmt: skip


class Job(NamedTuple):
  """An evaluation that is ready to start: its config is checked, its questions are read."""

  config: ConfigDict
  policy: Policy
  suites: list[Suite]
  notes: list[str]  # the dataset's sentences about the suites
  train: pipeline.Split | None  # to make the cold start from
  tokenizer: Any
  scorer: rewards.Rewards  # `accuracy`, and the one that picks
  best_of: str  # name of the reward that picks one of k answers; "" none
  mesh: Mesh
  model: Model
  sample: Callable  # (params, Prompts, key) -> Rollout on the host, counts of the work


def prepare(
  config: ConfigDict, checkpoint: str, wanted: list[str], limit: int | None, best_of: str = "",
  share: Callable | None = None,
) -> Job:  # fmt: skip
  """Checks the config and the checkpoint's name, and reads the questions.  Raises ValueError.

  `build` is as setup.prepare takes it.
  Collective: all processes must have the same code, config, checkpoint and questions.
  """
  flags = {"--checkpoint": checkpoint, "--suite": wanted, "--limit": limit, "--best_of": best_of}
  processes.check_devices()
  processes.assert_equal(lambda: processes.code() | flatten(config.to_dict(), "config.") | flags)
  evaluated, config = policy.find(checkpoint, config)
  config_lib.check(config, jax.device_count())
  if config.env.name:
    raise ValueError(
      f"config.env.name = '{config.env.name}': this command asks questions of one turn; a run with an "
      "environment is evaluated while it trains (config.eval)."
    )
  if best_of and best_of not in config.reward:
    raise ValueError(f"--best_of names '{best_of}', and config.reward has {', '.join(config.reward)}.")
  slots = {n: slot for n, slot in setup.reward_slots(config).items() if n in ("accuracy", best_of)}
  scorer = rewards.build(slots)
  tokenizer, path, read = setup.reader(config, scorer)

  def asked(name: str) -> pipeline.Split:
    split = read(name)
    return split if name == suites.TRAINING else pipeline.graded(split, scorer.has_verdict)

  chosen, notes = suites.find(config, path, asked, wanted, limit)
  train = None if evaluated.folder else read("train")
  read = lambda: {f"suite '{s.name}'": pipeline.fingerprint(s.questions) for s in chosen}
  processes.assert_equal(read)
  config = auto.choose_here(config)
  mesh = sharding.make_mesh(config.mesh)
  data_shards.check_sampler(mesh, sharding.sampler_mesh(config.mesh, mesh))
  model = policy_lib.build_model(config, tokenizer, mesh)._replace(lora=None)  # merged when they are read
  given = config, model, tokenizer, mesh
  sample = (share or shared.anew)(programs_lib.build, *given).sample_eval
  return Job(config, evaluated, chosen, notes, train, tokenizer, scorer, best_of, mesh, model, sample)


def begin(job: Job, out: Path) -> tuple[dict, dict]:
  """Returns (parameters, the items that `out` holds already: (suite, id) -> item).

  Raises ValueError where those items are of another policy, or of other settings or questions.
  """
  params = policy.load(job.policy, job.config, job.model, job.mesh, job.train, out)
  return params, resume(job, out, policy.fingerprint(params))


def resume(job: Job, out: Path, fingerprint: str) -> dict:
  """Returns the items that `out` holds already, (suite, id) -> item; raises ValueError as `begin`.

  `fingerprint` is that of the policy's parameters.
  """
  done = {}
  processes.on_process_0(lambda: done.update(_claimed(job, out, fingerprint)))
  return done


def _claimed(job: Job, out: Path, fingerprint: str) -> dict:
  """Returns the items that `out` holds already, if they are of this evaluation."""
  done = items.claim(out, settings(job.config, fingerprint, job.best_of))
  for suite in job.suites:
    for row, (one, record) in enumerate(zip(suite.ids, suite.questions.records, strict=True)):
      before, begun = done.get((suite.name, one)), suite.begun[row] if suite.begun else []
      if not before:
        continue
      if not all("tokens" in sample for sample in before["samples"]):
        raise ValueError(f"--out={out} has answers without their tokens; choose another --out.")
      alike = all(sample["tokens"][: len(begun)] == begun for sample in before["samples"])
      if not alike or not _asked(record).items() <= before.items():
        raise ValueError(f"--out={out}: question {one} of {suite.name} has changed; choose another --out.")
  return done


def run(job: Job, out: Path, params, done: dict) -> dict[str, list[dict]]:
  """Samples the questions without an item.  Returns suite -> its items, on process 0 ({} elsewhere)."""
  batches = [(suite, rows) for suite in job.suites for rows in _batches(job, suite)]
  missing = [any((suite.name, suite.ids[row]) not in done for row in rows) for suite, rows in batches]
  missing = processes.broadcast(np.array(missing))  # the others hold no items
  start = int((~missing).sum())
  if start:
    console.say(f"{start} of {len(batches)} batches are in {out} already")
  with console.bar(len(batches), start, job.config.verbose, "batch") as progress:
    for number, at in enumerate(np.flatnonzero(missing), start + 1):
      found = {(item["suite"], item["id"]): item for item in answer(job, params, *batches[at])}
      new = {key: item for key, item in found.items() if key not in done}
      items.append(out, list(new.values()))
      done |= new
      console.advance(progress, number, {}, "batch")
  return {s.name: [done[s.name, one] for one in s.ids] for s in job.suites} if done else {}


def answer(job: Job, params, suite: Suite, rows: np.ndarray) -> list[dict]:
  """Returns the items of these questions, on process 0; every process samples and grades its shard."""
  P, pad = job.config.rollout.prompts, job.tokenizer.pad_token_id
  filled = rows[np.minimum(np.arange(P), len(rows) - 1)]  # the last batch repeats a row
  shards = data_shards.of(job.mesh)
  prompts = pipeline.take(suite.questions, shards.local(filled), pad)
  rollout, _ = job.sample(params, prompts, jax.random.key(job.config.seed))
  tokens, length = rollout.tokens, rollout.length
  if suite.begun:
    tokens, length = _behind(suite.begun, shards.local(filled), tokens, length)
  texts = text.decode(job.tokenizer, tokens, length)
  completions = rewards.samples(prompts.example, texts, length, rollout.ended)
  graded = rewards.score(job.scorer, completions)
  if graded.first_error:
    console.say_once(graded.first_error)
  # Texts cannot be gathered, tokens can: process 0 decodes them all.
  name = job.best_of or "accuracy"
  verdict, score = (graded.accuracy, graded.known["accuracy"]), (graded.parts[name], graded.known[name])
  seen = shards.gather((tokens, length, rollout.ended, *verdict, *score))
  if jax.process_index():
    return []
  return [item(job, suite, row, *(array[at] for array in seen)) for at, row in enumerate(rows)]


def _behind(begun: tuple[list[int], ...], rows: np.ndarray, tokens, length) -> tuple[np.ndarray, np.ndarray]:
  """Returns (tokens [P, n, W + T], length [P, n]) of answers, with what their prompts have of them."""
  P, n, T = tokens.shape
  whole = np.zeros((P, n, max(map(len, begun)) + T), tokens.dtype)
  for p, row in enumerate(rows):
    front = begun[row]
    whole[p, :, : len(front)], whole[p, :, len(front) : len(front) + T] = front, tokens[p]
  return whole, length + np.array([[len(begun[row])] for row in rows], length.dtype)


def item(job: Job, suite: Suite, row: int, tokens, length, ended, accuracy, graded, score, scored) -> dict:
  """Returns one line of items.jsonl, of one question: tokens [n, T], the others [n]."""
  record = suite.questions.records[row]
  texts = text.decode(job.tokenizer, tokens, length)
  right = [bool(a == 1) if known else None for a, known in zip(accuracy, graded, strict=True)]
  samples = [
    dict(
      text=t, answer=job.scorer.answer(t), right=r, length=int(size), ended=bool(end),
      tokens=tokens[i, :size].tolist(),
    )
    for i, (t, r, size, end) in enumerate(zip(texts, right, length, ended, strict=True))
  ]
  if job.best_of:
    for sample, value, known in zip(samples, score, scored, strict=True):
      sample["score"] = float(value) if known else None
  return dict(
    suite=suite.name,
    id=suite.ids[row],
    **_asked(record),
    n=len(samples),
    correct=sum(r is True for r in right),
    samples=samples,
  )


def _asked(record: dict) -> dict[str, str]:
  return dict(question=record["question"], answer=str(record.get("answer", "")))


def settings(config: ConfigDict, fingerprint: str, best_of: str = "") -> dict:
  """Returns the settings that decide the items, by config key."""
  flat = flatten(config.to_dict(), "config.")
  sampled = {key: flat[key] for key in (f"config.{name}" for name in SETTINGS)}
  rewards = tuple(f"config.reward.{name}." for name in ("accuracy", best_of) if name)
  graded = {key: value for key, value in flat.items() if key.startswith(rewards)}
  return {"fingerprint of the policy": fingerprint} | sampled | graded


def _batches(job: Job, suite: Suite) -> list[np.ndarray]:
  rows = np.arange(len(suite.ids))
  return np.split(rows, rows[:: job.config.rollout.prompts][1:])
