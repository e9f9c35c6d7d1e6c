"""Jobs of tests in one process share the programs that are the same."""

BUILT = {}  # (mesh, config without the keys that decide none) -> programs


def share(monkeypatch) -> None:
  """Lets each program be built once."""
  from grpojax.train import shared  # here: the process that deals the tests needs none of it

  monkeypatch.setattr(shared, "anew", shared.sharing(BUILT))
