"""The upper clip range of a token-level ratio, from PPO's 0.2 through DAPO's 0.28 to next to none.

    grpojax sweep --config=configs/dapo.py --sweep=configs/sweeps/epsilon_high.py
    grpojax sweep --config=configs/gspo.py --sweep=configs/sweeps/epsilon_high.py:sequence

GSPO's ratio is one mean over a completion and moves a thousandth as much: `:sequence` has its range.
DAPO: https://arxiv.org/abs/2503.14476 section 3.1; GSPO: https://arxiv.org/abs/2507.18071 section 5.1.
"""

RANGES = {
  "token": (0.2, 0.24, 0.28, 0.32, 0.4, 0.6),
  "sequence": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
}


def get_sweep(ratio: str = "token") -> list[dict]:
  return [{"objective.surrogate.high": high} for high in RANGES[ratio]]
