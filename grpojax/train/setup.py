"""Everything that is made once: data, model, programs.  Nothing here runs on the device yet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models
from grpojax.data import pipeline, templates, text
from grpojax.learner import update as learner
from grpojax.learner.packing import Packing
from grpojax.models import kernels, lora
from grpojax.objective import Objective, trackers
from grpojax.rewards import Rewards
from grpojax.rollout import sampler
from grpojax.rollout.sampler import Sampler, weights
from grpojax.rollout.sampler.weights import Weights
from grpojax.runtime import compiler_options, sharding, storage
from grpojax.runtime.compile import aot_jit
from grpojax.runtime.data_shards import SINGLE_PROCESS, ProcessShards


class Data(NamedTuple):
  tokenizer: Any
  train: pipeline.Split
  held_out: pipeline.Split
  stream: pipeline.Stream  # of this process's share of the training prompts


class Programs(NamedTuple):
  """Compiled at their first call; every shape is static."""

  sample: Sampler
  sample_eval: Sampler  # with config.eval's choice of tokens, budget and number of samples
  logp: Callable  # learner.make_old_logp's, of a whole optimiser batch
  update: Callable  # (state, objective, batch, frozen, limit) -> (state, metrics)
  fresh: Callable  # params -> State with a new optimiser
  follow: Callable  # (reference, params, rate) -> the reference that has moved towards the policy


class Job(NamedTuple):
  """A run that is ready to start: its config is legal, its data is read, nothing is compiled."""

  config: ConfigDict
  workdir: Path
  scorer: Rewards
  data: Data
  mesh: Mesh
  model: models.Model
  objective: Objective
  programs: Programs
  scorer_of_steps: Callable | None  # samples -> the steps of each
  first_pass: bool  # whether a step's first batch needs its log-probs before its update


def load_data(config: ConfigDict, needs: tuple[str, ...], shards: ProcessShards = SINGLE_PROCESS) -> Data:
  """Prepares and reads the dataset; `needs` are the fields that the rewards read."""
  tokenizer, _, read = reader(config, needs)
  train, held_out = read("train"), read(config.eval.split)
  train = pipeline.weigh(train, config.data.mixture)
  stream = pipeline.Stream(train, tokenizer, config.rollout.prompts, config.seed, shards.rank, shards.count)
  return Data(tokenizer, train, held_out, stream)


def reader(config: ConfigDict, needs: tuple[str, ...]) -> tuple[Any, Path, Callable[[str], pipeline.Split]]:
  """(the tokenizer, the folder of the prepared dataset, name of a split -> its rows)."""
  c = config.data
  tokenizer = text.load_tokenizer(model_folder(config))
  form = templates.build(c.template, c.system, c.chat)
  path = pipeline.prepare(c, Path(config.cache_dir) / "datasets")
  return tokenizer, path, lambda name: pipeline.load_split(c, path, name, tokenizer, needs, form)


def model_folder(config: ConfigDict) -> Path:
  """Where the policy's tokenizer is: the folder of the model, fetched from a bucket; or the embedded one."""
  if "path" not in config.model:
    return text.EMBEDDED
  return storage.fetch(config.model.path, "config.model.path", config.cache_dir)


def build_model(config: ConfigDict, tokenizer, mesh: Mesh | None = None) -> models.Model:
  """The architecture of the folder `config.model.path`, or the small one that `config.model` describes."""
  c, rules = config.model, config.mesh.rules.to_dict()
  if "path" in c:
    model = models.from_spec(models.from_folder(model_folder(config), c.dtype, c.param_dtype), mesh, rules)
  else:
    model = models.build(c, len(tokenizer), mesh, rules)
  # Tokenizer classes add special tokens of their own; those that are never used need no embedding.
  used = max(tokenizer.vocab_size, tokenizer.pad_token_id + 1, *(i + 1 for i in eos_ids(config, tokenizer)))
  if model.spec.vocab_size < used:
    raise ValueError(
      f"config.model.path = '{model_folder(config)}': the tokenizer has {used} tokens, and the model knows"
      f" {model.spec.vocab_size}; they do not belong together."
    )
  for key, off in ("routing_replay", ""), ("load_balance", 0.0):
    if config[key] != off and not model.spec.moe:
      raise ValueError(f"config.{key} = {config[key]!r} is for mixtures, and this is none; set {off!r}.")
  attention = kernels.choose(config.attention, model.spec, mesh)[0] if mesh else "reference"
  if config.rows == "grouped" and (model.spec.moe or attention != "reference"):
    who = "mixtures" if model.spec.moe else f"config.attention = '{attention}'"
    raise ValueError(f"config.rows = 'grouped' is not for {who}; set config.rows = 'packed'.")
  return with_adapters(config, model._replace(remat=config.remat, attention=attention))


