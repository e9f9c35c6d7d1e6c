"""Seeded mutators of files, rows and values; and what came of a call that was fed with them."""

import json
import math
import signal
import traceback
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from grpojax.runtime import errors

CPU_SECONDS = 20  # of one case; a call that takes longer hangs
LONGEST = 2000  # characters of a message


class Hang(BaseException):
  """No Exception, lest the code under test catch it."""


class Outcome(NamedTuple):
  value: object  # what the call returned
  error: str  # or the sentence that it ended with; "": none
  deep: str  # or where from the depths it came; "": nowhere


def outcome(call, *args) -> Outcome:
  """What came of call(*args).  A sentence is one line of a ValueError, an OSError or a SystemExit."""
  try:
    with limited():
      return Outcome(call(*args), "", "")
  except (ValueError, OSError, SystemExit) as error:
    said = str(error)
    fine = type(error) in (ValueError, SystemExit) or isinstance(error, OSError)
    fine = fine and errors.FLAG not in said  # the door's words for what nobody foresaw
    if fine and said and "\n" not in said and "Traceback" not in said and len(said) < LONGEST:
      return Outcome(None, said, "")
    return Outcome(None, "", where(error))
  except BaseException as error:
    if isinstance(error, KeyboardInterrupt):
      raise
    return Outcome(None, "", where(error))


def where(error: BaseException) -> str:
  frames = [f for f in traceback.extract_tb(error.__traceback__) if "/grpojax/" in f.filename]
  last = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
  return f"{type(error).__name__} in {last}: {str(error)[:300]!r}"


@contextmanager
def limited():
  """Hang after so much CPU: of a busy machine, the clock would say nothing."""

  def hangs(*_):
    raise Hang

  before = signal.signal(signal.SIGPROF, hangs)
  signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


# Bytes: what disks, downloads and editors do to a file.


def truncate(rng: Random, data: bytes) -> bytes:
  return data[: rng.randrange(len(data))]


def flip(rng: Random, data: bytes) -> bytes:
  data = bytearray(data)
  for _ in range(rng.choice([1, 1, 1, 3, 30])):
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
  return bytes(data)


def insert(rng: Random, data: bytes) -> bytes:
  at = rng.randrange(len(data) + 1)
  what = [b"\0", b"\0" * 64, b"\xff", b"\n", b"\r\n", b'"', b"{", b"[", b"\xed\xa0\x80", rng.randbytes(8)]
  return data[:at] + rng.choice(what) + data[at:]


def cut_out(rng: Random, data: bytes) -> bytes:
  start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
  return data[:start] + data[end:]


def repeat(rng: Random, data: bytes) -> bytes:
  start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
  return data[:end] + data[start:]


def zero(rng: Random, data: bytes) -> bytes:
  start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
  return data[:start] + bytes(end - start) + data[end:]


def noise(rng: Random, data: bytes) -> bytes:
  return rng.randbytes(rng.randrange(200))


def recode(rng: Random, data: bytes) -> bytes:
  text = data.decode(errors="replace")
  encoding = rng.choice(["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252"])
  return text.encode(encoding, "replace")


def crlf(rng: Random, data: bytes) -> bytes:
  return data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n", b" \n\t\n"]))


BYTES = (truncate, flip, insert, cut_out, repeat, zero, noise, recode, crlf)


# Values: what scripts write into a field.


def nested(depth: int):
  value = "x"
  for _ in range(depth):
    value = [value]
  return value


def odd(rng: Random):
  """A value that no field expects; JSON can write all of them."""
  return rng.choice(
    [None, True, False, 0, -1, 7.5, 10**400, -(10**18), 1e308, math.nan, math.inf, "", "  ", "\0", "\ud800",
     "é" * 9, "x" * 5000, [], [None], [[]], {}, {"": ""}, {"text": "x"}, nested(40), "<|im_end|>", "\u2028",
     "{", "[1]", "NaN", "-0", "1" * 400, [{"role": "user"}], [{"role": 7, "content": "x"}],
     [{"role": "user", "content": ["x"]}], [{"role": "assistant", "content": "x"}],
     [{"role": 7, "content": "x"}, {"role": "user", "content": "y"}]]
  )  # fmt: skip


def spoil(rng: Random, row: dict) -> dict | bytes:
  """The row with one thing wrong; as bytes where JSON's writer would not write it so."""
  key, row = rng.choice(sorted(row)), dict(row)
  how = rng.randrange(8)
  if how == 0:
    del row[key]
  elif how == 1:  # the key stands twice
    both = json.dumps({key: row[key]})[1:-1] + ", " + json.dumps({key: odd(rng)})[1:-1]
    others = "".join(", " + json.dumps({k: v})[1:-1] for k, v in row.items() if k != key)
    return f"{{{both}{others}}}".encode()
  elif how == 2:
    row[rng.choice([key.upper(), f"{key} ", ""])] = row.pop(key)
  elif how == 3:
    depth = rng.choice([900, 5000, 200_000])
    return b'{"x": ' + b"[" * depth + b"]" * depth + b"}"
  elif how == 4:
    return json.dumps(rng.choice([[row], row[key], None, 7, "row"])).encode()
  elif how == 5:
    return flip(rng, json.dumps(row).encode()).replace(b"\n", b" ")
  else:
    row[key] = odd(rng)
  return row


# Parquet: columns of other types, and what to_pylist makes of them.


def odd_column(rng: Random, n: int) -> pa.Array:
  whole = range(n)
  return rng.choice([
    lambda: pa.nulls(n),
    lambda: pa.array(whole, pa.int64()),
    lambda: pa.array([i % 2 == 0 for i in whole]),
    lambda: pa.array([math.nan] * n),
    lambda: pa.array([b"\xff\xfe"] * n, pa.binary()),
    lambda: pa.array([b"x"] * n, pa.binary()),
    lambda: pa.array([[str(i)] for i in whole]),
    lambda: pa.array([{"text": str(i)} for i in whole]),
    lambda: pa.array([[("k", "v")]] * n, pa.map_(pa.string(), pa.string())),
    lambda: pa.array([str(i) for i in whole]).dictionary_encode(),
    lambda: pa.array([2**62] * n, pa.timestamp("ns")),
    lambda: pa.array([-(2**60)] * n, pa.timestamp("us")),
    lambda: pa.array([2**62] * n, pa.duration("s")),
    lambda: pa.array([2**31 - 1] * n, pa.date32()),
    lambda: pa.array(list(whole), pa.decimal128(38, 2)),
    lambda: pa.Array.from_buffers(pa.string(), n, [None, *invalid_text(n)]),
  ])()  # fmt: skip


def invalid_text(n: int) -> list[pa.Buffer]:
  """Strings of which none is UTF-8."""
  offsets = b"".join(i.to_bytes(4, "little") for i in range(0, 2 * n + 1, 2))
  return [pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfe" * n)]


def odd_parquet(rng: Random, rows: list[dict], path) -> None:
  """The rows, with a column of another type or without it, or with two of a name."""
  table = pa.Table.from_pylist(rows)
  i = rng.randrange(table.num_columns)
  name, how = table.column_names[i], rng.randrange(4)
  if how == 0:
    table = table.remove_column(i)
  elif how == 1:
    table = table.append_column(name, odd_column(rng, len(rows)))
  else:
    table = table.set_column(i, name, odd_column(rng, len(rows)))
  pq.write_table(table, path, row_group_size=rng.choice([1, 5, 1000]))
