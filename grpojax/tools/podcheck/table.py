"""A check as a table for people, and as plain data for scripts.

Every figure says whose it is: C, the compiler's own; L, counted in the compiler's program, loop by loop;
A, arithmetic on shapes and published peaks.
"""

import math

import jax

from grpojax.runtime.chips import GIB
from grpojax.tools.podcheck import check as check_lib
from grpojax.tools.podcheck import necessary
from grpojax.tools.podcheck.programs import decode_steps

MEMORY = {"parameters": "A", "optimiser": "A", "gradients": "A", "activations": "A", "KV": "A", "batch": "A",
          "temporaries": "C", "beside": "A"}  # fmt: skip


def data(check: check_lib.Check) -> dict:
  """Returns what --json writes: bytes, seconds and FLOPs, all of one chip."""
  plan, c = check.plan, check.plan.config
  summary = {
    "config": c.name, "model": _model(check), "topology": check.slice.name, "versions": check.slice.versions,
    "chips": plan.mesh.size + c.mesh.rollout_devices, "mesh": dict(plan.mesh.shape), "fits": check.fits,
    "slots": plan.slots, "pieces": plan.pieces, "chosen": plan.chosen, "seconds_per_step": check.seconds,
    "seconds_sampling": check.sampling, "seconds_learning": check.learning,
  }  # fmt: skip
  tokens = c.rollout.prompts * c.rollout.group_size * c.rollout.max_tokens
  summary["tokens_per_second_per_chip"] = tokens / check.seconds / summary["chips"]
  return summary | utilisation(check) | dict(programs={name: _program(p) for name, p in check.parts.items()})


def utilisation(check: check_lib.Check) -> dict[str, float]:
  """Returns necessary work over the chip's peak for the estimated time; NaN without an estimate."""
  chip, found, nan = check.slice.chip, {}, float("nan")
  update, decode = (check.parts.get(name) for name in ("update", "decode"))
  if update and update.estimate:
    least = necessary.update(check.plan) / check.plan.mesh.size
    peak = chip.flops if chip else nan
    found["update_mfu"] = least / update.estimate.seconds / peak
    found["update_mfu_kernels_at_peak"] = least / update.estimate.fastest / peak
    found["update_flops_over_necessary"] = update.estimate.flops / least
  if decode and decode.estimate:
    seconds, least = check_lib.per_token(check.plan, decode)
    found["decode_seconds_per_token"] = seconds
    found["decode_share_of_bandwidth"] = least / seconds / (chip.hbm if chip else nan)
    found["decode_bytes_over_necessary"] = (
      decode.estimate.bytes / (decode_steps(check.plan) / decode.calls) / least
    )
  return found


def _model(check: check_lib.Check) -> str:
  c = check.plan.config.model
  count = sum(math.prod(x.shape) for x in jax.tree.leaves(check.plan.model.shapes))
  name = c.path.rstrip("/").split("/")[-1] if "path" in c else check.plan.model.spec.family
  return f"{name}, {count / 1e9:.2f}e9 parameters" if count > 1e8 else f"{name}, {count:,} parameters"


def _program(p: check_lib.Checked) -> dict:
  found = dict(
    calls=p.calls, compile_seconds=p.compiled.seconds, refused=p.compiled.refused, memory=p.memory,
    of_compiler=p.compiled.needed, needed=p.needed,
  )  # fmt: skip
  if p.estimate:
    e = p.estimate
    found |= e._asdict() | dict(bound=e.bound, open_loops=p.compiled.counts.open_loops)
    found["wire"] = [
      dict(kind=kind, axis=axis, times=n, bytes=sent) for (kind, axis), (n, sent) in e.wire.items()
    ]
  return found


