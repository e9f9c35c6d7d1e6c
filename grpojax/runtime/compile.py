"""Ahead-of-time compilation: each program is named on the console and compiled once, at its first call."""

import ctypes
import platform
import threading
from collections.abc import Callable

import jax

from grpojax.runtime import console

SENDING = threading.Lock()  # held to send a program: what sums over devices has to reach all in one order
_GLIBC = ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def aot_jit(name: str, fn: Callable, **jit_options) -> Callable:
  """Returns jit(fn), compiled and announced at its first call; other shapes later raise TypeError.

  Under plain jit a shape that changes would recompile silently, at every change.  An argument that is
  None in some calls makes two programs.  `call.lower` (jit's own) and the arguments' shardings serve
  callers that only compile.
  """
  compiled, jitted = {}, jax.jit(fn, **jit_options)

  def call(*args):
    structure = jax.tree.structure(args)
    if structure not in compiled:
      malloc_trim()
      with console.compiling(name):
        compiled[structure] = jitted.lower(*args).compile()
      malloc_trim()
    with SENDING:
      return compiled[structure](*args)

  call.lower, call.in_shardings = jitted.lower, jit_options.get("in_shardings")
  return call


def malloc_trim() -> None:
  """Gives the C library's free memory back to the system, before the next program is compiled.

  This needs glibc.  Compiling for a CPU takes hundreds of MB for a while.
  """
  if _GLIBC:
    _GLIBC.malloc_trim(0)
