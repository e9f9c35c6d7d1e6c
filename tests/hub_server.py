"""A Hugging Face Hub of this machine: what huggingface_hub asks of one, for repositories in memory."""

import contextlib
import hashlib
import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

from grpojax.runtime import hub

TOKEN = "hf_right"


class Repo:
  """Revisions of files; a gated one gives them to TOKEN only, and `broken` files are cut in the middle."""

  def __init__(self, files, gated=False, broken=()):
    self.revisions, self.gated, self.broken = {}, gated, set(broken)
    self.commit(files)

  def commit(self, files, branch="main"):
    files = {name: data.encode() if isinstance(data, str) else data for name, data in files.items()}
    sha = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
    self.revisions |= {branch: (sha, files), sha: (sha, files)}
    return sha


@contextlib.contextmanager
def serve(models=None, datasets=None):
  """Yields (endpoint, what was asked for); nobody but this machine reaches it, and it ends with the block."""
  asked, kinds = [], {"models": models or {}, "datasets": datasets or {}}

  class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
      self.answer(body=False)

    def do_GET(self):
      self.answer(body=True)

    def answer(self, body):
      path = unquote(urlsplit(self.path).path)
      asked.append((self.command, path))
      if info := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/(revision|tree)/(.+?)/?", path):
        kind, name, what, revision = info.groups()
      elif file := re.fullmatch(r"/(?:(datasets)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
        (kind, name, revision), what = (file[1] or "models", file[2], file[3]), "file"
      else:
        return self.send(404, {}, b"")
      repo = kinds[kind].get(name)
      if repo is None:
        return self.send(401, {"X-Error-Code": "RepoNotFound"}, b"")
      if revision not in repo.revisions:
        return self.send(404, {"X-Error-Code": "RevisionNotFound"}, b"")
      sha, files = repo.revisions[revision]
      if what == "revision":
        siblings = [dict(rfilename=name) for name in files]
        return self.send_json(dict(id=name, sha=sha, siblings=siblings, private=False, gated=repo.gated))
      if repo.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
        return self.send(403, {"X-Error-Code": "GatedRepo"}, b"")
      if what == "tree":
        rows = [dict(type="file", path=p, size=len(d), oid=_oid(d)) for p, d in files.items()]
        return self.send_json(rows)
      if file[4] not in files:
        return self.send(404, {"X-Error-Code": "EntryNotFound"}, b"")
      return self.send_file(repo, file[4], sha, files[file[4]], body)

    def send_file(self, repo, name, sha, data, body):
      start = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or ["", "0"])[1])
      headers = {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
      if start:
        headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        asked.append(("RANGE", start))
      cut = body and name in repo.broken
      self.send_response(206 if start else 200)
      for key, value in (headers | {"Content-Length": str(len(data) - start)}).items():
        self.send_header(key, value)
      self.end_headers()
      if body:
        self.wfile.write(data[start : start + (len(data) - start) // 2] if cut else data[start:])
      if cut:
        self.close_connection = True

    def send_json(self, value):
      self.send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def send(self, status, headers, data):
      self.send_response(status)
      for key, value in (headers | {"Content-Length": str(len(data))}).items():
        self.send_header(key, value)
      self.end_headers()
      if self.command != "HEAD":
        self.wfile.write(data)

    def log_message(self, *_):
      """Says nothing."""

  server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
  server.daemon_threads = True
  threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
  try:
    yield f"http://127.0.0.1:{server.server_port}", asked
  finally:
    server.shutdown()
    server.server_close()


def environment(home, endpoint, **changes):
  """Returns the variables of a process that knows this hub and a cache of its own, and no token."""
  clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
  return clean | dict(HF_HOME=str(home), HF_ENDPOINT=endpoint, HF_HUB_DISABLE_TELEMETRY="1") | changes


def _oid(data):
  return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def use(monkeypatch, endpoint, home):
  """Points this process at the hub, with a cache of its own and no token: variables are read at import."""
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
  monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
  monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
  monkeypatch.setattr(hub, "_FETCHED", {})
  for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(constants, "ENDPOINT", endpoint)
  template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
  monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
