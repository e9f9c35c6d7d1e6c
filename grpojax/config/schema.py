"""Lists the config keys in one table: what each may be, and whether a run that goes on may change it.

`configs/base.py` has every key's default, and so its kind.  What one key asks of another is in check.py.
"""

import math
from numbers import Real
from typing import Any, NamedTuple

from grpojax.learner import divergence, optimizer
from grpojax.models import REMAT, kernels
from grpojax.rollout import adaptive_groups


class Range(NamedTuple):
  """Numbers from `least` to `most`, both included."""

  least: float
  most: float
  refusal: str  # the end of the sentence "config.KEY = VALUE ..."
  above: bool = False  # `least` itself is refused

  def allows(self, value: Real) -> bool:
    """Returns True for a number of this range."""
    return self.least <= value <= self.most and not (self.above and value == self.least)


class Key(NamedTuple):
  """One row of the table; without a range and choices, any value of the default's kind is allowed."""

  range: Range | None = None
  choices: tuple[str, ...] = ()
  free: bool = False  # may differ between a run and its continuation
  open: bool = False  # a section with keys beside those that have rows: they follow from what is chosen there


def at_most(range_: Range, most: float) -> Range:
  """Returns the range with a last number, which is generous: what no machine or file has more of."""
  return range_._replace(most=most, refusal=f"{range_.refusal.removesuffix('.')}, and at most {most:,}.")


COUNT = Range(1, math.inf, "must be at least 1.")
AMOUNT = Range(0, math.inf, "must not be negative.")
POSITIVE = Range(0, math.inf, "must be positive.", above=True)
TOKENS = at_most(COUNT, 2**22)  # of a sequence, or read at a time
ROWS = at_most(COUNT, 2**20)  # of a batch
SLOTS = Range(-1, 2**20, f"must be -1, 0 or a number of slots, at most {2**20:,}.")
WORKERS = at_most(COUNT, 2**16)  # pieces of a batch, and other things that the host counts one by one
WIDTH = at_most(COUNT, 2**20)  # of an axis of the model
LAYERS = at_most(COUNT, 2**12)
EXPERTS = at_most(AMOUNT, 2**14)
GIGABYTES = at_most(AMOUNT, 10**6)
LEARNING_RATE = at_most(AMOUNT, 10**6)
MINUTES = at_most(AMOUNT, 60 * 24 * 366)  # a year; threads wait for no more than some hundreds
SHARE = Range(0, 1, "is a share, and lies in 0 to 1.")
DECAY = Range(0, 1 - 1e-6, "must lie in 0 to 0.999999; at 1 a moving average would never move.")
RATE = Range(0, 1, "is the weight of the new value, in (0, 1].", above=True)
TOP_P = Range(0, 1, "must lie in (0, 1]; 1 turns it off.", above=True)
MESH_AXIS = Range(-1, math.inf, "is no size of a mesh axis; set a positive one, or -1 for the rest.")
SAMPLER_AXIS = MESH_AXIS._replace(refusal="must be a size, 0 for no own mesh, or -1 to choose one.")
CPU_DEVICES = Range(1, 1024, "must lie in 1 to 1024.")
TEMPERATURE = Range(
  1e-6, math.inf, "must be positive, from 1e-6 on; greedy rollouts have no policy gradient (evaluation "
  "may use config.eval.temperature=0)."
)  # fmt: skip
PARTS = ("config", "data", "devices", "frozen", "run")  # of what a checkpoint stands on: train/manifest.py
DTYPES = ("float32", "bfloat16", "float16")

