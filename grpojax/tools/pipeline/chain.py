"""Runs what is left of a chain, one stage after another, in this process."""

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from grpojax.data import text
from grpojax.runtime import console, errors, lock, processes, storage
from grpojax.tools.pipeline import cost, manifest, page, stage_page, stages
from grpojax.tools.pipeline.answering import Place
from grpojax.tools.pipeline.kinds import KINDS, POLICY
from grpojax.tools.pipeline.manifest import DONE, ROWS, STALE, State
from grpojax.tools.pipeline.stages import BASE, Stage
from grpojax.train import teacher

REPLACED = "replaced"  # folder of stages that others have taken the place of


class Chain(NamedTuple):
  """A pipeline that is legal, and how far each of its stages is."""

  name: str
  workdir: Path
  stages: list[Stage]
  states: dict[str, State]

  @property
  def todo(self) -> list[Stage]:
    """Returns the stages that are not done."""
    return [stage for stage in self.stages if self.states[stage.name].what != DONE]


def find(config: ConfigDict, workdir: Path) -> Chain:
  """Returns the chain of a config.  Raises ValueError for all that can be wrong before a stage begins."""
  if not isinstance(workdir, Path):
    raise ValueError(
      f"--workdir={workdir} is a bucket, and stages hand policies on as folders; name one on a disk that all"
      " processes share."
    )
  if (workdir / "run.json").exists():
    raise ValueError(f"--workdir={workdir} has a run; a pipeline needs a folder of its own, so name another.")
  found = stages.read(config, jax.device_count())
  for stage in found:
    if stage.path and not Path(stage.path).expanduser().is_file():
      raise ValueError(
        f"stage '{stage.name}': config.{stage.kind}.path = '{stage.path}' is not on this machine; name a file"
        " of JSON Lines."
      )
  for stage in found:
    _check_tokenizers(stage, found)
  return Chain(config.name, workdir, found, manifest.states(found, workdir))


def _check_tokenizers(stage: Stage, found: list[Stage]) -> None:
  """Raises ValueError for a teacher of another tokenizer than the stage's policy, of those that are here."""
  if not stage.teachers and not stage.folders:
    return
  by_name = {one.name: one for one in found}
  ours = _tokenizer_folder(stage.init, stage, by_name)
  theirs = [(of, _tokenizer_folder(of, stage, by_name)) for _, of in stage.teachers]
  for path, folder in [*theirs, *((path, Path(path).expanduser()) for _, path in stage.folders)]:
    if folder != ours and folder.is_dir() and ours.is_dir():  # what is on the hub is not fetched for it
      try:
        teacher.check_tokenizer(path, text.load_tokenizer(folder), text.load_tokenizer(ours))
      except ValueError as error:
        raise ValueError(f"stage '{stage.name}': {error}") from error


def _tokenizer_folder(name: str, stage: Stage, by_name: dict[str, Stage]) -> Path:
  """Returns the folder of the tokenizer of a policy, which is that of the base that it comes from."""
  while name in by_name and by_name[name].init:
    name = by_name[name].init
  model = by_name.get(name, stage).config.model
  return Path(model.path).expanduser() if "path" in model else text.EMBEDDED


def choose(chain: Chain, since: str, only: str) -> list[Stage]:
  """Returns the stages to run, which may be stale: those that --from and --only allow to be replaced.

  Raises ValueError where a stale stage would be used or replaced unasked, or what a stage stands on is not
  done.
  """
  names = [stage.name for stage in chain.stages]
  for flag, name in ("--from", since), ("--only", only):
    if name and name not in names:
      raise ValueError(f"{flag}={name}: the stages are {', '.join(names)}; name one of them.")
  if since and only:
    raise ValueError("--from and --only say which stages to run; leave one of them out.")
  first = names.index(since or only or names[0])
  wanted = [stage for stage in chain.stages[first:] if stage in chain.todo and only in ("", stage.name)]
  may = names[first:] if since else [only]
  for stage in chain.todo:
    what, why = chain.states[stage.name]
    if what == STALE and stage.name not in may and (stage in wanted or not only):
      raise ValueError(
        f"stage '{stage.name}' is stale ({why}); --from={stage.name} moves it and what comes after it to"
        f" {chain.workdir / REPLACED} and makes it anew, or give back what it was made from."
      )
  ready = {stage.name for stage in chain.stages if stage not in chain.todo}
  for stage in wanted:
    for parent in stage.parents:
      if parent in names and parent not in ready:
        raise ValueError(
          f"stage '{stage.name}' stands on '{parent}', which is {chain.states[parent].what}; run that one"
          f" first, by --from={parent}."
        )
    ready.add(stage.name)
  return wanted


