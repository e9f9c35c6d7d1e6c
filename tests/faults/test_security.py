"""Nothing that a model, a dataset or a checkpoint says is run, and it chooses no place to read or write."""

import ast
import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import BROWSER
from model_folders import FOLDERS

from grpojax import models
from grpojax.config.schema import DATA_KEYS
from grpojax.data import pipeline, text
from grpojax.models import hf
from grpojax.recipes import base
from grpojax.runtime import metrics, report

ROOT = Path(__file__).parents[2]
RUNS_CODE = {"eval", "exec", "compile", "__import__"}  # built-in functions
READS_CODE = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "torch"}  # modules
SHELLS = {"system", "popen"}  # of os
TRUSTS = {"shell", "allow_pickle", "trust_remote_code"}  # arguments that must not be true
KNOWN = {
  ("grpojax/rewards/harness.py", "exec"),  # the sandbox's inside
  ("grpojax/rewards/harness.py", "compile"),
  ("grpojax/tools/port/table.py", "eval"),  # formulas of our own tables; of a peer's file they see values
  ("grpojax/tools/port/table.py", "compile"),
  ("grpojax/data/local/unit_tests.py", "pickle"),  # without classes: LiveCodeBench's private tests
}


def dangers(tree: ast.AST):
  """What in a program could run or read code."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from ({name.name.split(".")[0] for name in node.names} & READS_CODE)
    if isinstance(node, ast.ImportFrom):
      yield from ({(node.module or "").split(".")[0]} & READS_CODE)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
      yield from ({node.attr} & SHELLS)
    if isinstance(node, ast.Call):
      asks = isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained"
      if asks and "trust_remote_code" not in {k.arg for k in node.keywords}:
        yield "from_pretrained"  # transformers would ask the person at the terminal
      if isinstance(node.func, ast.Name):
        yield from ({node.func.id} & RUNS_CODE)
      yield from (k.arg for k in node.keywords if k.arg in TRUSTS and not is_false(k.value))


def is_false(node: ast.AST) -> bool:
  return isinstance(node, ast.Constant) and not node.value


def test_no_program_runs_text_or_reads_pickles_but_where_it_is_known():
  found = set()
  for folder in ("grpojax", "configs", "experiments"):
    for path in (ROOT / folder).rglob("*.py"):
      found |= {(str(path.relative_to(ROOT)), what) for what in dangers(ast.parse(path.read_text()))}
  assert found == KNOWN


@pytest.mark.parametrize(
  ("program", "danger"),
  [
    ("eval(answer)", "eval"),
    ("from pickle import loads", "pickle"),
    ("import torch.serialization", "torch"),
    ("os.system(answer)", "system"),
    ("np.load(path, allow_pickle=True)", "allow_pickle"),
    ("AutoConfig.from_pretrained(folder, trust_remote_code=trusted)", "trust_remote_code"),
    ("AutoConfig.from_pretrained(folder)", "from_pretrained"),
    ("re.compile(pattern); AutoConfig.from_pretrained(folder, trust_remote_code=False)", None),
  ],
)
def test_the_search_finds_what_it_searches(program, danger):
  assert list(dangers(ast.parse(program))) == ([danger] if danger else [])


def test_what_runs_programs_is_started_in_the_sandbox_alone():
  users = {path.name for path in (ROOT / "grpojax").rglob("*.py") if "harness" in path.read_text()}
  assert users - {"harness.py"} == {"sandbox.py"}


@pytest.fixture
def with_code(tmp_path):
  """A model's folder that brings code along, which leaves a mark where it runs."""
  folder, mark = tmp_path / "model", tmp_path / "mark"
  shutil.copytree(FOLDERS / "qwen2", folder)
  shutil.copytree(text.EMBEDDED, folder, dirs_exist_ok=True)
  (folder / "own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass\n")
  for name, kind in (("config.json", "AutoConfig"), ("tokenizer_config.json", "AutoTokenizer")):
    settings = json.loads((folder / name).read_text())
    own = "own.Own" if kind == "AutoConfig" else ["own.Own", None]
    settings |= {"auto_map": {kind: own}, "tokenizer_class": "Own"}
    (folder / name).write_text(json.dumps(settings))
  return folder, mark


