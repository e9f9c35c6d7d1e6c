"""The stages of a pipeline, as its config lists them: what each does, starts from and sets.

    c.stages = [
      ConfigDict(dict(name="grow", kind="sample", init="base", sample=dict(samples=8))),
      ConfigDict(dict(name="imitate", kind="sft", init="base", samples="grow")),
      ConfigDict(dict(name="rl", kind="rl", init="previous", steps=100)),
    ]

All other keys of the config are shared by all stages.  `init` is "base", "previous" or a stage's name: whose
policy the stage starts from.  Stages that train nothing, `sample` and `evaluate`, hand on the policy that
they have.  `samples` names the `sample` stages whose rows an `sft` or `preference` stage learns, with commas
between them, and `teacher` the one of a `distill` stage.  A stage of the kind `base` makes a policy of its
own, from nothing or from a folder, that may have another architecture.
"""

import copy
import re
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.config import check as config_lib
from grpojax.config import check_keys, overrides, recipe, schema
from grpojax.recipes import distill
from grpojax.rewards import judged
from grpojax.train import preference, sft

BASE = "base"
KINDS = ("base", "sft", "rl", "preference", "distill", "sample", "evaluate")
TRAINED = ("base", "sft", "rl", "preference", "distill")  # kinds that leave a policy
ON_POLICY = ("rl", "distill")  # kinds that are runs of `grpojax train`
OFFLINE = {"sft": sft.run_config, "preference": preference.run_config}  # kinds that learn given answers
LEARNED_ROWS = {"sft": ("answers", "judgements"), "preference": ("pairs",)}  # of config.sample.rows
OWN = ("name", "kind", "init", "samples", "teacher")  # keys of a stage that are no keys of its config
SHARED = ("model", "cold_start", "cache_dir")  # sections that say what the base is
FORM = ("data.template", "data.system", "data.chat", "data.split_special_tokens")  # of a prompt as it is read


class Stage(NamedTuple):
  """One link of the chain."""

  name: str
  kind: str  # of KINDS, or "base": the policy that the chain starts from, made by the cold start
  init: str  # the stage whose policy it starts from, or "base"; "" of the base itself
  samples: tuple[str, ...]
  config: ConfigDict  # whole; config.model is the base's
  teachers: tuple[tuple[str, str], ...] = ()  # (key of config.teacher, stage) of those that are stages
  reference: str = ""  # of KL and pairs: the stage whose policy is it; "": as config.reference says

  @property
  def path(self) -> str:
    """Returns the file that it learns, of those that config names; "" for none."""
    return self.config[self.kind].path if self.kind in OFFLINE else ""

  @property
  def run_config(self) -> ConfigDict:
    """Returns the config of the run that it is."""
    return OFFLINE[self.kind](self.config) if self.kind in OFFLINE else self.config

  @property
  def parents(self) -> tuple[str, ...]:
    """Returns the stages that it stands on."""
    teachers = (of for _, of in self.teachers)
    return tuple(dict.fromkeys(filter(None, (self.init, *self.samples, self.reference, *teachers))))

  @property
  def folders(self) -> tuple[tuple[str, str], ...]:
    """Returns (key, path) of the teachers that are no stages."""
    named = _teachers(self.config) if self.kind in ON_POLICY else []
    return tuple((key, path) for key, path in named if key not in dict(self.teachers))


def shared_config(config: ConfigDict) -> ConfigDict:
  """Returns the config that all stages share."""
  shared = copy.deepcopy(config)  # with its references: eval.max_tokens follows rollout.max_tokens
  with shared.unlocked():
    if "stages" in shared:
      del shared["stages"]
  return shared


def check_keys_of(config: ConfigDict) -> None:
  """Raises ValueError for a shared key that is none; stages are checked by `read`."""
  check_keys.check(shared_config(config))


