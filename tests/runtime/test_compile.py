"""Memory that is free goes back to the system."""

import ctypes
import platform

import pytest

from benchmarks.podcheck import resident
from grpojax.runtime.compile import malloc_trim

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


def test_what_is_free_below_a_used_block_is_returned():
  libc = ctypes.CDLL(None)
  libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
  size, blocks = 64 * 2**10, []  # below what malloc maps by itself
  for _ in range(1024):
    blocks.append(libc.malloc(ctypes.c_size_t(size)))
    ctypes.memset(blocks[-1], 1, size)
  full = resident("VmRSS")
  for block in blocks[:-1]:
    libc.free(block)
  malloc_trim()
  assert full - resident("VmRSS") > 0.9 * size * len(blocks)
  libc.free(blocks[-1])
