"""Attention in bands reads what attention to whole rows reads, of every row that fits its budgets."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax.models import attention, bands

N, K, H = 4, 2, 8
PROMPT, RESPONSE = 21, 37  # columns at most
S = 300


@cache
def rows(shared: bool):
  """Returns segment and response [5, S]: rows of random prompts and responses, and of the longest."""
  rng, segment, response = np.random.default_rng(0), [], []
  draw = lambda row, longest: longest if row == 0 else int(rng.integers(1, longest + 1))
  for row in range(5):
    of_segment, of_response = [], []
    if row == 1 and shared:  # a response ends where a block of 35 begins
      of_segment, of_response = [-1] * 71, [0] * 10 + [1] * 24 + [2] * 37
    while len(of_segment) < S:
      lengths = [draw(row, RESPONSE) for _ in range(rng.integers(0, 5) if shared else 1)]
      one = [0] * draw(row, PROMPT) + [1 + i for i, n in enumerate(lengths) for _ in range(n)]
      of_segment += [len(segment) + len(of_segment)] * len(one)
      of_response += one
    segment.append(of_segment[:S])
    response.append(of_response[:S])
  return jnp.asarray(segment, jnp.int32), jnp.asarray(response, jnp.int32) if shared else None


@cache
def read(shared: bool, window: int | None, cut: bands.Cut | None):
  """Returns what is read, and the gradients of q, k and v of a weighted sum of it; cut None: whole rows."""
  segment, response = rows(shared)
  keys = jax.random.split(jax.random.key(0), 4)
  q, k, v, weight = (jax.random.normal(key, (5, S, n, H)) for key, n in zip(keys, (N, K, K, N), strict=True))

  def loss(q, k, v):
    args = segment, jnp.geomspace(1, 1e-2, H // 2)[None]
    view = bands.view(cut, *args, response) if cut else attention.sequence_view(*args, None, response)
    attend, turn = view.of(window, None)
    out, _ = attend(turn(q), turn(k), v, H**-0.5, 3.0)
    return (out * weight).sum(), out

  (_, out), grads = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)
  return [np.asarray(x) for x in (out, *grads)]


slow = pytest.mark.slow
CUTS = [
  bands.Cut(32, 2, PROMPT), bands.Cut(36, 1, PROMPT), pytest.param(bands.Cut(60, 1, PROMPT), marks=slow),
  pytest.param(bands.Cut(300, 1, PROMPT), marks=slow),  # a block of the whole row
]  # fmt: skip


@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("cut", CUTS)
def test_bands_read_what_whole_rows_read(cut, shared, window):
  for got, expected in zip(read(shared, window, cut), read(shared, window, None), strict=True):
    np.testing.assert_allclose(got, expected, rtol=0, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize("cut", [bands.Cut(35, 1, PROMPT), bands.Cut(36, 1, PROMPT - 1)])
def test_budgets_are_needed_to_the_column(cut):
  """A band that ends a column too early, or a prompt that is a column too short, is another attention."""
  pairs = zip(read(True, None, cut), read(True, None, None), strict=True)
  assert all(np.abs(got - expected).max() > 1e-3 for got, expected in pairs)


@pytest.mark.parametrize(
  ("columns", "prompt", "response"), [(300, 21, 37), (280, 32, 31), (792, 32, 95), (100, 90, 9), (40, 4, 36)]
)
def test_the_cut_scores_the_fewest_pairs(columns, prompt, response):
  """Counted block by block: what a band must reach, and never more than quarters of the row score."""

  def pairs(size: int) -> int:
    blocks = range(0, columns, size)
    before = next(n for n in range(columns) if n * size >= response - 1)
    return sum(size * (prompt + (before + 1) * size) for _ in blocks)

  best = min(map(pairs, range(bands.LEAST, columns)))
  cut, keys = bands.cut(columns, prompt, response), bands.keys_scored(columns, prompt, response)
  assert keys * columns == pytest.approx(min(best, 5 / 8 * columns**2))
  assert (cut is None) == (best >= 5 / 8 * columns**2)
  assert cut is None or (pairs(cut.size) == best and cut.before * cut.size >= response - 1)
