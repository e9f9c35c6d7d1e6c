"""Limits of the process under which native libraries abort or wait for ever, refused before they are met."""

import resource

_LEAST = 8 * 10**9  # bytes of address space: the smallest job maps 3e9 on two cores, and more on more


def check() -> None:
  """Raises ValueError where the address space is too small for JAX and the readers of data.

  They start threads, each of which maps a stack and an arena.  A thread that cannot start is waited for
  without end, or ends the process by a signal, and no Python code sees either.
  """
  limit, _ = resource.getrlimit(resource.RLIMIT_AS)
  if limit != resource.RLIM_INFINITY and limit < _LEAST:
    raise ValueError(
      f"the address space of this process is limited to {limit / 1e9:.3g} GB (ulimit -v), and JAX needs "
      f"{_LEAST / 1e9:g} GB of it whatever the model; raise the limit, or limit memory by a control group."
    )