def text(check: check_lib.Check) -> str:
  """Formats the table."""
  found, chip = data(check), check.slice.chip
  parts, names = found["programs"], list(found["programs"])
  line = lambda what, by, cells: f"| {what} | {by} | " + " | ".join(cells) + " |"
  mesh = ", ".join(f"{axis} {n}" for axis, n in found["mesh"].items() if n > 1) or "one device"
  rows = [
    f"{found['config']}: {found['model']}, on {found['topology']} ({mesh}; {found['versions']})",
    f"**{'fits' if check.fits else 'does not fit'}**"
    + (f" in {chip.memory / GIB:.4g} GiB a chip" if chip else "") + f"; {found['slots']} slots, an update in "
    f"{found['pieces']} piece(s); every response takes its whole budget",
    *([f"chosen: {found['chosen']}"] if found["chosen"] else []),
    "",
    line("of one chip", "by", names), line("---", "---", ["---"] * len(names)),
  ]  # fmt: skip
  rows += [
    line(f"{what}, GiB" + (" (the rest)" if what == "temporaries" else ""), by,
         [_number(parts[n]["memory"].get(what, 0) / GIB) for n in names])
    for what, by in MEMORY.items()
  ]  # fmt: skip
  cells = {
    "the program's, GiB": ("C", lambda p: _number(p["of_compiler"] / GIB)),
    "in all, GiB": ("C + A", lambda p: "refused" if p["refused"] else _number(p["needed"] / GIB)),
    "compiled in, s": ("C", lambda p: _number(p["compile_seconds"])),
    "calls in a step": ("A", lambda p: _number(p["calls"])),
    "TFLOP of a call": ("L", lambda p: _number(p.get("flops", math.nan) / 1e12)),
    "of those in kernels": ("A", lambda p: _number(p.get("kernel_flops", math.nan) / 1e12)),
    "GB of memory traffic": ("L", lambda p: _number(p.get("bytes", math.nan) / 1e9)),
    "at the peaks: MXU / HBM / ICI, s": (
      "L + A", lambda p: " / ".join(_number(p.get(k, math.nan)) for k in ("mxu", "hbm", "ici"))
    ),
    "bound by": ("A", lambda p: p.get("bound", "-")),
    "estimated, s a call": ("C + A", lambda p: _number(p.get("seconds", math.nan))),
  }  # fmt: skip
  rows += [line(what, by, [cell(parts[n]) for n in names]) for what, (by, cell) in cells.items()]
  rows += ["", *_collectives(parts), "", *_summary(found)]
  refused = [f"{n}: {parts[n]['refused']}" for n in names if parts[n]["refused"]]
  return "\n".join(rows + refused)


def _collectives(parts: dict) -> list[str]:
  rows = ["| of a call | collective | along | times | GB sent |", "|---|---|---|---|---|"]
  for name, p in parts.items():
    rows += [
      f"| {name} | {w['kind']} | {w['axis']} | {_number(w['times'])} | {_number(w['bytes'] / 1e9)} |"
      for w in p.get("wire", ())
    ]
  return rows if len(rows) > 2 else ["No collectives."]


def _summary(found: dict) -> list[str]:
  of = lambda key: _number(found.get(key, math.nan))
  return [
    f"A step: {of('seconds_per_step')} s (sampling {of('seconds_sampling')} s, learning "
    f"{of('seconds_learning')} s), {of('tokens_per_second_per_chip')} response tokens/s a chip.",
    f"Update: necessary FLOPs over its time and the peak {of('update_mfu')}, with kernels at the peak "
    f"{of('update_mfu_kernels_at_peak')}; it computes {of('update_flops_over_necessary')} of the necessary.",
    f"Decoding: {of('decode_seconds_per_token')} s a token of all slots; necessary bytes over its time and "
    f"the bandwidth {of('decode_share_of_bandwidth')}; it moves {of('decode_bytes_over_necessary')} of them.",
    "C: the compiler's.  L: counted in the compiler's program, loops unrolled.  A: arithmetic on shapes and "
    "published peaks.",
  ]


def flags(change: dict) -> str:
  """Formats a change of the config as it is typed."""
  return " ".join(f"--config.{key}={value}" for key, value in change.items())


def tried(one) -> str:
  """Formats a line for a suggestion that was tried."""
  if one.error:
    return f"{flags(one.change)}: not possible: {one.error}"
  needed = "" if math.isnan(one.needed) else f", {one.needed / GIB:.3g} GiB"
  return f"{flags(one.change)}: {'fits' if one.fits else 'does not fit'}{needed}"


def candidate(one) -> str:
  """Formats a line for a mesh that was searched."""
  if one.left_out:
    return f"{flags(one.change)}: not compiled: {one.left_out}"
  part = one.check.parts["update"]
  needed = part.compiled.refused or f"{part.needed / GIB:.3g} GiB"
  return f"{flags(one.change)}: {_number(one.seconds)} s, {needed}"


def best(found: list, looked_at: int) -> str:
  """Formats the table of a search."""
  rows = [f"The best {len(found)} of {looked_at}, by the estimated time of an update:", "",
          "| flags | s an update (C + A) | of the peak | GiB a chip (C) |", "|---|---|---|---|"]  # fmt: skip
  for one in found:
    mfu = utilisation(one.check).get("update_mfu", math.nan)
    needed = one.check.parts["update"].needed / GIB
    rows.append(f"| {flags(one.change)} | {_number(one.seconds)} | {_number(mfu)} | {_number(needed)} |")
  return "\n".join(rows)


def _number(x: float) -> str:
  if math.isnan(x):
    return "-"
  return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"
