"""Names on the hub as paths, against a hub of this machine: fetched once, and failures are one sentence."""

import subprocess
import sys
from pathlib import Path

import hub_server
import pytest
from huggingface_hub import constants

from grpojax.runtime import fetch, hub, watchdog

FILES = {
  "config.json": "{}", "tokenizer.json": "{}", "model.safetensors": b"w" * 5000, "README.md": "no",
  "pytorch_model.bin": "no", "model.gguf": "no", "onnx/config.json": "no", "original/params.json": "no",
}  # fmt: skip


@pytest.fixture
def served(tmp_path, monkeypatch):
  repos = {"org/model": hub_server.Repo(FILES), "org/gated": hub_server.Repo(FILES, gated=True)}
  with hub_server.serve(models=repos) as (endpoint, asked):
    hub_server.use(monkeypatch, endpoint, tmp_path)
    yield repos, asked


def fetched(name):
  return fetch.fetch(name, "config.model.path", "unused")


def test_the_files_that_are_needed_come_once_and_the_folder_is_named_by_its_commit(served, monkeypatch):
  repos, asked = served
  folder = fetched("org/model")
  assert {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()} == {
    "config.json", "tokenizer.json", "model.safetensors"
  }  # fmt: skip
  first = repos["org/model"].revisions["main"][0]
  assert folder.name == first and hub.commits() == {"hub org/model": first}
  count = len(asked)
  second = repos["org/model"].commit(FILES | {"config.json": "{ }"})
  assert fetched("org/model") == folder and len(asked) == count  # whatever has moved
  monkeypatch.setattr(hub, "_FETCHED", {})
  assert fetched("hf://org/model").name == second
  assert fetched(f"org/model@{first}") == folder and list(hub.commits()) == ["hub org/model"]
  assert not any("safetensors" in str(path) for _, path in asked[count:] if second not in str(path))


def test_bytes_are_progress_for_the_watchdog_and_no_bar_fills_a_log(served, monkeypatch, capfd):
  phases = []
  monkeypatch.setattr(watchdog, "_watched", [phases.append])
  fetched("org/model")
  assert set(phases) == {"fetching from the hub"}
  assert "Fetching" not in capfd.readouterr().err


def test_what_is_cached_needs_no_network(served, monkeypatch):
  folder, asked = fetched("org/model"), served[1]
  count = len(asked)
  monkeypatch.setattr(hub, "_FETCHED", {})
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
  assert fetched("org/model") == folder and len(asked) == count
  with pytest.raises(ValueError, match=r"'org/other' is neither .* HF_HUB_OFFLINE is set; .* hf download"):
    fetched("org/other")


def test_an_interrupted_fetch_is_said_and_goes_on(served, monkeypatch):
  monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
  monkeypatch.setattr("time.sleep", lambda _: None)  # between tries
  repos, asked = served
  repos["org/model"].broken = {"model.safetensors"}
  with pytest.raises(ValueError, match=r"'org/model' was not fetched .*; start again, and the files that"):
    fetched("org/model")
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # half of it is not enough
  with pytest.raises(ValueError, match="nor whole in the hub's cache, and HF_HUB_OFFLINE is set"):
    fetched("org/model")
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
  assert ("RANGE", 2000) in asked  # a connection that broke was taken up again
  repos["org/model"].broken = set()
  asked.clear()
  assert (fetched("org/model") / "model.safetensors").read_bytes() == FILES["model.safetensors"]
  assert [path.rpartition("/")[2] for kind, path in asked if "resolve" in path and kind == "GET"] == [
    "model.safetensors"
  ]


@pytest.mark.parametrize(
  ("name", "sentence"),
  [
    ("org/gated", r"'org/gated' is gated: ask for access at http.*/org/gated, .* or set HF_TOKEN"),
    ("org/none", "'org/none' is neither a path of this machine nor a model on the hub; if it is private,"),
    ("org/model@v9", "'org/model@v9' has no revision 'v9' on the hub"),
    ("/nowhere", "'/nowhere' is not on this machine; give a folder's path, or a name on the hub"),
  ],
)
def test_failures_are_one_sentence_with_the_key(served, name, sentence):
  with pytest.raises(ValueError, match=f"^config.model.path = {sentence}") as caught:
    fetched(name)
  assert "\n" not in str(caught.value)


def test_a_token_opens_what_is_gated(served, monkeypatch):
  monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
  assert (fetched("org/gated") / "config.json").is_file()


def test_a_hub_that_does_not_answer_is_said_with_a_way_round(tmp_path, monkeypatch):
  with hub_server.serve() as (endpoint, _):
    pass
  hub_server.use(monkeypatch, endpoint, tmp_path)  # closed again
  with pytest.raises(ValueError, match=r"'org/x' is neither .*127.0.0.1:\d+ does not answer; give the path"):
    fetched("org/x")


def test_a_path_of_this_machine_wins_and_asks_nobody(served, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "org/model").mkdir(parents=True)
  assert str(fetched("org/model")) == "org/model" and not served[1]


def test_names():
  found = hub.find("hf://datasets/openai/gsm8k@refs/convert/parquet", "dataset")
  assert found == ("dataset", "openai/gsm8k", "refs/convert/parquet")
  assert found.name == "openai/gsm8k@refs/convert/parquet"
  assert hub.find("Qwen/Qwen2.5-0.5B", "model").revision == "main"
  for path in ("qwen", "/a/b", "./a/b", "~/a/b", "gs://a/b", "a/b/c", "a/*.jsonl", "a/b*", ""):
    assert hub.find(path, "dataset") is None


@pytest.mark.slow
def test_processes_that_share_a_cache_fetch_once(tmp_path):
  program = (
    "from grpojax.runtime import fetch; "
    "print(fetch.fetch('org/model', 'config.model.path', 'unused') / 'model.safetensors')"
  )
  weights = b"w" * (1 << 22)
  repos = {"org/model": hub_server.Repo(FILES | {"model.safetensors": weights})}
  with hub_server.serve(models=repos) as (endpoint, asked):
    command = [sys.executable, "-c", program]
    environment = hub_server.environment(tmp_path, endpoint)
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    both = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
  assert [process.returncode for process in both] == [0, 0], said
  paths = {out.splitlines()[-1] for out, _ in said}
  assert len(paths) == 1 and Path(*paths).read_bytes() == weights
  assert sum(kind == "GET" and str(path).endswith("safetensors") for kind, path in asked) == 1
