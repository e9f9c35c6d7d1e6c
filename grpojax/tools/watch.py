"""Shows runs as they go: grpojax watch RUN [RUN...], and a browser of this machine."""

import argparse
import json
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from grpojax.runtime import report, storage

PORT = 8642
WAITS = (
  '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="3"><title>grpojax watch</title>'
  "<p>No step has a record yet. This page looks again every three seconds."
)


class Page(BaseHTTPRequestHandler):
  """The report of the first run with the curves of all, and its numbers as data.json."""

  def __init__(self, workdirs: list[Path], files: report.Files, *args):
    self.workdirs, self.files = workdirs, files
    super().__init__(*args)

  def do_GET(self):
    """Answers / and /data.json?seen=ETAG (204 where nothing has changed since), to this machine alone."""
    host, url = urlsplit(f"//{self.headers.get('Host', '')}").hostname, urlsplit(self.path)
    if host not in ("127.0.0.1", "localhost"):  # a page of another name that leads here
      self._send(403, "text/plain", "This page is for this machine.")
    elif url.path == "/":
      self._send(200, "text/html", self._page())
    elif url.path == "/data.json":
      self._numbers(parse_qs(url.query).get("seen", [""])[0])
    else:
      self._send(404, "text/plain", "There is / and /data.json.")

  def _page(self) -> str:
    try:
      return report.render(self.workdirs[0], report.payload(self._begun(), self.files), live=True)
    except FileNotFoundError:
      return WAITS

  def _begun(self) -> list[Path]:
    """Returns the first run, and the others that have a record."""
    first, *others = self.workdirs
    return [first, *filter(self.files.records.read, others)]

  def _numbers(self, seen: str) -> None:
    state = _state(self.workdirs)
    if seen == state:
      self._send(204, "text/plain", "")
      return
    try:
      news = report.news(self._begun(), self.files)
      self._send(200, "application/json", json.dumps(news, allow_nan=False), state)
    except FileNotFoundError:
      self._send(204, "text/plain", "")

  def _send(self, status: int, kind: str, text: str, etag: str = "") -> None:
    body = text.encode("utf-8", "replace")
    self.send_response(status)
    self.send_header("Content-Type", f"{kind}; charset=utf-8")
    self.send_header("Content-Length", str(len(body)))
    self.send_header("Cache-Control", "no-store")
    if etag:
      self.send_header("ETag", etag)
    self.end_headers()
    self.wfile.write(body)

  def log_message(self, *_):
    """Prints nothing: a line for every look of the page helps nobody."""


def _state(workdirs: list[Path]) -> str:
  """Returns a text that changes when a run has written something."""
  files = [workdir / f"{name}.jsonl" for workdir in workdirs for name in ("metrics", "completions")]
  return "-".join(f"{file.stat().st_size:x}.{file.stat().st_mtime_ns:x}" for file in files if file.exists())


def serve(workdirs: list[Path], port: int) -> HTTPServer:
  """Returns a server on 127.0.0.1 that listens already; port 0 takes any that is free.

  Raises ValueError for a port that is none, or is taken.
  """
  if not 0 <= port < 2**16:
    raise ValueError(f"--port={port} is none; ports are 0 to 65535.")
  try:
    return HTTPServer(("127.0.0.1", port), partial(Page, workdirs, report.Files()))
  except OSError as error:
    raise ValueError(f"--port={port} cannot be used: {error.strerror}; choose another.") from error


def command() -> None:
  """Reads the command line and serves until Ctrl-C."""
  parser = argparse.ArgumentParser(prog="grpojax watch", description=__doc__)
  parser.add_argument("runs", metavar="RUN", nargs="+", help="a run's --workdir; its curves are on one chart")
  parser.add_argument("--port", type=int, default=PORT, help=f"of 127.0.0.1; default {PORT}")
  flags = parser.parse_args()
  for run in flags.runs:
    if storage.in_bucket(run) or not Path(run).is_dir():
      raise ValueError(f"RUN = '{run}' is no folder of this machine; name a run's --workdir.")
  server = serve([Path(run).absolute() for run in flags.runs], flags.port)
  print(f"http://127.0.0.1:{server.server_port}  (Ctrl-C ends it; the run goes on)", flush=True)
  try:
    server.serve_forever()
  except KeyboardInterrupt:
    print()
