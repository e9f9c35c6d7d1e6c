"""The teachers of a distillation: other models of the same tokenizer, whose log-probs are read.

One, or several that each know a kind of question (MOPD, https://arxiv.org/abs/2601.02780).  Their parameters
never change and are in no checkpoint; a checkpoint has their checksums.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import models
from grpojax.data import text
from grpojax.learner import batching, divergence, rows
from grpojax.learner.packing import PackSpec
from grpojax.learner.update import make_old_logp
from grpojax.models import hf, kernels
from grpojax.runtime import checksums, compiler_options, sharding
from grpojax.runtime.compile import aot_jit
from grpojax.types import Batch


class Teacher(NamedTuple):
  """A model that is read."""

  path: str
  model: models.Model
  logp: Callable  # update.make_old_logp's program
  params: Callable[[], dict]  # reads the folder at its first call
  checksums: Callable[[], dict[str, int]]  # of the parameters


def build_all(
  config: ConfigDict, folder_of: Callable[[str], Path], tokenizer: Any, mesh: Mesh, pack: PackSpec | None
) -> tuple[Teacher, ...]:
  """Returns the teachers of config.teacher in the order of batching.teacher_of; none where it names none.

  `folder_of` returns the folder that a path names, `pack` is how the policy's sequences share rows.  Raises
  ValueError where a tokenizer is not the policy's.
  """
  c = config.teacher
  named = [c.path] if c.path else [c.paths[name] for name in sorted(c.paths)]
  return tuple(_build(config, path, folder_of(path), tokenizer, mesh, pack) for path in named)


def check_rows(config: ConfigDict, records: list[dict]) -> None:
  """Raises ValueError where a row of the training split has no teacher."""
  if config.teacher.paths:
    for row in records:
      batching.teacher_of(config, row)


def _build(
  config: ConfigDict, path: str, folder: Path, tokenizer: Any, mesh: Mesh, pack: PackSpec | None
) -> Teacher:
  """Returns the teacher in a folder."""
  check_tokenizer(path, text.load_tokenizer(folder), tokenizer)
  dtype = config.model.dtype
  spec = models.from_folder(folder, dtype, dtype, config.model.head_dtype)
  model = models.from_spec(spec, mesh, config.mesh.rules.to_dict())
  model = model._replace(attention=kernels.choose(config.attention, spec, mesh)[0])
  by_prompt = sharding.batch_sharding(mesh)
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  logp = aot_jit(
    "teacher's log-probs",
    make_old_logp(rows.of(config, model, mesh, pack, config.rollout.temperature), False),
    in_shardings=(where, *[by_prompt] * 7),
    out_shardings=by_prompt,
    compiler_options=compiler_options.options(mesh),
  )
  params = functools.cache(lambda: hf.load(folder, model, mesh))
  return Teacher(path, model, logp, params, functools.cache(lambda: checksums.of_leaves(params())))


def checksums_of(teachers: tuple[Teacher, ...]) -> dict[str, int]:
  """Returns those of all teachers; of several, by number."""
  if len(teachers) == 1:
    return teachers[0].checksums()
  return {f"{i}/{name}": n for i, one in enumerate(teachers) for name, n in one.checksums().items()}


def check_tokenizer(path: str, teacher: Any, policy: Any) -> None:
  """Raises ValueError unless both tokenizers give every token the same number."""
  ours, theirs = policy.get_vocab(), teacher.get_vocab()
  if other := sum(theirs.get(token) != number for token, number in ours.items()):
    raise ValueError(
      f"config.teacher.path = '{path}' has another tokenizer: {other} of the policy's {len(ours)} tokens "
      "have another number there, or none, and distillation compares log-probs of tokens; name a teacher of "
      "the policy's family."
    )


def add_logprobs(teachers: tuple[Teacher, ...], batches: list[Batch]) -> list[Batch]:
  """Returns the batches with log π_T of completions, at the sampler's temperature, over what it kept.

  Of several teachers each reads all completions, and a completion's is the one of its row (Batch.extra).
  """
  if not teachers:
    return batches
  found = []
  for batch in batches:
    seen = batch.tokens, batch.prompt_length, None, None, batch.packing_index, batch.context, batch.kept
    each = [teacher.logp(teacher.params(), *seen)[0] for teacher in teachers]
    number = batch.extra["teacher"] if len(teachers) > 1 else None
    found.append(batch._replace(teacher_logp=divergence.of_own(number, each)))
  return found
