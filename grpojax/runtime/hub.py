"""The Hugging Face Hub: a repository's name is a path, whose files are fetched once into the hub's own cache.

`Qwen/Qwen2.5-0.5B-Instruct`, with `@revision` (a branch, a tag or a commit) where it is not `main`, and with
`hf://` before it (`hf://datasets/` for data) if one likes.  A folder or file of this machine of the same name
wins.  HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE mean what they mean to huggingface_hub, whose file
locks let several processes share a cache: one fetches, the others wait.  A connection that breaks is taken up
again where it broke; the next start fetches the files that have not come whole.
"""

import re
import threading
from pathlib import Path
from typing import NamedTuple

import huggingface_hub
from huggingface_hub import constants, errors, utils

from grpojax.runtime import console, watchdog

_NAME = re.compile(r"(?P<id>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_FETCHED: dict[tuple, Path] = {}  # in this process: a branch that moves meanwhile moves nothing here
_LOCK = threading.Lock()


class _Bar(utils.tqdm):
  """A bar, on a terminal alone, whose bytes are progress for the watchdog: a large model takes hours."""

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs | dict(disable=kwargs.get("disable") or None))  # None: unless a terminal

  def update(self, n=1):
    with _LOCK:  # several files come at a time
      watchdog.progress("fetching from the hub")
    return super().update(n)


class Repository(NamedTuple):
  kind: str  # "model" or "dataset"
  id: str  # "Qwen/Qwen2.5-0.5B-Instruct"
  revision: str

  @property
  def name(self) -> str:
    """Returns the name as one writes it."""
    return self.id if self.revision == constants.DEFAULT_REVISION else f"{self.id}@{self.revision}"


def find(path: str, kind: str) -> Repository | None:
  """Returns the repository that a path names; None where it is one of this machine or of a bucket."""
  prefix = "hf://datasets/" if kind == "dataset" else "hf://"
  if not path.startswith("hf://") and Path(path).expanduser().exists():
    return None
  match = _NAME.fullmatch(path.removeprefix(prefix))
  return Repository(kind, match["id"], match["revision"] or constants.DEFAULT_REVISION) if match else None


def fetch(repository: Repository, key: str, patterns: tuple[str, ...], ignored: tuple[str, ...] = ()) -> Path:
  """Returns the folder with the files that match `patterns`, named by its commit.  Raises ValueError.

  `key` names the config key in the errors.
  """
  wanted = (repository, patterns, ignored)
  if wanted not in _FETCHED:
    try:
      folder = huggingface_hub.snapshot_download(
        repository.id,
        repo_type=repository.kind,
        revision=repository.revision,
        allow_patterns=list(patterns),
        ignore_patterns=list(ignored),
        tqdm_class=_Bar,
      )
    except Exception as error:  # the library's own, its HTTP client's, and the disk's
      raise ValueError(f"{key} = '{repository.name}' {_reason(repository, error)}.") from error
    _FETCHED[wanted] = Path(folder)
    if repository.revision != Path(folder).name:
      console.say_once(f"{repository.name} is commit {Path(folder).name[:12]} of the hub")
  return _FETCHED[wanted]


def commits() -> dict[str, str]:
  """Returns repository -> commit of all that this process has fetched by another revision than a commit."""
  found = {repository: folder.name for (repository, *_), folder in _FETCHED.items()}
  return {f"hub {repo.name}": commit for repo, commit in found.items() if commit != repo.revision}


def files(repository: Repository, folder: Path) -> list[str]:
  """Returns the names of a repository's files at the commit of `folder`; offline, of those that are there."""
  try:
    api = huggingface_hub.HfApi()
    return api.list_repo_files(repository.id, repo_type=repository.kind, revision=folder.name)
  except Exception:  # the hub has gone: what was fetched before is enough, or is missed later
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def _reason(repository: Repository, error: Exception) -> str:
  """Returns why a repository was not fetched, and what to do, as the rest of a sentence."""
  path = f"datasets/{repository.id}" if repository.kind == "dataset" else repository.id
  command = f"hf download {repository.id}" + (" --repo-type dataset" if repository.kind == "dataset" else "")
  if isinstance(error, errors.GatedRepoError):
    return (
      f"is gated: ask for access at {constants.ENDPOINT}/{path}, then log in by `hf auth login`"
      " (`huggingface-cli login` before) or set HF_TOKEN"
    )
  if isinstance(error, errors.RevisionNotFoundError):
    return f"has no revision '{repository.revision}' on the hub"
  if isinstance(error, errors.RepositoryNotFoundError):
    return (
      f"is neither a path of this machine nor a {repository.kind} on the hub; if it is private, log in by"
      " `hf auth login` or set HF_TOKEN"
    )
  if constants.HF_HUB_OFFLINE:
    return (
      "is neither on this machine nor whole in the hub's cache, and HF_HUB_OFFLINE is set; unset it, or bring"
      f" the cache: {command}"
    )
  if isinstance(error, errors.LocalEntryNotFoundError):
    return (
      f"is neither on this machine nor whole in the hub's cache, and {constants.ENDPOINT} does not answer;"
      f" give the path of a folder, or bring the cache from where the hub can be reached: {command}"
    )
  said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
  return f"was not fetched ({said}); start again, and the files that have come are kept"
