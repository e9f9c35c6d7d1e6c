"""Files of a dataset on the hub, by subset and split: as its card says, else as their names do.

The card is README.md, whose `configs` map subsets and splits to patterns; without one a split is a word in a
file's name or folder, and a subset a folder, as for the library `datasets`.  Its programs are not run.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub.repocard import metadata_load

from grpojax.runtime import hub

_WORDS = {
  "train": ("train", "training"),
  "validation": ("validation", "valid", "val", "dev"),
  "test": ("test", "testing", "eval", "evaluation"),
}


class Known(NamedTuple):
  layout: str  # a key of layouts.LAYOUTS
  subset: str = ""


# Public datasets whose layout need not be named.
KNOWN = {
  "openai/gsm8k": Known("gsm8k", "main"),
  "DigitalLearningGmbH/MATH-lighteval": Known("math", "default"),
  "HuggingFaceH4/MATH-500": Known("math_500"),
  "HuggingFaceH4/aime_2024": Known("aime"),
  "Maxwell-Jia/AIME_2024": Known("aime"),
  "math-ai/aime24": Known("aime"),
  "math-ai/aime25": Known("aime"),
  "math-ai/amc23": Known("amc"),
  "math-ai/minervamath": Known("minerva"),
  "math-ai/olympiadbench": Known("olympiadbench"),
  "BytedTsinghua-SIA/DAPO-Math-17k": Known("dapo_math"),
  "agentica-org/DeepScaleR-Preview-Dataset": Known("deepscaler"),
  "Jiayi-Pan/Countdown-Tasks-3to4": Known("countdown"),
  "codeparrot/apps": Known("apps"),
  "livecodebench/code_generation_lite": Known("livecodebench"),
}


def known(path: str) -> Known | None:
  """Returns what is known of the dataset that a path names; None where it is no repository, or another."""
  repository = hub.find(path, "dataset")
  return KNOWN.get(repository.id) if repository else None


def fetch(
  key: str, repository: hub.Repository, subset: str, split: str, of_test: bool, suffixes: tuple[str, ...]
) -> list[Path]:
  """Returns the files of a subset and split, fetched.  Raises ValueError naming those that there are.

  Without `split` it is the one that has the source's name; a test source may be the only split there is.
  """
  folder = hub.fetch(repository, f"{key}.path", ("README.md",))
  card = metadata_load(folder / "README.md") if (folder / "README.md").is_file() else None
  names = [name for name in hub.files(repository, folder) if name.endswith(suffixes)]
  subset = subset or KNOWN.get(repository.id, Known("")).subset
  where = f"{key}.path = '{repository.name}'"
  by_split = _by_split(where, key, names, (card or {}).get("configs"), subset)
  wanted = split or ("test" if of_test else "train")
  if not split and of_test and len(by_split) == 1:
    (wanted,) = by_split
  if not by_split.get(wanted):
    menu = ", ".join(by_split) or f"none in {', '.join(suffixes)}"
    setting = f"{key}.test_split" if key == "config.data" and of_test else f"{key}.split"
    raise ValueError(f"{where} has no files of split '{wanted}', but of {menu}; set {setting}.")
  folder = hub.fetch(repository._replace(revision=folder.name), f"{key}.path", tuple(by_split[wanted]))
  return [folder / name for name in by_split[wanted]]


def _by_split(where: str, key: str, names: list[str], configs: Any, subset: str) -> dict[str, list[str]]:
  """Returns split -> its files, of one subset."""
  listed = {str(config.get("config_name")): config for config in configs or []}
  if not listed:
    inside = [name for name in names if not subset or subset in name.split("/")[:-1]]
    if subset and not inside:
      raise ValueError(f"{where} has no subset '{subset}'; set {key}.subset = '' or to one of its folders.")
    return _by_name(inside)
  default = [name for name, config in listed.items() if config.get("default")] or ["default"]
  chosen = subset or (default[0] if default[0] in listed else next(iter(listed)) if len(listed) == 1 else "")
  if chosen not in listed:
    raise ValueError(f"{where} has the subsets {', '.join(listed)}; set {key}.subset to one of them.")
  config = listed[chosen]
  under = str(config.get("data_dir") or "").strip("/")
  inside = [name for name in names if not under or name.startswith(f"{under}/")]
  patterns = config.get("data_files")
  if patterns is None:
    return _by_name(inside)
  if not (isinstance(patterns, list) and all(isinstance(item, dict) for item in patterns)):
    patterns = [dict(split="train", path=patterns)]
  prefix = f"{under}/" if under else ""
  found = {str(item["split"]): [prefix + path for path in _list(item["path"])] for item in patterns}
  return {split: _matching(inside, of_split) for split, of_split in found.items()}


def _by_name(names: Iterable[str]) -> dict[str, list[str]]:
  """Returns split -> the files with one of its words in their name or folders; "train" is all if none has."""
  found: dict[str, list[str]] = {}
  for name in names:
    words = re.split(r"[^a-z]+", name.lower())
    for split, of_split in _WORDS.items():
      if any(word in of_split for word in words):
        found.setdefault(split, []).append(name)
        break
  return found or ({"train": list(names)} if names else {})


def _matching(names: list[str], patterns: list[str]) -> list[str]:
  return sorted(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))


def _list(value: Any) -> list[str]:
  return [str(item) for item in value] if isinstance(value, list) else [str(value)]
