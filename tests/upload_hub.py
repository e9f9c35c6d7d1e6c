"""A hub on loopback that takes uploads: the protocol of a repository, of LFS objects and of one commit."""

import base64
import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator

WRITER, READER = "hf_of_a_writer", "hf_of_a_reader"


class Hub(http.server.ThreadingHTTPServer):
  """`repos`: name -> {"private": ..., "files": {path: bytes}}; `asked`: (method, path) of every request."""

  def __init__(self):
    super().__init__(("127.0.0.1", 0), _Handler)
    self.url = f"http://127.0.0.1:{self.server_port}"
    self.repos, self.stored, self.asked, self.broken = {}, {}, [], ""

  def answer(self, method: str, path: str, body: bytes, token: str) -> tuple[int, object]:
    """Returns the status and what is sent back."""
    path, parts = path.partition("?")[0], path.partition("?")[0].strip("/").split("/")
    if self.broken and self.broken in path:
      return 418, {"error": "out of order"}
    if path.startswith("/store/"):
      self.stored[parts[1]] = body
      return (200, {}) if hashlib.sha256(body).hexdigest() == parts[1] else (400, {"error": "other bytes"})
    if path == "/api/validate-yaml":
      return 200, {}
    if token not in (WRITER, READER):
      return 401, {"error": "Invalid user token."}
    if path.endswith(("/objects/batch", "/verify")):
      return 200, self._lfs(json.loads(body))
    if path == "/api/repos/create":
      return self._create(json.loads(body), token)
    return self._of_repo("/".join(parts[2:4]), parts[4:], body, token)

  def _create(self, asked: dict, token: str) -> tuple[int, object]:
    repo = f"{asked['organization']}/{asked['name']}"
    if token == READER:
      return 403, {"error": "You don't have the rights to create a model under this namespace"}
    if repo in self.repos:
      return 409, {"error": "You already created this model repo", "url": f"{self.url}/{repo}"}
    self.repos[repo] = {"private": asked["visibility"] == "private", "files": {}}
    return 200, {"url": f"{self.url}/{repo}"}

  def _lfs(self, asked: dict) -> dict:
    where = lambda oid: {"upload": {"href": f"{self.url}/store/{oid}"}}
    objects = [each | {"actions": where(each["oid"])} for each in asked["objects"]]
    return {"transfer": "basic", "objects": objects}

  def _of_repo(self, repo: str, what: list[str], body: bytes, token: str) -> tuple[int, object]:
    if repo not in self.repos:
      return 404, {"error": "Repository not found"}
    files = self.repos[repo]["files"]
    if what[:1] == ["auth-check"]:
      return (200, {}) if token == WRITER else (403, {"error": "no write access"})
    if what[:1] == ["tree"]:
      return 200, [dict(type="file", path=p, oid="0" * 40, size=len(x)) for p, x in files.items()]
    if what[:1] == ["preupload"]:
      mode = lambda path: "lfs" if path.endswith(".safetensors") else "regular"
      paths = [each["path"] for each in json.loads(body)["files"]]
      return 200, {"files": [dict(path=p, uploadMode=mode(p), shouldIgnore=False, oid=None) for p in paths]}
    if what[:1] == ["commit"]:
      for line in map(json.loads, body.splitlines()):
        self._commit(files, line["key"], line["value"])
      return 200, dict(commitOid="1" * 40, commitUrl=f"{self.url}/{repo}/commit/{'1' * 40}", success=True)
    return 200, dict(id=repo, private=self.repos[repo]["private"], siblings=[], sha="0" * 40)

  def _commit(self, files: dict[str, bytes], key: str, value: dict) -> None:
    if key == "deletedFile":
      del files[value["path"]]
    elif key == "lfsFile":
      files[value["path"]] = self.stored[value["oid"]]
    elif key == "file":
      files[value["path"]] = base64.b64decode(value["content"])


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version, timeout = "HTTP/1.1", 20

  def log_message(self, *_):
    pass

  def _do(self):
    body = self.rfile.read(int(self.headers.get("content-length") or 0))
    self.server.asked.append((self.command, self.path))
    token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
    status, found = self.server.answer(self.command, self.path, body, token)
    data = json.dumps(found).encode()
    self.send_response(status)
    self.send_header("content-type", "application/json")
    self.send_header("content-length", str(len(data)))
    self.end_headers()
    self.wfile.write(data)

  do_GET = do_POST = do_PUT = do_HEAD = _do


@contextlib.contextmanager
def serve() -> Iterator[Hub]:
  """The hub, on a thread, while the block runs."""
  with Hub() as hub:
    thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
      yield hub
    finally:
      hub.shutdown()
      thread.join(10)