KEYS = {
  "name": Key(),
  "scale": Key(),  # base.get_config knows them
  "seed": Key(AMOUNT),
  "steps": Key(COUNT, free=True),
  "verbose": Key(free=True),
  "print_sharding": Key(free=True),
  "profile_steps": Key(AMOUNT, free=True),
  "cache_dir": Key(free=True),
  "log.to": Key(free=True),  # runtime/loggers knows the names
  "log.project": Key(free=True),
  "log.completions_every": Key(AMOUNT, free=True),

  "objective.advantage": Key(open=True),
  "objective.rescale": Key(open=True),
  "objective.ratio": Key(open=True),
  "objective.surrogate": Key(open=True),
  "objective.aggregate": Key(open=True),
  "objective.shape": Key(open=True),
  "objective.select": Key(open=True),
  "objective.correct": Key(open=True),
  "objective.veto": Key(open=True),
  "objective.batch_veto": Key(open=True),
  "objective.penalty": Key(open=True),
  "objective.component": Key(open=True),
  "objective.preference": Key(open=True),
  "teacher.path": Key(),
  "teacher.paths": Key(open=True),
  "teacher.column": Key(),
  "teacher.divergence": Key(choices=("", *divergence.KINDS)),
  "teacher.beta": Key(SHARE),
  "reference": Key(),  # check.py knows what it may be
  "reference_sync.every": Key(AMOUNT),
  "reference_sync.rate": Key(RATE),
  "kl_control.target": Key(AMOUNT),
  "kl_control.horizon": Key(COUNT),
  "baseline.kind": Key(choices=("", "mean", "prompt")),
  "baseline.rate": Key(RATE),
  "moment.kind": Key(choices=("", "step", "completion")),
  "moment.rate": Key(RATE),

  "rollout.prompts": Key(ROWS),
  "rollout.group_size": Key(ROWS),
  "rollout.max_tokens": Key(TOKENS),
  "rollout.temperature": Key(TEMPERATURE),
  "rollout.top_k": Key(AMOUNT),
  "rollout.top_p": Key(TOP_P),
  "rollout.min_p": Key(SHARE),
  "rollout.slots": Key(SLOTS),
  "rollout.prefill_chunk": Key(TOKENS),
  "rollout.segment": Key(TOKENS),
  "rollout.in_flight": Key(at_most(AMOUNT, TOKENS.most)),
  "rollout.in_flight_kv": Key(choices=("kept", "recomputed")),
  "rollout.kv_memory_gb": Key(GIGABYTES),
  "rollout.weights": Key(choices=("full", "int8")),
  "rollout.kv_cache": Key(choices=("full", "int8")),
  "interruption.think_tokens": Key(AMOUNT),
  "interruption.text": Key(),
  "interruption.unless": Key(),
  "env.name": Key(),  # rollout/envs/build.py finds it
  "env.knobs": Key(open=True),
  "env.turns": Key(WORKERS),
  "env.action_tokens": Key(TOKENS),
  "env.observation_tokens": Key(TOKENS),
  "env.memory": Key(AMOUNT),
  "env.invalid_actions": Key(AMOUNT),
  "env.success": Key(),
  "env.timeout": Key(POSITIVE, free=True),
  "staleness": Key(AMOUNT),

  "dynamic_sampling.enabled": Key(),
  "dynamic_sampling.max_tries": Key(WORKERS),
  "adaptive_group.stop": Key(choices=("", *adaptive_groups.STOPS)),
  "adaptive_group.rounds": Key(WORKERS),
  "adaptive_group.positive": Key(),
  "difficulty.kind": Key(choices=("", "ema", "beta")),
  "difficulty.rate": Key(RATE),
  "difficulty.offline": Key(AMOUNT),
  "difficulty.weighted": Key(),
  "difficulty.floor": Key(AMOUNT),
  "difficulty.drop_solved": Key(SHARE),
  "difficulty.too_hard": Key(SHARE),
  "difficulty.too_easy": Key(SHARE),

  "reward": Key(open=True),
  "process.scorer": Key(),
  "process.knobs": Key(open=True),
  "process.max_steps": Key(WORKERS),

  "routing_replay": Key(choices=("", "R2", "R3")),
  "load_balance": Key(AMOUNT),
  "updates_per_rollout": Key(ROWS),
  "rows": Key(choices=("packed", "single"), free=True),
  "microbatches": Key(at_most(AMOUNT, ROWS.most), free=True),
  "remat": Key(choices=("auto", "none", *REMAT), free=True),
  "attention": Key(choices=("auto", *kernels.BACKENDS), free=True),
  "logprob_chunk": Key(at_most(AMOUNT, TOKENS.most), free=True),
  "optimizer.fn": Key(choices=tuple(optimizer.RULES)),
  "optimizer.learning_rate": Key(LEARNING_RATE),
  "optimizer.warmup_steps": Key(AMOUNT),
  "optimizer.b1": Key(DECAY),
  "optimizer.b2": Key(DECAY),
  "optimizer.momentum": Key(DECAY),
  "optimizer.decay_rate": Key(SHARE),
  "optimizer.min_dim_size_to_factor": Key(COUNT),
  "optimizer.weight_decay": Key(AMOUNT),
  "optimizer.clip_norm": Key(POSITIVE),
  "optimizer.ess": Key(choices=("", "sqrt", "linear")),
  "optimizer.ess_base": Key(at_most(POSITIVE, 1)),
  "optimizer.state_dtype": Key(choices=("float32", "bfloat16")),

  "data": Key(open=True),  # beside the following, what the task's dataset builder takes
  "data.task": Key(),
  "data.prompt_budget": Key(TOKENS),
  "data.overlong_prompts": Key(choices=("drop", "error")),
  "data.template": Key(),
  "data.system": Key(),
  "data.chat": Key(),
  "data.split_special_tokens": Key(),
  "data.mixture": Key(open=True),

  "model.path": Key(),
  "model.hidden_size": Key(WIDTH),
  "model.num_hidden_layers": Key(LAYERS),
  "model.num_attention_heads": Key(WIDTH),
  "model.num_key_value_heads": Key(WIDTH),
  "model.head_dim": Key(WIDTH),
  "model.intermediate_size": Key(WIDTH),
  "model.rms_norm_eps": Key(AMOUNT),
  "model.rope_theta": Key(POSITIVE),
  "model.attention_bias": Key(),
  "model.tie_word_embeddings": Key(),
  "model.num_experts": Key(EXPERTS),
  "model.num_experts_per_tok": Key(EXPERTS),
  "model.moe_intermediate_size": Key(WIDTH),
  "model.norm_topk_prob": Key(),
  "model.dtype": Key(choices=DTYPES),
  "model.param_dtype": Key(choices=DTYPES),
  "model.head_dtype": Key(choices=("", "float32")),
  "lora.rank": Key(EXPERTS),
  "lora.alpha": Key(POSITIVE),
  "lora.modules": Key(),
  "lora.path": Key(),

  "mesh.data": Key(MESH_AXIS, free=True),
  "mesh.fsdp": Key(MESH_AXIS, free=True),
  "mesh.tensor": Key(MESH_AXIS, free=True),
  "mesh.expert": Key(MESH_AXIS, free=True),
  "mesh.context": Key(MESH_AXIS, free=True),
  "mesh.slices": Key(COUNT, free=True),
  "mesh.rollout_devices": Key(at_most(AMOUNT, 2**20), free=True),
  "mesh.sampler.tensor": Key(SAMPLER_AXIS, free=True),
  "mesh.sampler.expert": Key(AMOUNT, free=True),
  "mesh.rules.embed": Key(free=True),
  "mesh.rules.heads": Key(free=True),
  "mesh.rules.kv_heads": Key(free=True),
  "mesh.rules.mlp": Key(free=True),
  "mesh.rules.vocab": Key(free=True),
  "mesh.rules.expert": Key(free=True),
  "mesh.rules.layers": Key(free=True),
  "mesh.cpu_devices": Key(CPU_DEVICES, free=True),

  "cold_start.steps": Key(AMOUNT),
  "cold_start.batch_size": Key(ROWS),
  "cold_start.learning_rate": Key(LEARNING_RATE),
  "cold_start.warmup_steps": Key(AMOUNT),
  "cold_start.seed": Key(AMOUNT),
  "sft.path": Key(),
  "sft.steps": Key(COUNT),
  "sft.batch_size": Key(ROWS),
  "sft.optimizer": Key(choices=tuple(optimizer.RULES)),
  "sft.learning_rate": Key(LEARNING_RATE),
  "sft.warmup_steps": Key(AMOUNT),
  "preference.path": Key(),
  "preference.loss": Key(open=True),
  "preference.steps": Key(COUNT),
  "preference.batch_size": Key(ROWS),
  "preference.optimizer": Key(choices=tuple(optimizer.RULES)),
  "preference.learning_rate": Key(LEARNING_RATE),
  "preference.warmup_steps": Key(AMOUNT),
  "sample.rows": Key(choices=("answers", "pairs", "judgements")),
  "sample.by": Key(choices=("verifier", "judge", "demonstration")),
  "sample.prompts": Key(AMOUNT),
  "sample.samples": Key(ROWS),
  "sample.temperature": Key(AMOUNT),
  "sample.keep": Key(ROWS),
  "sample.balance": Key(choices=("none", "hard")),
  "judge.rubric": Key(),
  "judge.marker": Key(),
  "judge.most": Key(COUNT),
  "judge.samples": Key(ROWS),
  "judge.temperature": Key(AMOUNT),
  "judge.max_tokens": Key(TOKENS),
  "judge.prompt_budget": Key(TOKENS),

  "guard.nonfinite": Key(AMOUNT, free=True),
  "guard.spike": Key(AMOUNT),
  "guard.rate": Key(RATE),
  "guard.warn_mismatch": Key(AMOUNT, free=True),
  "guard.stop_mismatch": Key(AMOUNT, free=True),
  "guard.failed_rewards": Key(SHARE, free=True),
  "guard.minutes": Key(MINUTES, free=True),

  "eval.every": Key(COUNT, free=True),
  "eval.on_start": Key(free=True),
  "eval.split": Key(),
  "eval.prompts": Key(ROWS),
  "eval.samples": Key(ROWS),
  "eval.temperature": Key(AMOUNT),
  "eval.top_k": Key(AMOUNT),
  "eval.top_p": Key(TOP_P),
  "eval.min_p": Key(SHARE),
  "eval.max_tokens": Key(TOKENS),

  "checkpoint.every": Key(COUNT, free=True),
  "checkpoint.keep": Key(COUNT, free=True),
  "checkpoint.allow_changed": Key(choices=("", "all", *PARTS), free=True),
}  # fmt: skip
DATA_KEYS = tuple(key.removeprefix("data.") for key in KEYS if key.startswith("data."))  # of every task


def row(key: str) -> Key | None:
  """Returns the row of a key, or else of the nearest section around it; None where there is neither."""
  while key and key not in KEYS:
    key = key.rpartition(".")[0]
  return KEYS.get(key)


def flatten(tree: dict, prefix: str = "") -> dict[str, Any]:
  """Returns a config's values by the keys that the table has: {"a": {"b": 1}} -> {"a.b": 1}."""
  flat = {}
  for key, value in tree.items():
    if isinstance(value, dict):
      flat |= flatten(value, f"{prefix}{key}.")
    else:
      flat[f"{prefix}{key}"] = value
  return flat