def with_adapters(config: ConfigDict, model: models.Model) -> models.Model:
  """The model, and the adapters of `config.lora` if it asks for some."""
  return model._replace(lora=lora.build(config.lora, model.spec, model.axes, model.shapes))


def eos_ids(config: ConfigDict, tokenizer) -> tuple[int, ...]:
  """Every token that ends a response of the policy."""
  return text.eos_ids(tokenizer, model_folder(config))


def check_prompts(model: models.Model, *splits: pipeline.Split) -> None:
  """ValueError if a prompt has a token that the model does not know."""
  for split in splits:
    row = int(np.argmax([prompt.max() for prompt in split.prompts]))
    token = int(split.prompts[row].max())
    if token >= model.spec.vocab_size:
      raise ValueError(
        f"Row {split.ids[row]} of split '{split.name}' has token {token}, and config.model knows"
        f" {model.spec.vocab_size}; its tokenizer is another model's."
      )


def frozen_layout(model: models.Model, mesh: Mesh) -> dict:
  """Where the parameters live that no update changes; {} if all are trained."""
  return sharding.param_shardings(mesh, model.axes, model.shapes, model.rules) if model.lora else {}


def build_programs(config: ConfigDict, model: models.Model, tokenizer, mesh: Mesh) -> Programs:
  """Objective-independent: the objective is an argument of `update`."""
  schedule = learner.warmup_constant(config.optimizer)
  tx = learner.make_optimizer(config.optimizer, schedule)
  where, frozen = learner.state_shardings(model, tx, mesh), frozen_layout(model, mesh)
  everywhere, rows = sharding.replicated(mesh), sharding.batch_sharding(mesh)
  packing, logp = packing_of(config, mesh), _logp(config, model)
  make = lambda name, how: _sampler(config, name, model, tokenizer, mesh, *how)
  c = config.rollout
  record = config.routing_replay == "R3"
  train_how = c.group_size, c.max_tokens, sampler.Choice(c.temperature), record, (c.weights, c.kv_cache)
  c = config.eval
  choice = sampler.Choice(*(c[key] for key in sampler.Choice._fields))
  eval_how = c.samples, c.max_tokens, choice, False, ("full", "full")  # of the policy that is trained
  sample = make("rollout", train_how)
  return Programs(
    sample=sample,
    sample_eval=sample if eval_how == train_how else make("evaluation", eval_how),
    logp=aot_jit(
      "log-probs",
      learner.make_old_logp(logp, bool(config.routing_replay), packing),
      in_shardings=(frozen | where.params, *[rows] * 5),
      out_shardings=rows,
      compiler_options=compiler_options.options(mesh),
    ),
    update=aot_jit(
      "update",
      learner.make_update(
        logp, tx, schedule, config.microbatches, config.load_balance, packing, config.rows == "grouped"
      ),
      in_shardings=(where, everywhere, rows, frozen, everywhere),
      out_shardings=(where, everywhere),
      donate_argnums=0,
      compiler_options=compiler_options.options(mesh),
    ),
    fresh=jax.jit(lambda params: learner.fresh(params, tx), out_shardings=where),
    follow=jax.jit(
      lambda reference, params, rate: trackers.ema(reference, params, rate=rate),
      out_shardings=where.params,
      donate_argnums=0,
    ),
  )


