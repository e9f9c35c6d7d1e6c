"""What a process has from outside that a run cannot live with, refused before anything compiles."""

import resource

import jax

_LEAST = 8 * 10**9  # bytes of address space: the smallest job maps 3e9 on two cores, and more on more
_SEEDED = "by another value the same seed samples other completions"
_SETTINGS = {  # of jax.config, or of the environment -> what it has to be, and why
  "jax_enable_x64": (False, "grpojax computes and counts in 32 bits"),
  "jax_debug_nans": (False, "NaN marks here what is not known yet, such as log pi_old of an on-policy batch"),
  "jax_debug_infs": (False, "-inf marks here what is masked"),
  "jax_disable_jit": (False, "programs are compiled ahead of their first call"),
  "jax_default_prng_impl": ("threefry2x32", _SEEDED),
  "jax_threefry_partitionable": (True, _SEEDED),
}


def check() -> None:
  """Raises ValueError for a setting of JAX, or a limit of the process, that a run cannot live with."""
  for name, (value, why) in _SETTINGS.items():
    if (found := getattr(jax.config, name)) != value:
      raise ValueError(f"{name} is {found} ({name.upper()}), and {why}; leave it at {value}.")
  _check_address_space()


def _check_address_space() -> None:
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
