"""Compiled programs that say what they are: compiled once, ahead of their first call, never again."""

import ctypes
import platform
from collections.abc import Callable

import jax

from grpojax.runtime import console

_GLIBC = ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def aot_jit(name: str, fn: Callable, **jit_options) -> Callable:
  """jit(fn), compiled at its first call with a word about it; other shapes later are a TypeError.

  Under plain jit a shape that changes would recompile silently, at every change.  An argument that is
  None in some calls makes two programs.  `call.lower`, jit's own, and where the arguments lie are for who
  compiles without calling.
  """
  compiled, jitted = {}, jax.jit(fn, **jit_options)

  def call(*args):
    structure = jax.tree.structure(args)
    if structure not in compiled:
      malloc_trim()
      with console.compiling(name):
        compiled[structure] = jitted.lower(*args).compile()
      malloc_trim()
    return compiled[structure](*args)

  call.lower, call.in_shardings = jitted.lower, jit_options.get("in_shardings")
  return call


def malloc_trim() -> None:
  """Returns free memory of the C library to the system, so that the next program's compiling begins low.

  glibc only.  Compiling for a processor takes hundreds of MB for a while.
  """
  if _GLIBC:
    _GLIBC.malloc_trim(0)
