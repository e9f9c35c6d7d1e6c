"""Chains of made-up stages: their configs, the files that they would leave, and sampled answers."""

import json

from ml_collections import ConfigDict

from grpojax.config import commandline
from grpojax.tools.pipeline import chain, manifest, stages
from grpojax.tools.pipeline.manifest import LEFT, ROWS


def config(*entries, **changes):
  c = commandline.config_of(["--config=base:tiny", "--config.mesh.data=1"])
  with c.unlocked():
    c.stages = [ConfigDict(entry) for entry in entries]
    c.update_from_flattened_dict(changes)
  return c


GROW = dict(name="grow", kind="sample", init="base")
LEARN = dict(name="learn", kind="sft", init="base", samples="grow")
RL = dict(name="rl", kind="rl", init="previous")
LOOK = dict(name="look", kind="evaluate", init="previous")
ALL = GROW, LEARN, LOOK, RL
PAIR = dict(name="pair", kind="sample", init="base", sample=dict(rows="pairs"))
PREFER = dict(name="prefer", kind="preference", init="base", samples="pair")
TEACH = dict(name="teach", kind="rl", init="base")
DISTILL = dict(name="near", kind="distill", init="base", teacher="teach")

FILES = {"base": "policy/w", "sample": ROWS, "sft": "policy/w", "rl": "policy/w", "evaluate": "summary.json"}


def finish(found, workdir, content="x"):
  """Every stage that is left leaves a file."""
  for stage in found:
    if manifest.states(found, workdir)[stage.name].what == LEFT:
      file = workdir / stage.name / FILES[stage.kind]
      manifest.begin(stage, workdir)
      file.parent.mkdir(exist_ok=True)
      file.write_text(f"{stage.name} {content}")
      manifest.finish(stage, workdir, [FILES[stage.kind]])


def whats(found, workdir):
  return {name: state.what for name, state in manifest.states(found, workdir).items()}


def done_chain(workdir):
  """A chain of which every stage is done."""
  found = stages.read(config(*ALL))
  finish(found, workdir)
  return found, workdir


def chain_of(found, workdir):
  return chain.Chain("toy", workdir, found, manifest.states(found, workdir))


def written(folder, name, *records):
  """Records as a stage writes them."""
  folder.mkdir(exist_ok=True)
  (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


def answer(text, right=True, ended=True):
  return dict(text=text, right=right, ended=ended, length=3)


def item(*samples, number=0):
  correct = sum(one["right"] is True for one in samples)
  return dict(suite="train", id=f"q{number}", correct=correct, n=len(samples), samples=list(samples))


MIXED = item(
  answer("a"), answer("b"), answer(" a\n"), answer("c", right=False), answer("d", right=None),
  answer("e", ended=False), answer("f"), answer("g"), answer("h\ufffd"),
)  # fmt: skip
