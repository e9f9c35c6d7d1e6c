"""Huge pages: who asks for them starts anew once, with the same words, and gets them."""

import json
import platform
import subprocess
import sys

import pytest

from grpojax.runtime import huge_pages

PROGRAM = """
import json, os, sys
from grpojax.runtime import huge_pages
huge_pages.ask()
print(json.dumps([os.getpid(), os.environ.get("GLIBC_TUNABLES"), sys.argv, sys.flags.optimize]))
"""


@pytest.fixture
def kernel(tmp_path, monkeypatch):
  """Returns a function that says what the kernel's file says, on a machine with glibc 2.36."""

  def says(words: str) -> None:
    (tmp_path / "enabled").write_text(words)
    monkeypatch.setattr(huge_pages, "_KERNEL", tmp_path / "enabled")

  monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
  monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
  says("always [madvise] never")
  return says


def test_a_process_asks_where_the_kernel_gives_them_to_those_who_ask(kernel, monkeypatch):
  assert huge_pages.environment() == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
  monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")
  assert huge_pages.environment() == {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"}


@pytest.mark.parametrize("words", ["[always] madvise never", "always madvise [never]"])
def test_where_all_or_none_get_them_nobody_asks(kernel, words):
  kernel(words)
  assert huge_pages.environment() == {}


def test_older_or_other_libraries_and_ones_own_choice_stay_as_they_are(kernel, monkeypatch):
  for library in ("glibc", "2.34"), ("musl", "1.2"), ("", ""):
    monkeypatch.setattr(platform, "libc_ver", lambda library=library: library)
    assert huge_pages.environment() == {}
  monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
  monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
  assert huge_pages.environment() == {}


def test_the_process_starts_anew_in_its_place_with_its_words(tmp_path, monkeypatch):
  (tmp_path / "program.py").write_text(PROGRAM)
  monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
  command = [sys.executable, "-O", "program.py", "--config=a b"]
  process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
  pid, tunables, words, optimize = json.loads(process.communicate()[0])
  assert (pid, words, optimize) == (process.pid, ["program.py", "--config=a b"], 1)
  assert tunables == huge_pages.environment().get("GLIBC_TUNABLES")
