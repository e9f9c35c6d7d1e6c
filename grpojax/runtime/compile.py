"""Compiled programs that say what they are: compiled once, ahead of their first call, never again."""

from collections.abc import Callable

import jax

from grpojax.runtime import console, heap


def program(name: str, fn: Callable, **jit_options) -> Callable:
  """jit(fn), compiled at its first call with a word about it; other shapes later are a TypeError.

  Under plain jit a shape that changes would recompile silently, at every change.  An argument that is
  None in some calls makes two programs.  `call.lower`, jit's own, and where the arguments lie are for who
  compiles without calling.
  """
  compiled, jitted = {}, jax.jit(fn, **jit_options)

  def call(*args):
    structure = jax.tree.structure(args)
    if structure not in compiled:
      heap.give_back()
      with console.compiling(name):
        compiled[structure] = jitted.lower(*args).compile()
      heap.give_back()
    return compiled[structure](*args)

  call.lower, call.in_shardings = jitted.lower, jit_options.get("in_shardings")
  return call
