"""The teacher of a distillation: another model of the same tokenizer, whose log-probs are read.

Its parameters never change and are in no checkpoint; a checkpoint has their checksums.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models
from grpojax.data import text
from grpojax.learner import rows
from grpojax.learner.packing import PackSpec
from grpojax.learner.update import make_old_logp
from grpojax.models import hf, kernels
from grpojax.runtime import checksums, compiler_options, sharding
from grpojax.runtime.compile import aot_jit
from grpojax.types import Batch


class Teacher(NamedTuple):
  """A model that is read."""

  model: models.Model
  logp: Callable  # update.make_old_logp's program
  params: Callable[[], dict]  # reads the folder at its first call
  checksums: Callable[[], dict[str, int]]  # of the parameters


def build(config: ConfigDict, folder: Path, tokenizer: Any, mesh: Mesh, pack: PackSpec | None) -> Teacher:
  """Returns the teacher in `folder`; `pack` is how the policy's sequences share rows.

  Raises ValueError where its tokenizer is not the policy's.
  """
  check_tokenizer(config.teacher.path, text.load_tokenizer(folder), tokenizer)
  dtype = config.model.dtype
  spec = models.from_folder(folder, dtype, dtype, config.model.head_dtype)
  model = models.from_spec(spec, mesh, config.mesh.rules.to_dict())
  shared = pack is not None and pack.shared  # a row's prompt is one for several responses: any mask
  attention = "reference" if shared else kernels.choose(config.attention, spec, mesh)[0]
  model = model._replace(attention=attention)
  by_prompt = sharding.batch_sharding(mesh)
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  logp = aot_jit(
    "teacher's log-probs",
    make_old_logp(rows.of(config, model, pack), False),
    in_shardings=(where, *[by_prompt] * 7),
    out_shardings=by_prompt,
    compiler_options=compiler_options.options(mesh),
  )
  params = functools.cache(lambda: hf.load(folder, model, mesh))
  return Teacher(model, logp, params, functools.cache(lambda: checksums.of_leaves(params())))


def check_tokenizer(path: str, teacher: Any, policy: Any) -> None:
  """Raises ValueError unless both tokenizers give every token the same number."""
  ours, theirs = policy.get_vocab(), teacher.get_vocab()
  if other := sum(theirs.get(token) != number for token, number in ours.items()):
    raise ValueError(
      f"config.teacher.path = '{path}' has another tokenizer: {other} of the policy's {len(ours)} tokens "
      "have another number there, or none, and distillation compares log-probs of tokens; name a teacher of "
      "the policy's family."
    )


def add_logprobs(teacher: Teacher | None, batches: list[Batch]) -> list[Batch]:
  """Returns the batches with log π_T of completions, at the sampler's temperature, over what it kept."""
  if teacher is None:
    return batches
  found = []
  for batch in batches:
    seen = batch.tokens, batch.prompt_length, None, None, batch.packing_index, batch.context, batch.kept
    logp, *_ = teacher.logp(teacher.params(), *seen)
    found.append(batch._replace(teacher_logp=logp))
  return found
