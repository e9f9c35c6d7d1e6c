"""Runs the stages of a pipeline: grpojax pipeline r1_zero [--workdir=runs/r1_zero] [--dry_run]

A stage that is done is not done again, and one that was stopped goes on where it was, so the same command
goes on after any end.  --config.KEY=VALUE sets a key for all stages.  Ends as `grpojax train` does.
"""

from absl import flags

from grpojax.config import commandline, recipe
from grpojax.runtime import console, errors, storage
from grpojax.tools.pipeline import chain as chain_lib
from grpojax.tools.pipeline import manifest, stages
from grpojax.train import shared

WORKDIR = flags.DEFINE_string(
  "workdir", None, "Where the stages live, a folder each; default runs/NAME.", allow_override=True
)
FROM = flags.DEFINE_string("from", "", "Run this stage and those behind it; those that are stale anew.")
ONLY = flags.DEFINE_string("only", "", "Run this stage alone; anew if it is stale.")
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print what is done, stale and left, at what cost, and end.")


def main(argv):
  """Runs what is left of the pipeline, or prints it."""
  config = commandline.start(argv, stages.check_keys_of)
  workdir = commandline.workdir(WORKDIR.value, f"runs/{config.name}")
  chain = chain_lib.find(config, storage.resolve(workdir, "--workdir"))
  if DRY_RUN.value:
    chain_lib.describe(chain, [])
    return
  wanted = chain_lib.choose(chain, FROM.value, ONLY.value)
  console.say(f"{chain.name} in {workdir}: {len(chain.stages)} stages, {len(wanted)} to run")
  chain_lib.describe(chain, wanted)
  share = shared.sharing({})
  errors.to_the_end(workdir, lambda: chain_lib.run(chain, wanted, share))
  for name, (what, why) in manifest.states(chain.stages, chain.workdir).items():
    if what == manifest.STALE:
      console.say(f"note: stage '{name}' is stale now ({why})")
  console.say(f"report: {chain.workdir / 'report.html'}")


def command() -> None:
  """Reads the flags and runs."""
  commandline.run(main, recipe.PIPELINES)
