"""The workload in Tunix' GRPOLearner with its own ("vanilla") sampler.  Written for google-tunix 0.1.7.

    python on_tunix.py FOLDER BETA
"""

import os
import sys
from importlib import metadata

import serve  # first: what follows prints

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import workload as w
from transformers import AutoTokenizer
from tunix.models.llama3 import model as llama3_model
from tunix.models.llama3 import params as llama3_params
from tunix.models.qwen2 import model as qwen2_model
from tunix.models.qwen2 import params as qwen2_params
from tunix.rl import rl_cluster as rl
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rollout import base_rollout


def reward(prompts, completions, **_):
  return [w.even_share(text) for text in completions]


def load(folder: str, mesh):
  c = w.MODEL
  shapes = dict(
    num_layers=c["num_hidden_layers"], vocab_size=c["vocab_size"], embed_dim=c["hidden_size"],
    hidden_dim=c["intermediate_size"], num_heads=c["num_attention_heads"],
    head_dim=c["hidden_size"] // c["num_attention_heads"], num_kv_heads=c["num_key_value_heads"],
    rope_theta=c["rope_theta"], norm_eps=c["rms_norm_eps"],
  )  # fmt: skip
  if c["model_type"] == "llama":
    config = llama3_model.ModelConfig(weight_tying=c["tie_word_embeddings"], **shapes)
    return llama3_params.create_model_from_safe_tensors(folder, config, mesh, dtype=jnp.float32)
  config = qwen2_model.ModelConfig(use_tied_embedding=c["tie_word_embeddings"], **shapes)
  return qwen2_params.create_model_from_safe_tensors(folder, config, mesh, dtype=jnp.float32)


def sampling(eos) -> base_rollout.RolloutConfig:
  return base_rollout.RolloutConfig(
    max_tokens_to_generate=w.NEW, max_prompt_length=w.PROMPT, kv_cache_size=w.PROMPT + w.NEW,
    temperature=1.0, top_p=1.0, top_k=None, eos_tokens=eos,
  )  # fmt: skip


def build(folder: str, beta: float) -> GRPOLearner:
  mesh = jax.make_mesh((1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
  optimizer = optax.chain(
    optax.clip_by_global_norm(w.CLIP_NORM),
    optax.adamw(w.LEARNING_RATE, b1=w.B1, b2=w.B2, weight_decay=0.0),
  )
  training = rl.RLTrainingConfig(
    actor_optimizer=optimizer, eval_every_n_steps=10**9, max_steps=10**9
  )
  roles = (rl.Role.ACTOR, rl.Role.ROLLOUT, *([rl.Role.REFERENCE] if beta else []))
  cluster = rl.ClusterConfig(
    role_to_mesh=dict.fromkeys(roles, mesh), rollout_engine="vanilla", offload_to_cpu=False,
    training_config=training, rollout_config=sampling([-1]),
  )  # fmt: skip
  engine = rl.RLCluster(
    actor=load(folder, mesh), reference=load(folder, mesh) if beta else None,
    tokenizer=AutoTokenizer.from_pretrained(folder), cluster_config=cluster,
  )  # fmt: skip
  config = GRPOConfig(num_generations=w.GROUP, num_iterations=1, beta=beta, epsilon=w.EPSILON)
  return GRPOLearner(rl_cluster=engine, algo_config=config, reward_fns=reward)


def rollout(engine, prompts: list[str], eos, size=w.PROMPTS * w.GROUP):
  """Returns a call that samples `prompts` in batches of `size`, each until all its rows have ended."""

  def call() -> int:
    useful = 0
    for start in range(0, len(prompts), size):
      tokens = engine.rollout.generate(prompts[start : start + size], sampling(eos)).tokens
      useful += sum(min(len(row) + 1, w.NEW) for row in tokens)  # it leaves the EOS out
    return useful

  return call


def logprobs(engine):
  """Returns a call of the reference's pass over 64 x 128 tokens."""
  rows = w.PROMPTS * w.GROUP
  rng = np.random.default_rng(0)
  prompt, response = (
    jnp.asarray(rng.integers(0, 256, (rows, n)), jnp.int32) for n in (w.PROMPT, w.NEW)
  )

  def call() -> int:
    tokenizer = engine.rollout
    jax.block_until_ready(engine.get_ref_per_token_logps(
      prompt_tokens=prompt, completion_tokens=response, pad_id=tokenizer.pad_id(),
      eos_id=tokenizer.eos_id(), micro_batch_size=rows,
    ))  # fmt: skip
    return 0

  return call


def main():
  folder, beta = sys.argv[1], float(sys.argv[2])
  learner = build(folder, beta)
  questions = w.questions(512)
  repeated = [text for text in questions[: w.HEAVY_PROMPTS] for _ in range(w.GROUP)]
  engine = learner.rl_cluster
  calls = {
    "rollout": rollout(engine, repeated[: w.PROMPTS * w.GROUP], [-1]),
    "heavy": rollout(engine, repeated, list(w.HEAVY_EOS)),
    "logprobs": logprobs(engine),
  }
  calls |= {f"rollout{n}": rollout(engine, repeated[:n], [-1], n) for n in w.SIZES}
  settle = lambda: jax.block_until_ready(jax.live_arrays())
  versions = {"google-tunix": metadata.version("google-tunix")}
  gate, step = serve.Gate(calls, settle, versions | {"jax": jax.__version__}), learner._run_global_step

  def gated(*args, **kwargs):
    gate()
    return step(*args, **kwargs)

  learner._run_global_step = gated
  starts = range(0, len(questions), w.PROMPTS)
  batches = [{"prompts": np.array(questions[i : i + w.PROMPTS])} for i in starts]
  learner.train(batch for _ in range(10**6) for batch in batches)


if __name__ == "__main__":
  main()
