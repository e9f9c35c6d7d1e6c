"""A run on pairs of answers: its losses against float64, what it refuses, resume, layouts, adapters."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpojax import objective
from grpojax.data import pairs
from grpojax.learner import logprobs
from grpojax.recipes import base, spo
from grpojax.runtime import metrics, sharding
from grpojax.train import preference

ROWS = 12


def config(cache, tmp_path, **changes):
  """Sums, right and wrong, with answers of several lengths; a policy that has learned nothing."""
  lines = []
  for i in range(ROWS):
    record = dict(question=f"{i}+{i % 5}=?")
    right, wrong = f"#{i + i % 5}", "1+1=2;" * (i % 3) + f"#{i + 1 + i % 5}"
    lines.append(json.dumps(pairs.to_line(record, right, wrong)) + "\n")
  (tmp_path / "pairs.jsonl").write_text("".join(lines))
  c = base.get_config("tiny")
  c.update(cache_dir=str(cache), verbose=False)
  c.mesh.data, c.cold_start.steps = 1, 0
  c.rollout.update(max_tokens=20, segment=10)
  c.preference.update(path=str(tmp_path / "pairs.jsonl"), learning_rate=0.01)
  c.eval.update(every=100, prompts=4, samples=4)
  with c.unlocked():
    c.update_from_flattened_dict(changes)
  return c


def test_what_rl_is_told_means_nothing_to_it_but_the_reference():
  c = preference.run_config(spo.get_config("tiny"))
  assert c.objective.advantage.fn == "none" and not c.objective.penalty
  assert c.objective.preference.pairs.to_dict() == dict(fn="dpo", beta=0.1, coef=1.0)
  assert (c.steps, c.optimizer.learning_rate) == (c.preference.steps, c.preference.learning_rate)
  assert c.reference == "init" and c.difficulty.kind == ""
  free = base.get_config("tiny")
  free.preference.loss = dict(fn="simpo", beta=2.0, gamma=0.5)
  assert preference.run_config(free).reference == ""


REFUSED = {
  "config.preference.batch_size = 13 is more than the 12 pairs of": {"preference.batch_size": 13},
  "config.preference.path = '/none.jsonl' is not on this machine": {"preference.path": "/none.jsonl"},
  "config.preference.loss.fn = 'dop'": {"preference.loss": dict(fn="dop")},
  "config.preference.loss.beta = -0.5 must be": {"preference.loss.beta": -0.5},
  "config.preference.loss.beta = inf must be": {"preference.loss.beta": math.inf},
  "config.preference.loss: .*low": {"preference.loss": dict(fn="dpo", low=1.0)},
  "= 4 must be divisible by 3, the mesh's shards times config.m": {"rows": "single", "microbatches": 3},
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_one_sentence_before_anything_compiles(cache, tmp_path, sentence):
  c = config(cache, tmp_path, **REFUSED[sentence])
  if c.microbatches == 3:
    c.rollout.prompts = 6  # of RL, of which an update has three
  with pytest.raises(ValueError, match=sentence):
    preference.prepare(c, tmp_path / "run")


def sums(policy, model, batch, xp):
  """Σ log π [pairs, 2] by `xp`, numpy in float64 or jax, from all logits at once; a row for each answer."""
  tokens, prompt, length = (np.asarray(x) for x in (batch.tokens, batch.prompt_length, batch.length))
  L = tokens.shape[-1] - batch.mask.shape[-1]
  total, decoder = [], model.bind(policy)
  rows = np.stack([np.roll(tokens[at], prompt[at] - L) for at in np.ndindex(length.shape)])  # padding last
  logits = decoder(rows, np.zeros(len(rows), np.int32)) @ decoder.unembedding().T
  logits = np.asarray(logits, np.float64) if xp is np else logits
  logp = logits - xp.log(xp.exp(logits).sum(-1, keepdims=True))
  for row, at in enumerate(np.ndindex(length.shape)):
    places = np.arange(prompt[at], prompt[at] + length[at])
    total.append(logp[row, places - 1, rows[row, places]].sum())
  return xp.stack(total).reshape(-1, 2)


def loss_of(fn, s, ref, length, xp):
  """The papers' formulas, over pairs."""
  log_sigmoid = lambda x: -xp.log1p(xp.exp(-x))
  if fn == "dpo":
    gap = s - ref
    return -log_sigmoid(0.3 * (gap[:, 0] - gap[:, 1])).mean()
  if fn == "ipo":
    gap = (s - ref) / length
    return ((gap[:, 0] - gap[:, 1] - 1 / 0.6) ** 2).mean()
  each = s / length
  return -log_sigmoid(0.3 * (each[:, 0] - each[:, 1]) - 0.5).mean()


