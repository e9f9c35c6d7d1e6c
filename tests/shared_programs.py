"""Programs that the jobs of one process share, where their configs differ in nothing that decides one."""

# Keys of a config that decide no program; "seed" also stands for what begins with it.
NO_PROGRAM = (
  "name", "steps", "seed", "cache_dir", "verbose", "reward", "objective", "checkpoint", "profile_steps",
  "data.train", "data.validation", "data.test", "eval.every", "eval.prompts", "cold_start", "reference",
  "baseline", "difficulty", "staleness", "teacher", "sft", "sample",
)  # fmt: skip
BUILT = {}  # (mesh, config without those keys) -> programs


def share(monkeypatch) -> None:
  """Lets train/setup.py build each program once."""
  from grpojax.config import schema  # here: the process that deals the tests needs none of it
  from grpojax.train import setup

  build = setup.build_programs

  def build_once(config, model, tokenizer, mesh):
    keys = schema.flatten(config.to_dict()).items()
    decides = mesh, *(f"{key}={value}" for key, value in keys if not key.startswith(NO_PROGRAM))
    if decides not in BUILT:
      BUILT[decides] = build(config, model, tokenizer, mesh)
    return BUILT[decides]

  monkeypatch.setattr(setup, "build_programs", build_once)
