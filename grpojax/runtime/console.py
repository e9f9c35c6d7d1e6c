"""Console output of a run: compilations, progress, and one table at the end.

Only process 0 prints.  Where the terminal cannot redraw a line (a log file, a pod's stdout) or
`verbose` is off, there are no bars and no carriage returns: one plain line per event.
"""

import contextlib
import functools
import math
import re
import sys
import time
from collections.abc import Mapping

import jax
import rich.console
import rich.table
from tqdm.auto import tqdm  # in a notebook its widget

_NOTEBOOK = False if "ipykernel" in sys.modules else None  # of a bar's `disable`, None: unless a terminal
STATUS = {
  "cold_start/loss": "loss {:.3f}",
  "sft/loss": "loss {:.3f}",
  "reward": "reward {:.3g}",
  "accuracy": "acc {:.2g}",
  "completions/mean_length": "length {:.0f}",
  "entropy": "entropy {:.2g}",
  "tokens_per_second/rollout": "{:.0f} tok/s",
}
# Controls (C0 but tab and newline, DEL, C1), and what turns the direction of writing or is a lone surrogate.
_UNSEEN = re.compile(
  "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
LABELS = {
  "eval/answered": ("with an answer, %", 100),
  "eval/mean_length": ("mean length, tokens", 1),
  "eval/clipped_ratio": ("truncated, %", 100),
  "eval/turns": ("played, turns", 1),
}


def say(text: str) -> None:
  """Prints one line of a run; what it quotes cannot steer the terminal."""
  if jax.process_index() == 0:
    write_line(visible(text))


def visible(text: str) -> str:
  """Returns the text with control and bidirectional characters as escapes; lines and tabs stay."""
  return "".join(map(_escaped, text)) if _UNSEEN.search(text) else text


def _escaped(character: str) -> str:
  return character.encode("unicode_escape").decode() if _UNSEEN.match(character) else character


def write_line(text: str) -> None:
  """Prints one line, above the bar if there is one, and at once, also into a pipe or a file."""
  tqdm.write(text)
  sys.stdout.flush()


@functools.cache
def say_once(text: str) -> None:
  """Prints a line once, however often the same problem recurs; its count is in the metrics."""
  say(text)


@contextlib.contextmanager
def compiling(name: str):
  """Prints what is being compiled (`with compiling("update"): ...`), and then how long it took."""
  say(f"compiling {name} ...")
  start = time.perf_counter()
  yield
  say(f"compiled {name} in {time.perf_counter() - start:.1f} s")


def bar(total: int, start: int, verbose: bool, what: str = "step", leave: bool = True) -> tqdm:
  """Returns the progress bar of a run of `total` steps that begins, or resumes, after step `start`.

  It stays on the terminal when it is done if it is to `leave` its last state.
  """
  return tqdm(
    total=total,
    initial=start,
    leave=leave,
    dynamic_ncols=True,
    bar_format=what + " {n_fmt}/{total_fmt} |{bar}| {remaining} left {desc}",
    disable=True if not verbose or jax.process_index() != 0 else _NOTEBOOK,
  )


def advance(progress: tqdm, step: int, metrics: Mapping[str, float], what: str = "step") -> None:
  """Shows step `step` of the run: on the bar, or as a line of its own where bars are off."""
  shown = [form.format(metrics[name]) for name, form in STATUS.items() if name in metrics]
  if progress.disable:
    say(f"{what} {step}/{progress.total} {' '.join(shown)}")
    return
  progress.set_description_str(" ".join(shown), refresh=False)
  progress.update(step - progress.n)


def evaluation(step: int, found: Mapping[str, float], seconds: float) -> None:
  """Prints one line: held-out after step 20: pass@1 41.2 ± 2.1 %, ..., in 12.3 s."""
  measured = ""
  for label, _, value, _ in comparison({}, found):
    name, unit = label.rsplit(", ", 1)
    measured += f"{name} {value} {unit}, "
  say(f"held-out after step {step}: {measured}in {duration(seconds)}")
  if missing := found.get("eval/no_verdict"):
    say(f"{100 * missing:.1f} % of these completions got no verdict and count as wrong")


def comparison(before: Mapping, after: Mapping) -> list[tuple[str, str, str, str]]:
  """Returns rows (name and unit, before, after, difference) of two evaluations, as text."""
  rows = []
  for name in {**before, **after}:
    if name in LABELS:
      label, scale = LABELS[name]
    elif re.fullmatch(r"eval/(pass|maj)@\d+", name):
      label, scale = f"{name.removeprefix('eval/')}, %", 100
    else:
      continue
    difference = "-"
    if before.get(name) is not None and after.get(name) is not None:
      difference = f"{scale * (after[name] - before[name]):+.1f}"
      widths = [evaluation.get(f"{name}_ci95") for evaluation in (before, after)]
      if None not in widths:  # as if the questions were others, which is rather wide
        difference += f" ± {scale * math.hypot(*widths):.1f}"
    rows.append((label, _value(before, name, scale), _value(after, name, scale), difference))
  return rows


def _value(metrics: Mapping, name: str, scale: float) -> str:
  """Formats `41.2 ± 2.1`, where the ± is half of the 95 % confidence interval."""
  if name not in metrics:
    return "-"
  if metrics[name] is None:
    return "not finite"
  half_width = metrics.get(f"{name}_ci95")
  return f"{scale * metrics[name]:.1f}" + (
    f" ± {scale * half_width:.1f}" if half_width is not None else ""
  )


def duration(seconds: float) -> str:
  """Formats `7.3 s`, `4 min 05 s`, `2 h 10 min`."""
  if seconds < 60:
    return f"{seconds:.1f} s"
  minutes, seconds = divmod(round(seconds), 60)
  if minutes < 60:
    return f"{minutes} min {seconds:02d} s"
  return f"{minutes // 60} h {minutes % 60:02d} min"


def final_table(before: Mapping, after: Mapping, report_path, times: Mapping[str, float]) -> None:
  """Prints the end of a run: two evaluations compared, seconds by phase, the path of the report."""
  if jax.process_index() != 0:
    return
  table = rich.table.Table(title="held-out questions", title_justify="left")
  table.add_column("")
  for heading in ("before", "after", "difference"):
    table.add_column(heading, justify="right")
  for row in comparison(before, after):
    table.add_row(*row)
  console = rich.console.Console(highlight=False)
  console.print(table)
  longest_first = sorted(times.items(), key=lambda item: -item[1])
  console.print("time: " + ", ".join(f"{name} {duration(value)}" for name, value in longest_first))
  console.print(f"report: {report_path}", soft_wrap=True, markup=False)