def read(config: ConfigDict, devices: int = 1) -> list[Stage]:
  """Returns the stages in their order, the base first where it has to be made.

  Raises ValueError, in a sentence that names the stage and what to change.
  """
  shared = shared_config(config)
  given = config.get("stages", ())
  if not given:
    raise ValueError("config.stages has no stage; list some, each with name, kind and init.")
  entries = {}
  for number, entry in enumerate(given, start=1):
    if not isinstance(entry, dict | ConfigDict):
      raise ValueError(f"stage {number} of config.stages is {entry!r}; it has to be a dict.")
    entry = ConfigDict(entry)
    entries[_name(number, entry, entries)] = entry
  inits = _inits(entries)
  _check_circle(inits)
  owners = {BASE: BASE}
  of_base = _of_base(shared, f"{shared.name}-{BASE}")
  found = [] if "path" in shared.model else [Stage(BASE, BASE, "", (), of_base)]
  for name, entry in entries.items():
    if inits[name] not in owners:
      raise ValueError(f"stage '{name}' has init = '{inits[name]}', which comes later; put it behind that.")
    kind = entry["kind"]
    init = "" if kind == BASE else owners[inits[name]]
    samples = _samples(name, entry, found)
    config, reference = _config(name, entry, shared, owners, devices)
    teachers = _of_stages(name, config, owners) if kind in ON_POLICY else ()
    found.append(Stage(name, kind, init, samples, config, teachers, reference))
    owners[name] = name if kind in TRAINED else init
    if kind == "preference" and not samples and not found[-1].path:
      raise ValueError(
        f"stage '{name}' has no pairs; name stages that make some by samples, or a file by preference.path."
      )
  return found


def _name(number: int, entry: ConfigDict, before: dict) -> str:
  """Returns the stage's name.  Raises ValueError for one that is none, and for an unknown kind."""
  name, kind = entry.get("name", ""), entry.get("kind", "")
  if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name) or name in (BASE, "previous", "replaced"):
    raise ValueError(
      f"stage {number} has name = {name!r}; it is letters, digits, - and _, and neither base, previous nor"
      " replaced."
    )
  if name in before:
    raise ValueError(f"two stages have the name '{name}'; give one of them another.")
  if kind not in KINDS:
    raise ValueError(f"stage '{name}' has kind = {kind!r}; the kinds are {', '.join(KINDS)}.")
  return name


def _inits(entries: dict[str, ConfigDict]) -> dict[str, str]:
  """Returns name -> the name that it starts from, "previous" as that stage's name."""
  found, previous = {}, BASE
  for name, entry in entries.items():
    if entry["kind"] == BASE and "init" in entry:
      raise ValueError(f"stage '{name}' makes a policy of its own and has init; drop it.")
    init = entry.get("init", BASE if entry["kind"] == BASE else "previous")
    if init not in (BASE, "previous", *entries):
      raise ValueError(
        f"stage '{name}' has init = {init!r}; it is base, previous or one of {', '.join(entries)}."
      )
    found[name] = previous if init == "previous" else init
    previous = name
  return found


def _check_circle(inits: dict[str, str]) -> None:
  """Raises ValueError where stages start from each other."""
  for name in inits:
    way = [name]
    while (before := inits.get(way[-1], BASE)) != BASE:
      if before in way:
        circle = " -> ".join(f"'{one}'" for one in [*way[way.index(before) :], before])
        raise ValueError(f"stages start from each other ({circle}); let one of them have init = 'base'.")
      way.append(before)


def _samples(name: str, entry: ConfigDict, before: list[Stage]) -> tuple[str, ...]:
  """Returns the names of the stages whose rows are learned."""
  given, kind = entry.get("samples", ""), entry["kind"]
  if not isinstance(given, str):
    raise ValueError(f"stage '{name}' has samples = {given!r}; it is a text, names with commas between them.")
  samples = tuple(filter(None, (one.strip() for one in given.split(","))))
  if samples and kind not in OFFLINE:
    raise ValueError(f"stage '{name}' has samples and kind = '{kind}', which has none; drop them.")
  there = {stage.name: stage.config.sample.rows for stage in before if stage.kind == "sample"}
  for one in samples:
    if one not in there:
      raise ValueError(
        f"stage '{name}' has samples = '{one}', and the sample stages before it are"
        f" {', '.join(there) or 'none'}; name one of them, or put one before it."
      )
    if there[one] not in LEARNED_ROWS[kind]:
      wanted = LEARNED_ROWS[kind][0]
      raise ValueError(
        f"stage '{name}' learns {' or '.join(LEARNED_ROWS[kind])}, and stage '{one}' leaves {there[one]}; set"
        f" sample.rows = '{wanted}' of '{one}'."
      )
  return samples


