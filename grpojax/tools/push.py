"""Upload of an exported folder to the hub, by huggingface_hub: its token, endpoint, retries and progress bar.

Who may upload, and to where, is asked before the folder is written.
"""

import contextlib
import re
from pathlib import Path

from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError

REPO = re.compile(r"[\w.-]+/[\w.-]+")
REPLACED = ["*.safetensors", "*.safetensors.index.json"]  # weights of an earlier upload, in other shards
ANSWERS = {
  401: "the hub does not know the token; run `hf auth login`, or set HF_TOKEN",
  403: "the token has no right to write there; it needs one to write, of a member of the organisation",
}


def prepare(repo: str, public: bool) -> None:
  """Makes the repository if there is none, private unless `public`.

  Raises ValueError in one sentence for what forbids an upload; an existing repository that is public is taken
  only with `public`.
  """
  if not REPO.fullmatch(repo):
    raise ValueError(f"--push={repo} is no repository; write org/name, or your own name for org.")
  if constants.HF_HUB_OFFLINE:
    raise ValueError(f"--push={repo} needs the hub, and HF_HUB_OFFLINE is set; unset it.")
  if not get_token():
    raise ValueError(f"--push={repo}: there is no token of the hub; run `hf auth login`, or set HF_TOKEN.")
  api = HfApi()
  with _told(repo):
    api.create_repo(repo, private=not public, exist_ok=True)
    api.auth_check(repo, write=True)
    private = api.model_info(repo).private
  if not private and not public:
    raise ValueError(f"--push={repo} is public already; add --public to upload there, or name another.")


def upload(repo: str, folder: Path, step: int) -> str:
  """Uploads the folder as one commit and returns its address.  Raises ValueError in one sentence."""
  message = f"The policy after step {step}"
  with _told(repo, f"; {folder} is whole, and `hf upload {repo} {folder}` tries again"):
    HfApi().upload_folder(
      repo_id=repo, folder_path=folder, commit_message=message, delete_patterns=REPLACED
    )
  return f"{constants.ENDPOINT}/{repo}"


@contextlib.contextmanager
def _told(repo: str, then: str = ""):
  """Turns whatever huggingface_hub raises into one sentence."""
  try:
    yield
  except HfHubHTTPError as error:
    status = error.response.status_code
    said = " ".join((error.server_message or "no reason").split())
    why = ANSWERS.get(status, f"the hub answers {status} ({said})")
    raise ValueError(f"--push={repo}: {why}{then}.") from error
  except Exception as error:  # of the network, in the words of whichever library
    cause = error.__cause__ or error
    said = f"{type(cause).__name__}: {' '.join(str(cause).split())[:200]}"
    why = f"{constants.ENDPOINT} cannot be reached, or broke off ({said})"
    raise ValueError(f"--push={repo}: {why}{then}.") from error
