"""Jobs of tests in one process share the programs that are the same."""

BUILT = {}  # (mesh, config without the keys that decide none) -> programs


def share(monkeypatch) -> None:
  """Lets train/programs.py build each program once."""
  from grpojax.train import programs, shared  # here: the process that deals the tests needs none of it

  monkeypatch.setattr(programs, "build", shared.sharing(programs.build, BUILT))