def run(chain: Chain, wanted: list[Stage], share: Callable) -> bool:
  """Collective: runs these stages.  Returns False where one was asked to stop, and has saved.

  `share` is shared.sharing's.  Raises ValueError where another pipeline goes on in the workdir, and where it
  cannot be made.
  """
  with contextlib.ExitStack() as stack:
    hold = lambda: stack.enter_context(lock.hold_folder(chain.workdir, "--workdir", "a pipeline"))
    processes.on_process_0(hold)
    for stage in wanted:
      if chain.states[stage.name].what == STALE:
        processes.on_process_0(partial(_replace, chain.workdir, stage.name))
    for stage in wanted:
      if not _run(chain, stage, share):
        return False
  return True


def _replace(workdir: Path, stage: str) -> None:
  """Moves a stale stage aside."""
  aside = workdir / REPLACED
  aside.mkdir(exist_ok=True)
  new = storage.unused(aside, (f"{stage}-{n}" for n in itertools.count()))
  (workdir / stage).rename(new)
  console.say(f"stage '{stage}' was stale and is now {new}")


def _run(chain: Chain, stage: Stage, share: Callable) -> bool:
  """Collective: runs a stage and draws the chain's report.  Returns False where it was asked to stop."""
  folder = chain.workdir / stage.name
  _say(f"stage '{stage.name}' ({stage.kind}), from {stage.init or 'nothing'}")
  try:
    manifest.begin(stage, chain.workdir)
    policy, reference = (_policy(stage, of, chain.workdir) for of in (stage.init, stage.reference))
    rows = tuple(chain.workdir / name / ROWS for name in stage.samples)
    for name in stage.samples:
      if manifest.edited(chain.workdir, name):
        console.say(f"note: {name}/{ROWS} was edited since stage '{name}' wrote it; it is learned as it is")
    teachers = {key: _policy(stage, of, chain.workdir) for key, of in stage.teachers}
    left = KINDS[stage.kind](stage, Place(folder, policy, share, rows, reference, teachers))
  except ValueError as error:
    if jax.process_index() == 0 and (folder / manifest.NAME).exists():
      _draw_stage(chain, stage, str(error))
    raise ValueError(f"stage '{stage.name}': {error}") from error
  if left is None:
    return False
  manifest.finish(stage, chain.workdir, left)
  processes.on_process_0(lambda: _draw(chain, stage))
  return True


def _draw(chain: Chain, stage: Stage) -> None:
  """Writes the reports of a stage that is done and of the chain."""
  _draw_stage(chain, stage)
  _tried(lambda: page.write(chain.name, chain.stages, chain.workdir), "; the next stage tries again")


def _draw_stage(chain: Chain, stage: Stage, failed: str = "") -> None:
  """Writes the report of a stage that draws none itself; `failed` is why it has ended."""
  if stage.kind in stage_page.KINDS:
    _tried(lambda: stage_page.write(chain.name, stage, chain.workdir, failed), f" of stage '{stage.name}'")


def _tried(draw: Callable[[], Path], what: str) -> None:
  """Draws a report.  What is done stays done where it cannot be drawn."""
  try:
    draw()
  except Exception as error:
    console.say(f"note: the report could not be drawn ({errors.sentence(error)}){what}")


def _policy(stage: Stage, of: str, workdir: Path) -> str:
  """Returns the folder of the policy that stage `of` has left, as it was written; "" for none."""
  if not of:
    return ""
  if of == BASE and "path" in stage.config.model:
    return stage.config.model.path
  manifest.check_policy(of, workdir)
  return str(workdir / of / POLICY)


def _say(text: str) -> None:
  """Prints a line that stands out among those of the stages."""
  console.say(f"\n== {text}")


def describe(chain: Chain, wanted: list[Stage]) -> None:
  """Prints each stage, how far it is, whether it is run now, and what it took or is expected to take."""
  ran = [(manifest.as_it_ran(stage, chain.workdir), chain.workdir / stage.name) for stage in chain.stages]
  paces = list(filter(None, (cost.pace(*one) for one in ran if one[0])))
  for stage in chain.stages:
    what, why = chain.states[stage.name]
    costs = cost.of_stage(stage, chain.workdir / stage.name, what, paces)
    how = f"{what}{'; now' if stage in wanted else ''}{f': {why}' if why else ''}"
    said = "; ".join(filter(None, (how, costs)))
    console.say(f"  {stage.name} ({stage.kind}, from {stage.init or 'nothing'}): {said}")