@pytest.mark.slow
@pytest.mark.parametrize("fn, rows", [("dpo", "packed"), ("ipo", "single"), ("simpo", "packed")])
def test_its_loss_and_gradient_are_those_of_the_formula_in_float64(cache, tmp_path, fn, rows):
  """Of a policy that has moved from its reference; each answer read alone, without packing or padding."""
  loss = dict(fn=fn, beta=0.3)
  c = config(cache, tmp_path, **{"preference.loss": loss, "rows": rows, "microbatches": 2})
  job = preference.prepare(c, tmp_path / "run")
  c, model = job.config, job.model
  start = jax.jit(model.init)(jax.random.key(0))
  moved = jax.tree.map(lambda x: x + 0.02 * jax.random.normal(jax.random.key(x.size), x.shape), start)
  batch, counts = preference.batch_of(c, job.data.train, job.data.tokenizer, 0, job.mesh, job.pack)
  assert counts["num_tokens"] == batch.length.sum() and counts["preference/cut"] == 0

  s, ref = (sums(policy, model, batch, np) for policy in (moved, start))
  assert np.abs(s - ref).max() > 0.1
  on_device = sharding.to_device(job.mesh, batch)
  reference = start if c.reference else None
  (given,) = logprobs.add_logprobs(job.programs.logp, None, reference, [on_device], False)
  if c.reference:
    np.testing.assert_allclose((given.ref_logp * batch.mask).sum(-1), ref, rtol=1e-5)
  learner = job.programs.fresh(jax.tree.map(jnp.copy, moved))
  made = sharding.everywhere(job.mesh, objective.build(c.objective))
  _, found = job.programs.update(learner, made, given, {})

  length = batch.length.astype(np.float64)
  np.testing.assert_allclose(found["loss"], loss_of(fn, s, ref, length, np), rtol=1e-5)
  seen = s - ref if c.reference else s / length
  close = dict(rtol=1e-3, atol=1e-5)
  np.testing.assert_allclose(found["preference/margin"], (seen[:, 0] - seen[:, 1]).mean(), **close)
  np.testing.assert_allclose(found["preference/chosen"], seen[:, 0].mean(), **close)
  assert found["preference/accuracy"] == (seen[:, 0] > seen[:, 1]).mean()
  direct = lambda policy: loss_of(fn, sums(policy, model, batch, jnp), ref, length, jnp)
  grad = jax.jit(jax.grad(direct))(moved)
  np.testing.assert_allclose(found["grad_norm"], optax.global_norm(grad), rtol=1e-4)


class Killed(Exception):
  """Stands for SIGKILL: nothing is saved once it is raised."""


def records(workdir, key):
  return [record[key] for record in metrics.read(workdir) if record["kind"] == "train"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_adapters_learn_go_on_bit_for_bit_and_keep_their_reference(cache, tmp_path):
  """The frozen parameters are the reference's, too."""
  c = config(cache, tmp_path, **{"preference.steps": 5, "preference.learning_rate": 0.05, "lora.rank": 2})
  assert preference.run(preference.prepare(c, tmp_path / "whole"))
  found = records(tmp_path / "whole", "loss")
  np.testing.assert_allclose(found[0], np.log(2), rtol=1e-5)  # where the policy is its reference
  assert found[-1] < 0.66 and records(tmp_path / "whole", "preference/accuracy")[-1] > 0.5

  def kill(step, _):
    if step == 3:
      raise Killed

  with pytest.raises(Killed):
    preference.run(preference.prepare(c, tmp_path / "cut"), kill)
  assert preference.run(preference.prepare(c, tmp_path / "cut"))
  assert records(tmp_path / "cut", "loss") == found
