"""The model card of an exported policy, README.md of its folder: from the config and records of its run."""

import re
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import ModelCard, ModelCardData
from ml_collections import ConfigDict

from grpojax.objective import text as objective_text
from grpojax.runtime import console, metrics

HUB_ID = re.compile(r"(?:hf://)?([\w.-]+/[\w.-]+?)(?:@[\w./-]+)?")
FILES = (".json", ".jsonl", ".parquet", ".csv")  # of this machine, where "data/train.jsonl" may have gone
RL, SFT, PREFERENCE = "reinforcement learning", "supervised fine-tuning", "preference optimisation"
OFFLINE = {"sft/loss": SFT, "preference/cut": PREFERENCE}  # metric of a training step -> method
INHERITED = ("license", "license_name", "license_link", "language")  # of the base model's own card


class Exported(NamedTuple):
  """An exported policy, as its card tells of it."""

  name: str  # of the folder
  config: ConfigDict
  step: int  # of the checkpoint
  versions: dict[str, str]  # that the checkpoint was made with
  records: Path  # the folder with the run's records
  source: Path  # the folder of the base model
  adapters: bool  # these alone, in PEFT's format
  command: str  # by which it was exported


def text(exported: Exported) -> str:
  """Returns the whole card: the hub's front matter in YAML, then Markdown."""
  loss, *functions = objective_text.formula(exported.config.objective.to_dict())
  records = metrics.read(exported.records)
  method = _method(records)
  parts = [
    f"# {exported.name}",
    _opening(exported, method),
    _table(["", ""], _facts(exported.config, method)),
    "## Objective",
    f"    {loss}",
    "The sum is over prompts, completions and tokens.",
    "\n".join(f"- {line}" for line in functions),
    *_evaluations(exported, records),
    "## Versions",
    _table(["", ""], [list(entry) for entry in exported.versions.items()]),
    "## To reproduce",
    "\n".join(f"    {line}" for line in [*_commands(exported.records), exported.command]),
  ]
  return f"---\n{_front_matter(exported, method).to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n"


def hub_id(path: str) -> str | None:
  """Returns the "org/name" of a model or dataset of the hub; None for a path of this machine."""
  found = HUB_ID.fullmatch(path)
  local = Path(path).expanduser().exists() or path.endswith(FILES)
  return found[1] if found and not local else None


def _front_matter(exported: Exported, method: str) -> ModelCardData:
  c, card = exported.config, exported.source / "README.md"
  base, data = hub_id(c.model.get("path", "")), hub_id(c.data.get("path", ""))
  theirs = ModelCard.load(card, ignore_metadata_errors=True).data.to_dict() if card.is_file() else {}
  return ModelCardData(
    base_model=base,
    base_model_relation=("adapter" if exported.adapters else "finetune") if base else None,
    datasets=[data] if data else None,
    library_name="peft" if exported.adapters else "transformers",
    pipeline_tag="text-generation",
    tags=["grpojax", method.replace(" ", "-"), c.name],
    **{key: theirs[key] for key in INHERITED if key in theirs},
  )


def _method(records: list[dict]) -> str:
  """Returns how the policy was trained, by what only such steps record."""
  steps = [record for record in records if record["kind"] == "train"]
  said = (method for key, method in OFFLINE.items() if any(key in record for record in steps))
  return next(said, RL)


def _opening(exported: Exported, method: str) -> str:
  c, what = exported.config, "Adapters of" if exported.adapters else "A policy that began as"
  base = f"`{c.model.path}`" if c.model.get("path") else "a small model made from nothing"
  return f"{what} {base}, after {exported.step} of {c.steps} steps of {method} with grpojax."


def _facts(c: ConfigDict, method: str) -> list[list[str]]:
  """Returns the recipe as rows of (name, value)."""
  recipe = ["recipe", f"`{c.name}:{c.scale}`, seed {c.seed}"]
  return [recipe, *(_sampled(c) if method == RL else _given(c, method)), *_trained(c)]


def _given(c: ConfigDict, method: str) -> list[list[str]]:
  """Returns what an offline run learned."""
  own, rows = (c.sft, "conversations") if method == SFT else (c.preference, "pairs of answers")
  data = f"`{own.path}`" if own.path else f"demonstrations of `{c.data.task}`"
  return [["data", data], ["a step", f"{own.batch_size} {rows}, of {c.rollout.max_tokens} tokens at most"]]


def _sampled(c: ConfigDict) -> list[list[str]]:
  """Returns what a run of RL was asked, and how it was graded."""
  r = c.rollout
  sources = [c.data.get("path"), *(each.path for each in c.data.train.values())] if "path" in c.data else []
  data = ", ".join(f"`{each}`" for each in [c.data.task, *filter(None, sources)])
  return [
    ["data", data],
    ["reward", ", ".join(f"{name}: `{each.fn}`" for name, each in c.reward.items())],
    ["a step", f"{r.prompts} prompts, {r.group_size} completions each, of {r.max_tokens} tokens at most"],
  ]


def _trained(c: ConfigDict) -> list[list[str]]:
  """Returns what was trained, how, and from what."""
  o, adapters = c.optimizer, c.lora
  return [
    ["updates", f"{c.updates_per_rollout} a step, `{o.fn}`, learning rate {o.learning_rate:g}"],
    ["trained", f"adapters of rank {adapters.rank}" if adapters.rank else "all parameters"],
    ["before", f"a cold start of {c.cold_start.steps} steps" if c.cold_start.steps else "nothing"],
  ]


def _evaluations(exported: Exported, records: list[dict]) -> list[str]:
  """Returns the table of the evaluations before the run and up to the checkpoint; [] if there are none."""
  c = exported.config.eval
  evals = [each for each in records if each["kind"] == "eval" and each["step"] <= exported.step]
  if not evals:
    return []
  before, after = evals[0] if len(evals) > 1 else {}, evals[-1]
  heads = ["", f"before (step {before['step']})" if before else "before", f"after (step {after['step']})"]
  return [
    "## Held-out questions",
    _table([*heads, "difference"], [list(row) for row in console.comparison(before, after)]),
    f"Split `{c.split}`, {c.prompts} questions at most, {c.samples} completions each at temperature"
    f" {c.temperature:g}; ± is half of the 95 % confidence interval.",
  ]


def _commands(records: Path) -> list[str]:
  """Returns the command line of every start, without the paths of this machine's Python."""
  file = records / "commands.txt"
  lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
  return [re.sub(r"^\S*/(\S+)", r"\1", line) for line in lines]


def _table(head: list[str], rows: list[list[str]]) -> str:
  """Formats a GitHub table."""
  cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
  return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *cells])
