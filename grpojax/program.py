"""Compiled programs that say what they are: compiled once, ahead of their first call, never again."""

from collections.abc import Callable

import jax

from grpojax import console


def program(name: str, fn: Callable, **jit_options) -> Callable:
  """jit(fn), compiled at its first call with a word about it; other shapes later are a TypeError.

  Under plain jit a shape that changes would recompile silently, at every change.
  """
  compiled = None

  def call(*args):
    nonlocal compiled
    if compiled is None:
      with console.compiling(name):
        compiled = jax.jit(fn, **jit_options).lower(*args).compile()
    return compiled(*args)

  return call
