"""An exported folder is on the hub as it is on disk; and what forbids that is one sentence, in time."""

import pytest
from huggingface_hub import constants
from upload_hub import READER, WRITER, serve

from grpojax.tools import export, push

CARD = "---\nlibrary_name: transformers\n---\n\n# name\n"
FILES = {"README.md": CARD.encode(), "config.json": b"{}", "model.safetensors": bytes(range(256)) * 9}


@pytest.fixture
def hub(monkeypatch):
  """The hub of this process, with a token that may write; no longer offline, and by LFS."""
  with serve() as found:
    monkeypatch.setattr(constants, "ENDPOINT", found.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", WRITER)
    yield found


@pytest.fixture
def folder(tmp_path):
  for name, content in FILES.items():
    (tmp_path / name).write_bytes(content)
  return tmp_path


def test_a_folder_is_uploaded_to_a_new_private_repository(hub, folder):
  push.prepare("org/name", public=False)
  assert push.upload("org/name", folder, 7) == f"{hub.url}/org/name"
  assert hub.repos == {"org/name": {"private": True, "files": FILES}}


def test_public_is_said_and_weights_of_an_earlier_upload_go(hub, folder):
  old = {"model-00001-of-00002.safetensors": b"x", "model.safetensors.index.json": b"{}", "NOTES.md": b"mine"}
  push.prepare("org/name", public=True)
  hub.repos["org/name"]["files"] |= old
  push.upload("org/name", folder, 7)
  assert hub.repos == {"org/name": {"private": False, "files": FILES | {"NOTES.md": b"mine"}}}


def refusal(*words) -> str:
  with pytest.raises(ValueError, match=r"^--push=") as error:
    push.prepare(*words)
  said = str(error.value)
  assert said.endswith(".") and "\n" not in said
  return said


def test_a_public_repository_is_not_taken_for_a_private_one(hub):
  push.prepare("org/name", public=True)
  assert "is public already; add --public" in refusal("org/name", False)


def test_what_is_known_without_the_hub(hub, monkeypatch):
  assert "is no repository; write org/name" in refusal("name", False)
  monkeypatch.setattr(push, "get_token", lambda: None)
  assert "there is no token of the hub; run `hf auth login`, or set HF_TOKEN" in refusal("org/name", False)
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
  assert "HF_HUB_OFFLINE is set; unset it" in refusal("org/name", False)
  assert hub.asked == []


def test_a_token_that_nobody_knows_or_that_may_not_write(hub, monkeypatch):
  monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
  assert "does not know the token; run `hf auth login`" in refusal("org/name", False)
  monkeypatch.setenv("HF_TOKEN", READER)
  assert "the token has no right to write there" in refusal("org/name", False)
  hub.repos["org/name"] = {"private": True, "files": {}}  # of a colleague, and readable
  assert "the token has no right to write there" in refusal("org/name", False)
  assert not [path for method, path in hub.asked if "preupload" in path or "commit" in path]


def test_a_hub_that_is_not_there_or_out_of_order(hub, monkeypatch):
  hub.broken = "/api/repos"
  assert "the hub answers 418 (out of order)" in refusal("org/name", False)
  monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
  assert "http://127.0.0.1:9 cannot be reached, or broke off (ConnectError" in refusal("org/name", False)


@pytest.mark.parametrize("broken", ["/commit/", "/store/"])
def test_an_upload_that_breaks_off_says_how_to_go_on(hub, folder, broken):
  push.prepare("org/name", public=False)
  hub.broken = broken
  with pytest.raises(ValueError, match=r"^--push=org/name: .*tries again\.$") as error:
    push.upload("org/name", folder, 7)
  assert f"`hf upload org/name {folder}` tries again" in str(error.value)
  assert hub.repos["org/name"]["files"] == {}


def test_the_command_asks_the_hub_before_it_reads_or_writes_anything(hub, tmp_path, monkeypatch):
  monkeypatch.setenv("HF_TOKEN", READER)
  (tmp_path / "config.json").write_text('{"rollout": {}}')  # as much as says that this is a run
  with pytest.raises(ValueError, match=r"^--push=org/name: the token has no right"):
    export.main([f"--workdir={tmp_path}", f"--out={tmp_path / 'out'}", "--push=org/name"])
  assert not (tmp_path / "out").exists()
