"""Huge pages for what the C library allocates: XLA:CPU takes arrays anew for every program and touches them.

In pages of 4 KiB a processor spends up to a sixth of an update on the first touch of each.  Where Linux
gives huge pages to those who ask (`madvise`), glibc asks from version 2.35 on, if its environment says so
before the process starts.
"""

import os
import platform
import sys
from pathlib import Path

_KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_VARIABLE, _TUNABLE = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"
_SINCE = (2, 35)  # of glibc


def environment() -> dict[str, str]:
  """Returns the variables that make a new process ask for huge pages; none where it would not get them.

  A choice of one's own, `GLIBC_TUNABLES=glibc.malloc.hugetlb=0`, stays.
  """
  name, version = platform.libc_ver()
  given = os.environ.get(_VARIABLE, "")
  asked = _KERNEL.exists() and "[madvise]" in _KERNEL.read_text()
  if not asked or name != "glibc" or _numbers(version) < _SINCE or _TUNABLE in given:
    return {}
  return {_VARIABLE: f"{given}:{_TUNABLE}=1".lstrip(":")}


def ask() -> None:
  """Starts this process anew with `environment`, in its place; returns where that changes nothing.

  It is the first thing that a program does: what it has imported, it imports again.
  """
  if found := environment():
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | found)


def _numbers(version: str) -> tuple[int, ...]:
  return tuple(int(part) for part in version.split(".") if part.isdigit())