def packing_of(config: ConfigDict, mesh: Mesh) -> Packing | None:
  """How an update's rows are packed; None: a row for each sequence."""
  if config.rows != "packed":
    return None
  shards = sharding.batch_shards(mesh)
  rows = config.rollout.prompts // config.updates_per_rollout * config.rollout.group_size // shards
  return Packing(config.rollout.max_tokens, shards, -(-rows // config.microbatches))


def _logp(config: ConfigDict, model: models.Model) -> Callable:
  how = dict(temperature=config.rollout.temperature, chunk=config.logprob_chunk)
  if config.rows == "packed":
    return learner.make_packed_logp(model, **how)
  make = learner.make_grouped_logp if config.rows == "grouped" else learner.make_logp
  return make(model, response_budget=config.rollout.max_tokens, **how)


def state_layout(config: ConfigDict, model: models.Model, mesh: Mesh):
  """(shapes, shardings) of the learner's state, for restoring a checkpoint."""
  tx = learner.make_optimizer(config.optimizer, learner.warmup_constant(config.optimizer))
  shapes = jax.eval_shape(lambda params: learner.fresh(params, tx), model.trained.shapes)
  return shapes, learner.state_shardings(model, tx, mesh)


def _policy_layout(model: models.Model, mesh: Mesh) -> dict:
  trained = sharding.param_shardings(mesh, model.trained.axes, model.trained.shapes, model.rules)
  return frozen_layout(model, mesh) | trained


def weights_of(config: ConfigDict, name: str, model: models.Model, mesh: Mesh, precision: str) -> Weights:
  """What samples, where, and of which parameters, for a learner on `mesh`."""
  return weights.build(config, name, model, mesh, _policy_layout(model, mesh), precision)


def _sampler(
  config, name, model, tokenizer, mesh, group_size, max_tokens, choice, record_routing, bits
) -> Sampler:
  precision, kv_cache = bits
  model, mesh, where, ready, _ = weights_of(config, name, model, mesh, precision)
  common = dict(
    group_size=group_size, max_tokens=max_tokens, choice=choice, eos_ids=eos_ids(config, tokenizer),
    record_routing=record_routing, kv_cache=kv_cache,
  )  # fmt: skip
  slots = slots_of(config, model, mesh, group_size, max_tokens, kv_cache)
  if slots:
    programs = _of_slots(config, name, model, mesh, where, slots, common)
    return sampler.engine.continuous(mesh, ready, *programs, slots, config.rollout.segment)
  everywhere, rows = sharding.replicated(mesh), sharding.batch_sharding(mesh)
  prefill, decode = sampler.static_batch.build(model, **common)
  of_prefill = dict(in_shardings=(where, rows, rows), compiler_options=compiler_options.options(mesh))
  of_decode = dict(compiler_options=compiler_options.options(mesh, decoding=True))
  of_decode |= dict(in_shardings=(where, rows, everywhere, rows))
  prefill = aot_jit(f"{name} prefill", prefill, **of_prefill, out_shardings=rows)
  decode = aot_jit(f"{name} decode", decode, **of_decode, out_shardings=rows)
  return sampler.engine.plain(mesh, ready, prefill, decode)


def _of_slots(config, name: str, model, mesh: Mesh, where, slots: int, common: dict) -> list[Callable]:
  """The programs of `sampler/slots.py`."""
  everywhere, rows = sharding.replicated(mesh), sharding.batch_sharding(mesh)
  kv = sharding.kv_sharding(mesh, model.spec.num_key_value_heads, model.rules)
  built = sampler.continuous.build(
    model,
    slots=slots,
    shards=sharding.batch_shards(mesh),
    prefill_chunk=config.rollout.prefill_chunk,
    kv_sharding=kv,
    piece_bytes=compiler_options.piece_bytes(mesh),
    **common,
  )
  places, state, report = sampler.continuous.layout(rows, everywhere, kv)
  asked, carried = (rows, rows, rows, everywhere), (places, state, rows)
  of_insert = dict(in_shardings=(where, *carried, *asked), out_shardings=carried, donate_argnums=(1, 2))
  of_advance = dict(in_shardings=(where, *carried, everywhere), out_shardings=(state, rows, report))
  of_advance |= dict(donate_argnums=2, compiler_options=compiler_options.options(mesh, decoding=True))
  (begin, insert, advance), how = built, dict(compiler_options=compiler_options.options(mesh))
  return [
    aot_jit(f"{name} prefill", begin, in_shardings=(where, *asked), out_shardings=carried, **how),
    aot_jit(f"{name} refill", insert, **of_insert, **how),
    aot_jit(f"{name} decode", advance, **of_advance),  # not donated: the rollout, which is being read
  ]


def slots_of(config: ConfigDict, model, mesh: Mesh, group_size: int, max_tokens: int, kv_cache: str) -> int:
  """Slots of a sampler on its whole mesh: of `config.rollout.slots` as many as are asked for and fit."""
  c = config.rollout
  if not c.slots:
    return 0
  return sampler.kv_budget.slots(
    model.spec,
    wanted=c.slots,
    prompts=c.prompts,
    group_size=group_size,
    prompt_budget=config.data.prompt_budget,
    max_tokens=max_tokens,
    memory_gb=c.kv_memory_gb,
    shards=sharding.batch_shards(mesh),
    tensor=mesh.shape["tensor"],
    kv_cache=kv_cache,
  )