def _config(
  name: str, entry: ConfigDict, shared: ConfigDict, owners: dict[str, str], devices: int
) -> tuple[ConfigDict, str]:
  """Returns the stage's whole config, checked as that of a run from a folder; and its `reference`.

  `owners` has whose policy each stage before it hands on.  Raises ValueError.
  """
  config = copy.deepcopy(shared)
  own, kind = {key: value for key, value in entry.to_dict().items() if key not in OWN}, entry["kind"]
  if "teacher" in entry:
    own["teacher"] = entry.to_dict()["teacher"]
    own["teacher"] = dict(path=own["teacher"]) if isinstance(own["teacher"], str) else own["teacher"]
  changes = schema.flatten(own)
  for key, value in changes.items():
    if key.partition(".")[0] in SHARED and kind != BASE:
      raise ValueError(f"stage '{name}' sets {key}, which says what the base is; set it for all stages.")
    if key in FORM and value != schema.flatten(shared.to_dict()).get(key):
      raise ValueError(
        f"stage '{name}' sets {key}: its prompts would not be read as those of the other stages, whose policy"
        " it has; set it for all stages."
      )
  try:
    if kind == "distill":
      _learn_from_teacher(config)
    if "model.path" in changes:
      _take_folder(config)
    overrides.apply(config, changes)
    if kind == "distill" and not _teachers(config):
      raise ValueError("it has no teacher; name a stage before it, or the folder of a policy, by teacher.")
    reference = owners.get(config.reference, "")
    with config.unlocked():
      config.name = f"{shared.name}-{name}"
      config.reference = "init" if reference else config.reference
    if kind == BASE:
      config = _of_base(config, config.name)
    trial = config if kind == BASE else from_folder(config, "policy")
    if kind == "sample":
      _check_sample(config)
    config_lib.check(OFFLINE.get(kind, lambda c: c)(trial), devices)
  except ValueError as error:
    raise ValueError(f"stage '{name}': {error}") from error
  return config, reference if kind in ("rl", "preference", "distill") else ""


def _teachers(config: ConfigDict) -> list[tuple[str, str]]:
  """Returns (key, stage or folder) of the teachers that a config names."""
  paths = [(f"teacher.paths.{name}", path) for name, path in config.teacher.paths.items()]
  return [*([("teacher.path", config.teacher.path)] if config.teacher.path else []), *paths]


def _of_stages(name: str, config: ConfigDict, owners: dict[str, str]) -> tuple[tuple[str, str], ...]:
  """Returns (key, stage) of the teachers that are stages.  Raises ValueError for what is no folder."""
  for _, of in _teachers(config):
    if of not in owners and "/" not in of and not Path(of).is_dir():
      raise ValueError(
        f"stage '{name}' has teacher = '{of}', which is neither one of the stages before it,"
        f" {', '.join(owners)}, nor a folder or a name on the hub; name one of them."
      )
  return tuple((key, owners[of]) for key, of in _teachers(config) if of in owners)


def _learn_from_teacher(config: ConfigDict) -> None:
  """Sets, in place, the objective of a distillation where that of rewards was."""
  with config.unlocked():
    config.objective, config.reference = recipe.defaults(config.scale).objective, ""
    distill.learn_from_teacher(config)


def _take_folder(config: ConfigDict) -> None:
  """Makes room, in place, for a policy from a folder where the base is made from nothing."""
  if "path" not in config.model:
    with config.unlocked():
      dtype, config.model = config.model.dtype, recipe.defaults("local").model
      config.model.dtype, config.cold_start.steps = dtype, 0


def _check_sample(config: ConfigDict) -> None:
  """Raises ValueError for a judge that cannot be asked, or that would read its form in another template."""
  c = config.sample
  if c.rows == "judgements" or (c.rows == "pairs" and c.by == "judge"):
    judged.check_form(config.judge.rubric, config.judge.marker, "config.judge.")
  if c.rows == "judgements" and config.data.template != "none":
    raise ValueError(
      f"config.data.template = '{config.data.template}' would be around the rubrics that an sft stage learns,"
      " and a judge reads them bare; set config.data.template = 'none' for all stages."
    )


def _of_base(shared: ConfigDict, name: str) -> ConfigDict:
  """Returns the config under which a cold start is made: all parameters, no adapters."""
  config = shared.copy_and_resolve_references()
  with config.unlocked():
    config.name, config.lora.rank, config.lora.path = name, 0, ""
    config.reference = "init" if config.reference else ""  # which may name a stage
  return config


def from_folder(config: ConfigDict, folder: str) -> ConfigDict:
  """Returns the config of a run that starts from the policy in this folder, in the base's precision."""
  config, model = config.copy_and_resolve_references(), config.model
  precision = {"param_dtype": model.get("param_dtype", "float32")}
  precision |= {key: model[key] for key in ("dtype", "head_dtype")}
  with config.unlocked():
    config.model = ConfigDict(dict(path=folder, **precision))
    config.cold_start.steps = 0
  return config
