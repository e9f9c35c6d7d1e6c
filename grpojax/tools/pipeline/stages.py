"""The stages of a pipeline, as its config lists them: what each does, starts from and sets.

    c.stages = [
      ConfigDict(dict(name="grow", kind="sample", init="base", sample=dict(samples=8))),
      ConfigDict(dict(name="imitate", kind="sft", init="base", samples="grow")),
      ConfigDict(dict(name="rl", kind="rl", init="previous", steps=100)),
    ]

All other keys of the config are shared by all stages.  `init` is "base", "previous" or a stage's name: whose
policy the stage starts from.  Stages that train nothing, `sample` and `evaluate`, hand on the policy that
they have.  `samples` names the `sample` stages whose rows an `sft` or `preference` stage learns, with commas
between them.
"""

import copy
import re
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.config import check as config_lib
from grpojax.config import check_keys, overrides, schema
from grpojax.train import preference, sft

KINDS = ("sft", "rl", "preference", "sample", "evaluate")
TRAINED = ("base", "sft", "rl", "preference")  # kinds that leave a policy
OFFLINE = {"sft": sft.run_config, "preference": preference.run_config}  # kinds that learn given answers
LEARNED_ROWS = {"sft": "answers", "preference": "pairs"}  # config.sample.rows of the stages that they learn
OWN = ("name", "kind", "init", "samples")  # keys of a stage that are no keys of its config
BASE = "base"
SHARED = ("model", "cold_start", "cache_dir")  # sections that say what the base is
FORM = ("data.template", "data.system", "data.chat", "data.split_special_tokens")  # of a prompt as it is read


class Stage(NamedTuple):
  """One link of the chain."""

  name: str
  kind: str  # of KINDS, or "base": the policy that the chain starts from, made by the cold start
  init: str  # the stage whose policy it starts from, or "base"; "" of the base itself
  samples: tuple[str, ...]
  config: ConfigDict  # whole; config.model is the base's
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
    return tuple(dict.fromkeys(filter(None, (self.init, *self.samples, self.reference))))


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
    name = _name(number, entry, entries)
    entries[name] = entry
  inits = _inits(entries)
  _check_circle(inits)
  owners = {BASE: BASE}
  found = [] if "path" in shared.model else [Stage(BASE, BASE, "", (), _of_base(shared))]
  for name, entry in entries.items():
    if inits[name] not in owners:
      raise ValueError(f"stage '{name}' has init = '{inits[name]}', which comes later; put it behind that.")
    kind, init = entry["kind"], owners[inits[name]]
    owners[name] = name if kind in TRAINED else init
    samples = _samples(name, entry, found)
    config, reference = _config(name, entry, shared, owners, devices)
    found.append(Stage(name, kind, init, samples, config, reference))
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
    init = entry.get("init", "previous")
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
  samples = tuple(filter(None, (one.strip() for one in entry.get("samples", "").split(","))))
  kind = entry["kind"]
  if samples and kind not in OFFLINE:
    raise ValueError(f"stage '{name}' has samples and kind = '{kind}', which has none; drop them.")
  there = {stage.name: stage.config.sample.rows for stage in before if stage.kind == "sample"}
  for one in samples:
    if one not in there:
      raise ValueError(
        f"stage '{name}' has samples = '{one}', and the sample stages before it are"
        f" {', '.join(there) or 'none'}; name one of them, or put one before it."
      )
    if there[one] != LEARNED_ROWS[kind]:
      raise ValueError(
        f"stage '{name}' learns {LEARNED_ROWS[kind]}, and stage '{one}' leaves {there[one]}; set"
        f" sample.rows = '{LEARNED_ROWS[kind]}' of '{one}'."
      )
  return samples


def _config(
  name: str, entry: ConfigDict, shared: ConfigDict, owners: dict[str, str], devices: int
) -> tuple[ConfigDict, str]:
  """Returns the stage's whole config, checked as that of a run from a folder; and its `reference`.

  `owners` has whose policy each stage before it hands on.  Raises ValueError.
  """
  config = copy.deepcopy(shared)
  own = {key: value for key, value in entry.to_dict().items() if key not in OWN}
  changes = schema.flatten(own)
  for key, value in changes.items():
    if key.partition(".")[0] in SHARED:
      raise ValueError(f"stage '{name}' sets {key}, which says what the base is; set it for all stages.")
    if key in FORM and value != schema.flatten(shared.to_dict()).get(key):
      raise ValueError(
        f"stage '{name}' sets {key}: its prompts would not be read as those of the other stages, whose policy"
        " it has; set it for all stages."
      )
  try:
    overrides.apply(config, changes)
    reference = owners.get(config.reference, "")
    with config.unlocked():
      config.name = f"{shared.name}-{name}"
      config.reference = "init" if reference else config.reference
    trial = from_folder(config, "policy")
    config_lib.check(OFFLINE.get(entry["kind"], lambda c: c)(trial), devices)
  except ValueError as error:
    raise ValueError(f"stage '{name}': {error}") from error
  return config, reference if entry["kind"] in ("rl", "preference") else ""


def _of_base(shared: ConfigDict) -> ConfigDict:
  """Returns the config under which the cold start is made: all parameters, no adapters."""
  config = shared.copy_and_resolve_references()
  with config.unlocked():
    config.name, config.lora.rank, config.lora.path = f"{shared.name}-{BASE}", 0, ""
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
