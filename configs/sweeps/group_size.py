"""G, the completions of one prompt.

    grpojax sweep --config=configs/dapo.py --sweep=configs/sweeps/group_size.py        # P prompts
    grpojax sweep --config=configs/dapo.py --sweep=configs/sweeps/group_size.py:256    # P x G = 256

Without an argument a step has the recipe's prompts, and G times as many responses; with one, that many
responses.
"""

SIZES = (2, 4, 8, 16, 32, 64)


def get_sweep(responses: str = "") -> list[dict]:
  if not responses:
    return [{"rollout.group_size": size} for size in SIZES]
  return [{"rollout.group_size": size, "rollout.prompts": int(responses) // size} for size in SIZES]
