"""Compiled programs that say what they are: compiled once, ahead of their first call, never again."""

import time
from collections.abc import Callable

import jax


def program(name: str, fn: Callable, say: Callable[[str], None], **jit_options) -> Callable:
  """jit(fn), announced: says how long compiling took, and refuses other shapes with a TypeError.

  A shape that changes later would recompile silently under plain jit; here it is an error.
  """
  compiled = None

  def call(*args):
    nonlocal compiled
    if compiled is None:
      start = time.perf_counter()
      compiled = jax.jit(fn, **jit_options).lower(*args).compile()
      say(f"compiled {name} in {time.perf_counter() - start:.1f} s")
    return compiled(*args)

  return call
