"""Compiled programs on disk: whole or not there, and what they were when they were written."""

import jax
import pytest
import subprocesses

from grpojax.runtime import program_cache


@pytest.fixture
def cache(tmp_path):
  program_cache.console.say_once.cache_clear()
  return program_cache.VerifiedCache(str(tmp_path), max_size=-1)


def damage(file, change):
  file.write_bytes(change(bytearray(file.read_bytes())))


def flip(data):
  data[len(data) // 2] ^= 1
  return data


DAMAGE = {
  "flipped": flip,
  "truncated": lambda data: data[:-1],
  "empty": lambda data: b"",
  "of JAX itself": lambda data: data[program_cache.DIGEST :],
}


def test_what_was_put_is_got_and_the_first_of_a_key_stays(cache, tmp_path):
  assert cache.get("one") is None
  cache.put("one", b"program" * 99)
  cache.put("one", b"another")
  assert cache.get("one") == b"program" * 99 and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_entry_is_said_once_and_made_anew(kind, cache, tmp_path, capsys):
  for name in ("one", "two"):
    cache.put(name, b"program" * 99)
    damage(tmp_path / f"{name}-cache", DAMAGE[kind])
    assert cache.get(name) is None
    cache.put(name, b"program" * 99)
    assert cache.get(name) == b"program" * 99
  assert capsys.readouterr().out.count("not what was written") == 1


def test_an_entry_whose_write_fails_is_not_there(cache, tmp_path, monkeypatch):
  def killed(*_):
    raise OSError("killed before the rename")

  monkeypatch.setattr(program_cache.os, "replace", killed)
  with pytest.raises(OSError, match="killed"):
    cache.put("one", b"program")
  assert cache.get("one") is None and not list(tmp_path.iterdir())


def test_jax_keeps_its_programs_so():
  """conftest.py calls `use`, as every command does."""
  from jax._src import compilation_cache

  cache, _ = compilation_cache.get_file_cache("/tmp")
  assert isinstance(cache, program_cache.VerifiedCache)


def test_a_program_that_cannot_be_written_runs_on_every_process(monkeypatch):
  """As on process 0, where JAX warns; some programs cannot be serialized, and a disk may be full."""

  def refused(*_):
    raise RuntimeError("no serialization of this")

  monkeypatch.setattr(program_cache.jax, "process_index", lambda: 1)
  monkeypatch.setattr(program_cache.compilation_cache, "put_executable_and_time", refused)
  monkeypatch.setattr(program_cache.compilation_cache, "get_executable_and_time", lambda *_: (None, None))
  least = jax.config.jax_persistent_cache_min_compile_time_secs
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
  try:
    with pytest.warns(UserWarning, match="no serialization"):
      assert jax.jit(lambda x: x + 41)(1) == 42
  finally:
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)


@pytest.mark.slow
def test_every_process_finds_what_it_compiled_before(tmp_path):
  """Also process 1, whose devices are in the keys of its programs; JAX writes those of process 0 alone."""
  said = []
  for _ in range(2):
    started = subprocesses.start([["tests/own_programs.py", str(tmp_path)]] * 2)
    subprocesses.ended_well(found := subprocesses.ended(started, timeout=60))
    said.append([one.out.strip() for one in found])
  assert said == [["found 0, wrote 2"] * 2, ["found 2, wrote 0"] * 2]
