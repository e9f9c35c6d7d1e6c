"""config.objective as text: the formula with its functions' names, and what each says of itself."""

import inspect

from grpojax.objective.build import BESIDE, functions

_FACTORS = ("correct", "veto", "batch_veto")  # of the policy term


def formula(config: dict) -> list[str]:
  """Returns the loss as one line, then a line for each function in it; of config.objective as plain data."""
  gain = f"{_call(config['surrogate'])}(ℓ, A)"
  factors = " · ".join(["c", gain] if any(map(config.get, _FACTORS)) else [gain])
  costs = [f"{_number(slot['beta'])} · {_call(slot, 'beta')}" for slot in _list(config, "penalty")]
  loss = f"loss(θ) = Σ w · ({' + '.join([*costs, ''])}− {factors})"
  own = [(slot, one) for slot in ("component", "preference") for one in _list(config, slot)]
  for slot, one in own:
    over = one.get("stream", "pairs")
    loss += f" + {_number(one['coef'])} · mean over {over} of {_call(one, *BESIDE[slot])}"
  lines = [loss.replace("+ −", "−")]
  slots = [("A", "advantage"), ("A", "rescale"), ("ℓ", "ratio"), ("w", "aggregate")]
  chosen = [(symbol, slot, config[slot]) for symbol, slot in slots]
  for symbol, slot in *(("c", slot) for slot in _FACTORS), ("w", "select"), ("R", "shape"):
    chosen += [(symbol, slot, one) for one in _list(config, slot)]
  chosen += [("l", slot, {key: x for key, x in one.items() if key not in BESIDE[slot]}) for slot, one in own]
  chosen = [one for one in chosen if one[2]["fn"] != "identity"]
  return lines + [f"{symbol}: {_call(one)}{_what(slot, one['fn'])}" for symbol, slot, one in chosen]


def _list(config: dict, slot: str) -> list[dict]:
  return [one for _, one in sorted(config.get(slot, {}).items())]


def _call(slot: dict, *without: str) -> str:
  """Formats dict(fn="ppo_clip", low=0.2) as ppo_clip[low 0.2]."""
  knobs = [f"{key} {_number(x)}" for key, x in slot.items() if key not in ("fn", *without)]
  return slot["fn"] + (f"[{', '.join(knobs)}]" if knobs else "")


def _number(x) -> str:
  return f"{x:g}" if isinstance(x, float) else str(x)


def _what(slot: str, name: str) -> str:
  """Returns the first line of a function's docstring; nothing of one that is not on the menu."""
  fn = functions(slot).get(name)
  return f" = {inspect.getdoc(fn).splitlines()[0]}" if fn else ""
