"""Says a peer's config in our flags: grpojax port trl|verl|slime|tunix FILE

    grpojax port trl train.py            # GRPOConfig(...) in Python, or its arguments as YAML or JSON
    grpojax port verl run_dapo.sh        # hydra's overrides, or YAML
    grpojax port slime run-qwen3-4B.sh   # the arguments of train.py
    grpojax port tunix grpo.py           # GRPOConfig(...), DAPOConfig(...), RolloutConfig(...), or YAML

Prints the command, where each flag is from, every word that means another formula there, and what cannot be
ported.  Keys that the file leaves out have the peer's defaults.  Nothing of the file is executed.
"""

import argparse
import importlib
import json
import shlex
import textwrap
from typing import Any

from grpojax.config import check, commandline
from grpojax.tools.port.read import read
from grpojax.tools.port.table import Peer
from grpojax.tools.port.translate import RECIPE, Ported, translate

PEERS = ("trl", "verl", "slime", "tunix")
STAND_INS = {"model.path": "MODEL", "data.path": "DATA"}  # what the file does not name


def command() -> None:
  """Reads the file and prints the answer."""
  parser = argparse.ArgumentParser(
    prog="grpojax port", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("peer", choices=PEERS)
  parser.add_argument("file")
  arguments = parser.parse_args()
  peer = table(arguments.peer)
  ported = translate(peer, *read(arguments.file, peer))
  print(text(peer, ported))
  refused = refusal(flags(ported))
  if refused:
    raise ValueError(f"the command above is refused: {refused}")


def table(name: str) -> Peer:
  """Returns the table of a peer."""
  return importlib.import_module(f"grpojax.tools.port.{name}").PEER


def flags(ported: Ported) -> list[str]:
  """Returns the arguments of `grpojax train`, the recipe first, none of them quoted."""
  chosen = {key: value for key, value in STAND_INS.items() if key not in ported.flags} | ported.flags
  return [RECIPE, *(f"--config.{key}={_written(value)}" for key, value in sorted(chosen.items()))]


def refusal(arguments: list[str]) -> str:
  """Returns the sentence with which a run on one device would be refused, or ""."""
  try:
    check.check(commandline.config_of([f"--config={arguments[0]}", *arguments[1:]]), devices=1)
  except ValueError as error:
    return str(error)
  return ""


def text(peer: Peer, ported: Ported) -> str:
  """Returns the whole answer."""
  shown = [_quoted(word) for word in flags(ported)]
  parts = [
    f"# {peer.name} {peer.version}; what the file leaves out has that version's default",
    " \\\n  ".join([f"grpojax train {shown[0]}", *shown[1:]]),
  ]
  if missing := [stand_in for key, stand_in in STAND_INS.items() if key not in ported.flags]:
    said = f"{' and '.join(missing)}: a folder, or a name on the hub. The file names none."
    parts.append(_wrapped(said, ""))
  parts += _section("Where the flags are from", _sources(ported))
  parts += _section("The same word, another formula", _words(peer, ported))
  parts += _section("Not ported", _gaps(peer, ported))
  parts += _section("Read, and without effect", _rest(peer, ported))
  return "\n\n".join(parts)


def _section(title: str, lines: list[str]) -> list[str]:
  return ["\n".join([f"{title}:", *lines])] if lines else []


def _sources(ported: Ported) -> list[str]:
  lines = []
  for key, keys in sorted(ported.sources.items()):
    note = "" if key in ported.flags else " (as in the recipe)"
    lines.append(_wrapped(f"{key}{note}: {', '.join(keys) or 'always'}"))
  return lines


def _words(peer: Peer, ported: Ported) -> list[str]:
  lines = []
  for word in ported.words:
    keys, end = ", ".join(word.keys.split()), "This remains." if word.remains else "The flags say it."
    lines.append(_wrapped(f"{keys}: in {peer.name} {word.there}; here {word.here}. {end}"))
  return lines


def _gaps(peer: Peer, ported: Ported) -> list[str]:
  lines = [_wrapped(f"{gap.key}: {gap.why}.") for gap in ported.gaps]
  lines += [_wrapped(f"{key}: {word}.") for key, word in ported.unread.items()]
  if any(key in peer.keys for key in ported.unread):
    lines.append(_wrapped(f"Flags of keys whose values are not known have {peer.name}'s defaults."))
  lines += [_wrapped(f"{key}: not of {peer.name}'s own; of {peer.foreign}'s?") for key in ported.foreign]
  return lines


def _rest(peer: Peer, ported: Ported) -> list[str]:
  lines = [_wrapped(f"{', '.join(keys)}: {kind}.") for kind, keys in ported.apart.items()]
  if ported.plain:
    lines.append(_wrapped(f"{', '.join(ported.plain)}: at these values nothing differs here."))
  if ported.idle:
    lines.append(_wrapped(f"{', '.join(ported.idle)}: {peer.name} reads none of them with these settings."))
  return lines


def _wrapped(line: str, indent: str = "  ") -> str:
  return textwrap.fill(
    line, 110, initial_indent=indent, subsequent_indent=indent * 2, break_long_words=False,
    break_on_hyphens=False,
  )  # fmt: skip


def _written(value: Any) -> str:
  return value if isinstance(value, str) else repr(value)


def _quoted(word: str) -> str:
  """Returns a word as a shell takes it, in double quotation marks where those are enough."""
  if shlex.quote(word) == word:
    return word
  name, equals, value = word.partition("=")
  if any(sign in value for sign in '"$`\\!'):
    return shlex.quote(word)
  return f"{name}{equals}{json.dumps(value, ensure_ascii=False)}"
