"""Where sequences go: nothing overlaps, nothing is lost, and little is padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import packing as packing_benchmark
from benchmarks.workload import L, T
from grpojax.learner import packing

C = L + T - 1


def requests(seed, kind="geometric"):
  rng = np.random.default_rng(seed)
  prompt = np.repeat(rng.integers(8, L + 1, 16)[:, None], 8, axis=1)
  return prompt, packing_benchmark.lengths(kind, rng, 16)


def place(prompt, length, shards=1):
  return packing.pack_sequences(prompt, length, columns=C, shards=shards)


@pytest.mark.parametrize("shards", [1, 4])
def test_every_sequence_has_columns_and_log_probs_of_its_own_in_one_row(shards):
  for seed in range(5):
    prompt, length = requests(seed)
    length[0] = (0, 1, T, T, T, 1, 2, T)
    prompt[0] = (1, L, L, 1, L, 1, L, L)
    at = place(prompt, length, shards)
    length = np.maximum(length, 1)
    assert at.shape == (16, 8, 3) and at.dtype == np.int32 and (at[..., 2] == length).all()
    for shard in range(shards):
      own = slice(shard * 16 // shards, (shard + 1) * 16 // shards)
      for number, width, size in ((0, C, (prompt + length - 1)[own]), (1, C, length[own])):
        begin = at[own][..., number]
        taken = np.zeros(size.size * width, int)
        for b, s in zip(begin.ravel(), size.ravel(), strict=True):
          assert b // width == (b + s - 1) // width  # in one row
          taken[b : b + s] += 1
        assert taken.max() == 1 and taken.sum() == size.sum()
      assert (at[own][..., 0] // C == at[own][..., 1] // C).all()  # of the same row


@pytest.mark.parametrize("kind", ["geometric", "log-normal"])
def test_less_than_a_tenth_is_padding_where_lengths_are_heavy_tailed(kind):
  """128 sequences of an update, in pieces of 4 rows; a row each would be more than half padding."""
  for seed in range(5):
    prompt, length = requests(seed, kind)
    how = packing.PackSpec(T, 1, 4)
    used = int(packing.num_microbatches(how, jnp.asarray(place(prompt, length)), C))
    read = (prompt + length - 1).sum()
    assert 1 - read / (used * how.rows * C) < 0.1
    assert 1 - read / (length.size * C) > 0.5


@pytest.mark.parametrize("kind", ["geometric", "log-normal"])
def test_with_64_sequences_it_is_less_than_a_tenth_on_average(kind):
  """In pieces of 2 rows, which 32 microbatches are; and 512 sequences are fuller."""
  few, many = (np.mean(packing_benchmark.paddings(kind, n, 2)) for n in (64, 512))
  assert many < few < 0.1 and many < 0.06


def test_shards_get_as_many_prompts_and_about_as_many_tokens():
  prompt, length = requests(0, "log-normal")
  tokens = (prompt + length).sum(1)
  order = packing.balance(tokens, 4)
  assert sorted(order) == list(range(16))
  spread = lambda x: np.ptp(x.reshape(4, 4).sum(1)) / tokens.sum()
  assert spread(tokens[order]) < 0.02 < 0.04 < spread(tokens)


def test_rows_are_filled_by_hand():
  """Rows of 12 columns.  The longest has 11; beside the next, of 6, one of 5 fits less well than 3 and 3."""
  prompt, length = np.array([[3, 3, 3], [3, 3, 1]]), np.array([[4, 9, 3], [2, 1, 3]])
  assert packing.fill_rows((prompt + length - 1).ravel(), 12) == [[1], [0, 5, 4], [2, 3]]
  at = packing.pack_sequences(prompt, length, columns=12, shards=1)
  first_column = [[12, 0, 24], [24 + 5, 12 + 9, 12 + 6]]
  first_log_prob = [[12, 0, 24], [24 + 3, 12 + 7, 12 + 4]]
  assert at.tolist() == np.stack([first_column, first_log_prob, length], -1).tolist()


def test_what_is_in_a_piece_is_read_off_the_rows():
  """Tokens, targets, routing and counted tokens of two shards, against loops."""
  T, L, P, G = 5, 4, 4, 2
  S, rng = L + T, np.random.default_rng(0)
  prompt, length = rng.integers(1, L + 1, (P, G)), rng.integers(1, T + 1, (P, G))
  length[1, 1], prompt[1, 1] = T, L
  tokens = 100 + np.arange(P * G * S).reshape(P, G, S)
  routing = tokens[..., :-1, None, None] * np.array([1, -1])[:, None]
  column = np.arange(S - 1)
  balance_mask = (column >= L - prompt[..., None]) & (column < L + length[..., None] - 1)
  at = packing.pack_sequences(prompt, length, columns=S - 1, shards=2)
  how, counts = packing.PackSpec(T, 2, 3), 0
  cut = jax.jit(packing.pack_rows(how, *map(jnp.asarray, (tokens, prompt, routing, balance_mask, at))))
  there = jax.jit(lambda number: packing.in_microbatch(how, jnp.asarray(at), S - 1, number))
  for number in range(int(packing.num_microbatches(how, jnp.asarray(at), S - 1))):
    piece = jax.tree.map(np.asarray, cut(number))
    present = np.asarray(there(number))
    for p, g in np.argwhere(present):
      row, start = divmod(at[p, g, 0] - number * 3 * (S - 1), S - 1)
      row, first = row + 3 * (p // 2), L - prompt[p, g]
      mine = slice(start, start + prompt[p, g] + length[p, g] - 1)
      own = slice(first, first + prompt[p, g] + length[p, g] - 1)
      np.testing.assert_array_equal(piece.tokens[row, mine], tokens[p, g, own])
      np.testing.assert_array_equal(piece.routing[row, mine], routing[p, g, own])
      assert len(set(piece.segment[row, mine])) == 1 and piece.balance_mask[row, mine].all()
      slot = at[p, g, 1] % (S - 1)
      assert slot + length[p, g] <= piece.wanted
      slots = slice(slot, slot + length[p, g])
      np.testing.assert_array_equal(piece.target[row, slots], tokens[p, g, L : L + length[p, g]])
      before = piece.tokens[row, piece.column[row, slots]]
      np.testing.assert_array_equal(before, tokens[p, g, L - 1 : L + length[p, g] - 1])
    counts += piece.balance_mask.sum()
  assert counts == balance_mask.sum()  # padding is counted nowhere
