"""A headless Chromium that tests click in, spoken to by its debugging pipe; needs no library and no port."""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator

BROWSER = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)


class Navigated(Exception):
  """A page was made anew while a script ran in it."""


class Tab:
  """One page: `run` JavaScript in it, `click` where a selector points, `drag` across it."""

  def __init__(self, inbox, outbox):
    self.inbox, self.outbox, self.number, self.session = inbox, outbox, 0, None
    self.errors = []  # what scripts have thrown, and what the page's policy has blocked

  def send(self, method: str, **params) -> dict:
    self.number += 1
    message = {"id": self.number, "method": method, "params": params}
    if self.session:
      message["sessionId"] = self.session
    self.outbox.write(json.dumps(message).encode() + b"\0")
    self.outbox.flush()
    while True:
      got = self._read()
      if got.get("id") == self.number:
        if "Inspected target navigated" in str(got.get("error")):
          raise Navigated
        assert "error" not in got, got["error"]
        return got["result"]
      if got.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
        self.errors.append(got["params"])

  def _read(self) -> dict:
    text = b""
    while (byte := self.inbox.read(1)) != b"\0":
      assert byte, "the browser has ended"
      text += byte
    return json.loads(text)

  def open(self, url: str) -> None:
    self.send("Page.navigate", url=url)
    self.wait("document.readyState === 'complete'")

  def run(self, script: str):
    """Returns the value of an expression in the page; waits where it is a promise."""
    result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
    assert "exceptionDetails" not in result, result["exceptionDetails"]
    return result["result"].get("value")

  def wait(self, condition: str) -> None:
    """Returns once the condition is true, which is asked for 20 seconds, also of a page that is made anew."""
    end, met = time.monotonic() + 20, False
    while not met:
      assert time.monotonic() < end, condition
      with contextlib.suppress(Navigated):
        met = self.run(condition)
      time.sleep(0.02)

  def place(self, selector: str, share: float = 0.5) -> tuple[float, float]:
    """Returns where an element is, having scrolled to it; `share` of its width from the left."""
    found = f"document.querySelector({json.dumps(selector)})"
    self.run(f"{found}.scrollIntoView({{block: 'center'}})")
    box = f"(b => [b.left + {share} * b.width, b.top + b.height / 2])({found}.getBoundingClientRect())"
    return tuple(self.run(box))

  def mouse(self, kind: str, at: tuple[float, float], clicks: int = 1) -> None:
    held = {"mouseMoved": 1, "mousePressed": 1, "mouseReleased": 0}[kind]
    self.send(
      "Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left" if clicks else "none",
      buttons=held if clicks else 0, clickCount=clicks,
    )  # fmt: skip

  def click(self, selector: str, clicks: int = 1) -> None:
    at = self.place(selector)
    for count in range(1, clicks + 1):
      self.mouse("mousePressed", at, count)
      self.mouse("mouseReleased", at, count)

  def drag(self, selector: str, start: float, end: float) -> None:
    places = [self.place(selector, share) for share in (start, end)]
    self.mouse("mousePressed", places[0])
    self.mouse("mouseMoved", places[1])
    self.mouse("mouseReleased", places[1])

  def choose(self, selector: str, value: str) -> None:
    """Sets a select or a slider, as a person's choice does."""
    found = f"document.querySelector({json.dumps(selector)})"
    bubbles = "new Event('input', {bubbles: true})"
    self.run(f"{found}.value = {json.dumps(value)}, {found}.dispatchEvent({bubbles})")

  def screenshot(self, path) -> None:
    data = self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"]
    path.write_bytes(base64.b64decode(data))


def _pipe() -> tuple[int, int]:
  """Returns (the end to read, the end to write), neither of them 3 or 4."""
  ends = os.pipe()
  high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
  for end in ends:
    os.close(end)
  return high


@contextlib.contextmanager
def tab(folder, width: int = 1200, height: int = 900) -> Iterator[Tab]:
  """Gives an empty page of a browser whose profile is in `folder`, and ends the browser."""
  reads, writes = _pipe(), _pipe()  # the browser reads commands at 3 and answers at 4
  flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
  flags += [f"--user-data-dir={folder}", f"--window-size={width},{height}"]
  shell = 'exec "$0" "$@" 3<&"$READ" 4>&"$WRITE"'
  process = subprocess.Popen(
    ["bash", "-c", shell, BROWSER, *flags], pass_fds=(reads[0], writes[1]),
    env=os.environ | {"READ": str(reads[0]), "WRITE": str(writes[1])}, stderr=subprocess.DEVNULL,
  )  # fmt: skip
  os.close(reads[0])
  os.close(writes[1])
  try:
    with os.fdopen(writes[0], "rb") as inbox, os.fdopen(reads[1], "wb") as outbox:
      page = Tab(inbox, outbox)
      target = page.send("Target.createTarget", url="about:blank")["targetId"]
      page.session = page.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
      for domain in ("Page", "Runtime", "Log"):
        page.send(f"{domain}.enable")
      yield page
  finally:
    process.terminate()
    process.wait(timeout=20)
