"""A run of supervised fine-tuning: what it takes of a config, its first loss, resume, layouts, adapters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax.data import messages
from grpojax.models import hf
from grpojax.recipes import base, spo
from grpojax.runtime import checkpointer, metrics
from grpojax.tools import export
from grpojax.train import checkpoint, offline, sft, supervised
from grpojax.train import policy as policy_lib
from grpojax.train.sft import run_config

ROWS = 24


def config(cache, tmp_path, **changes):
  """Sums with answers of several lengths, in a file; a policy that has learned nothing."""
  rows = []
  for i in range(ROWS):
    question, answer = f"{i}+{i % 7}=?", "1+1=2;" * (i % 4) + f"#{i + i % 7}"
    rows.append(dict(messages=[dict(role="user", content=question), dict(role="assistant", content=answer)]))
  messages.write(tmp_path / "chats.jsonl", rows)
  c = base.get_config("tiny")
  c.update(cache_dir=str(cache), verbose=False)
  c.mesh.data, c.cold_start.steps = 1, 0
  c.sft.update(path=str(tmp_path / "chats.jsonl"), learning_rate=0.01, batch_size=8)
  c.eval.update(every=100, prompts=4, samples=4)
  with c.unlocked():
    c.update_from_flattened_dict(changes)
  return c


def test_what_rl_is_told_means_nothing_to_it():
  c = run_config(spo.get_config("tiny"))
  plain = run_config(base.get_config("tiny"))
  kept = ("name", "rollout", "eval")
  same = [key for key in plain if key not in kept]
  assert {key: c[key] for key in same} == {key: plain[key] for key in same}
  assert c.objective.surrogate.fn == "reinforce" and c.objective.advantage.fn == "raw"
  assert (c.steps, c.optimizer.learning_rate) == (c.sft.steps, c.sft.learning_rate)


@pytest.mark.parametrize(
  "changes, sentence",
  [
    ({"sft.batch_size": 25}, "config.sft.batch_size = 25 is more than the 24 rows of split 'sft'; lower it"),
    ({"rows": "single", "microbatches": 2, "sft.batch_size": 9}, "= 9 must be divisible by 2, the mesh's sh"),
    ({"sft.path": "/none.jsonl"}, "config.sft.path = '/none.jsonl' is not on this machine"),
    ({"sft.optimizer": "sgd", "optimizer.b1": 0.5}, "config.optimizer.b1 = 0.5: sgd has no b1"),
  ],
)
def test_one_sentence_before_anything_compiles(cache, tmp_path, changes, sentence):
  with pytest.raises(ValueError, match=sentence):
    sft.prepare(config(cache, tmp_path, **changes), tmp_path / "run")


@pytest.mark.parametrize("shards, microbatches, rows", [(1, 32, 1), (1, 2, 4), (2, 2, 2), (4, 1, 2)])
def test_a_microbatch_has_its_share_of_the_most_rows(shards, microbatches, rows):
  c = base.get_config("tiny")
  c.update(microbatches=microbatches)
  spec = offline.pack_spec(c, shards, "sft", (8, 1))
  assert (spec.rows, spec.shards) == (rows, shards) and not spec.shared
  assert spec.columns == c.data.prompt_budget + c.rollout.max_tokens - 1


class Killed(Exception):
  """Stands for SIGKILL: nothing is saved once it is raised."""


def losses(workdir):
  return [r["sft/loss"] for r in metrics.read(workdir) if r["kind"] == "train"]


def final(c, workdir):
  job = sft.prepare(c, workdir)
  checkpoints = checkpointer.open_checkpoints(workdir, 2)
  try:
    return jax.tree.map(np.asarray, checkpointer.latest(checkpoints, *checkpoint.tree_layout(job))[0])
  finally:
    checkpoints.close()


def nll(job, params, batch) -> float:
  """Mean −log p of the answers' tokens, in float64, from all logits at once."""
  tokens = np.asarray(batch.tokens[:, 0])
  L = tokens.shape[1] - batch.mask.shape[-1]
  total = 0.0
  decoder = job.model.bind(params)
  for row, prompt, length in zip(tokens, batch.prompt_length[:, 0], batch.length[:, 0], strict=True):
    own = row[L - prompt : L + length][None]
    hidden, _ = decoder.forward(jnp.asarray(own[:, :-1]), jnp.ones((1, own.shape[1] - 1), jnp.int32))
    logits = np.asarray(hidden, np.float64)[0] @ np.asarray(decoder.unembedding(), np.float64).T
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    total -= logp[np.arange(prompt - 1, own.shape[1] - 1), own[0, prompt:]].sum()
  return total / batch.length.sum()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_it_learns_goes_on_bit_for_bit_and_no_layout_of_rows_changes_a_loss(cache, tmp_path):
  c = config(cache, tmp_path)
  job = sft.prepare(c, tmp_path / "whole")
  assert sft.run(job)
  found = losses(tmp_path / "whole")
  assert len(found) == c.sft.steps and found[-1] < found[0]
  shown = supervised.Demonstrations(
    job.config, job.data.train, job.data.tokenizer, c.sft.batch_size, c.seed, job.config.rollout.max_tokens
  )
  batch, counts = supervised.batch_of(shown, 0, job.mesh)
  start = job.model.init(jax.random.key(c.cold_start.seed))
  assert found[0] == pytest.approx(nll(job, start, batch), rel=1e-5)
  assert counts["num_tokens"] == batch.length.sum()

  def kill(step, _):
    if step == 3:
      raise Killed

  with pytest.raises(Killed):
    sft.run(sft.prepare(c, tmp_path / "cut"), kill)
  assert sft.run(sft.prepare(c, tmp_path / "cut"))
  assert losses(tmp_path / "cut") == found
  jax.tree.map(np.testing.assert_array_equal, final(c, tmp_path / "cut"), final(c, tmp_path / "whole"))

  single = config(cache, tmp_path, rows="single", microbatches=2)
  assert sft.run(sft.prepare(single, tmp_path / "single"))
  assert losses(tmp_path / "single") == pytest.approx(found, rel=2e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_adapters_are_all_that_changes_and_are_exported_merged(cache, tmp_path):
  """From a folder, as a pipeline's stages do; the rows are packed."""
  c = config(cache, tmp_path, **{"lora.rank": 2})
  job = sft.prepare(c, tmp_path / "run")
  assert sft.run(job) and losses(tmp_path / "run")[-1] < losses(tmp_path / "run")[0]
  state = final(c, tmp_path / "run")[0]
  assert set(state.params) == {"adapters"}
  plain = job.model._replace(lora=None)
  _, merged = export.checkpoint_params(tmp_path / "run", plain, job.mesh)
  out = tmp_path / "policy"
  export.write_folder(merged, plain.spec, policy_lib.model_folder(job.config), out, 10**9, "float32")
  again = hf.load(out, plain, job.mesh)
  jax.tree.map(np.testing.assert_array_equal, again, merged)