def test_code_in_a_models_folder_is_not_run(with_code, monkeypatch):
  folder, mark = with_code
  monkeypatch.setattr("builtins.input", lambda *_: "y")  # whatever anybody answers
  assert models.from_folder(folder).family == "qwen2"  # known without it
  config = json.loads((folder / "config.json").read_text())
  (folder / "config.json").write_text(json.dumps(config | {"model_type": "own"}))
  with pytest.raises(ValueError, match="model_type = 'own'"):
    models.from_folder(folder)
  with pytest.raises(ValueError, match="is a program of its own, and none is run"):
    text.load_tokenizer(folder)
  assert not mark.exists()


def test_a_chat_template_reaches_nothing_of_python():
  tokenizer = text.load_tokenizer()
  tokenizer.chat_template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
  with pytest.raises(ValueError, match="unsafe"):
    text.encode_chats(tokenizer, [[{"role": "user", "content": "1 + 1?"}]])


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/outside.safetensors"])
def test_an_index_cannot_name_files_outside_its_folder(tmp_path, name):
  folder = tmp_path / "model"
  shutil.copytree(FOLDERS / "qwen2", folder)
  shutil.copy(next(folder.glob("*.safetensors")), tmp_path / "outside.safetensors")
  index = folder / "model.safetensors.index.json"
  found = json.loads(index.read_text())
  found["weight_map"] = dict.fromkeys(found["weight_map"], name)
  index.write_text(json.dumps(found))
  with pytest.raises(ValueError, match=r"outside\.safetensors.* not a file of the folder"):
    hf.Tensors(folder)


def test_rows_that_look_like_paths_stay_text(tmp_path):
  rows = [{"prompt": f"../../{'../' * i}escaped", "answer": f"/tmp/{i}/escaped"} for i in range(8)]
  (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
  config = base.get_config("local")
  config.data.update(path=str(tmp_path / "train.jsonl"), held_out=2)
  before = {tmp_path, tmp_path / "train.jsonl"}
  folder = pipeline.prepare(config.data, tmp_path / "cache" / "datasets", DATA_KEYS)
  made = set(tmp_path.rglob("*")) | {tmp_path}
  assert folder.parent == tmp_path / "cache" / "datasets"
  assert all(path.is_relative_to(tmp_path / "cache") for path in made - before)
  assert not list(tmp_path.parent.glob("*escaped*"))


ATTACKS = (
  "<script>document.title = 'owned'</script>",
  "<img src=x onerror=\"document.title = 'owned'\">",
  "</pre></details><svg onload=\"document.title = 'owned'\">",
  "'\"><b id=owned>",
)


class Page(HTMLParser):
  """What a browser has made of a page: its elements, and its text."""

  def __init__(self, dom: str):
    super().__init__()
    self.elements, self.text = [], ""
    self.feed(dom)

  def handle_starttag(self, tag, attrs):
    self.elements.append((tag, dict(attrs)))

  def handle_data(self, data):
    self.text += data


@pytest.mark.skipif(not BROWSER, reason="needs chromium")
def test_a_browser_shows_what_models_wrote_as_text(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    for step in (1, 2):
      writer.write("train", step, {"reward": 0.5, "loss": 0.1, f"time/{ATTACKS[0]}": 1.0})
      group = dict(completions=list(ATTACKS), rewards=[1.0] * 4, lengths=[9] * 4, ended=[True] * 4)
      writer.completions(step, [dict(prompt=" ".join(ATTACKS), **group)])
    writer.write("eval", 2, {"eval/pass@1": 0.5})
  (tmp_path / "config.json").write_text(json.dumps({"name": ATTACKS[0], "model": {"path": ATTACKS[1]}}))
  with (tmp_path / "commands.txt").open("a") as file:
    file.write(f"python -m grpojax.main '--config.name={ATTACKS[2]}'\n")
  path = report.write(tmp_path)
  command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'own'}"]
  command += ["--virtual-time-budget=2000", "--dump-dom", path.as_uri()]
  shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
  page = Page(shown.stdout)
  assert page.elements, shown.stderr
  assert all(attack in page.text for attack in ATTACKS)
  assert not [tag for tag, attributes in page.elements if "owned" in attributes.values()]
  assert [tag for tag, _ in page.elements].count("script") == 1 + len(report.SCRIPTS)  # the page's own
  assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
  assert "<title>owned</title>" not in shown.stdout
