"""SHA-256 checksums of a prepared dataset's files, written beside them as `sha256sum` does."""

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def write(folder: Path) -> None:
  (folder / NAME).write_text(_sums(folder))


def check(folder: Path) -> None:
  """Raises ValueError where a file is not what was written, has gone, or has been added."""
  file, sums = folder / NAME, _sums(folder).encode()
  written = file.read_bytes() if file.is_file() else b""
  if written != sums:
    differ = set(written.split(b"\n")) ^ set(sums.split(b"\n"))
    names = sorted(line[66:].decode(errors="replace") for line in differ if len(line) > 66)
    what = names[0] if written and names else NAME
    raise ValueError(f"{folder} is not what was written ({what!r}); delete it and start again.")


def _sums(folder: Path) -> str:
  files = sorted(path for path in folder.iterdir() if path.name != NAME)
  content = lambda path: path.read_bytes() if path.is_file() else b"a folder, which has been added"
  return "".join(f"{hashlib.sha256(content(path)).hexdigest()}  {path.name}\n" for path in files)
