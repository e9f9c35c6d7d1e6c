"""Where sequences go: nothing overlaps, nothing is lost, and little is padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import packing as packing_benchmark
from benchmarks.workload import L, T
from grpojax.learner import packing

C = L + T - 1  # enough for one of the longest sequences
WIDE = L + 3 * (T - 1)  # and for three responses behind their prompt


def spec(columns=C, shared=False, shards=1, rows=4, T=T):
  return packing.PackSpec(T, shards, rows, columns, shared)


def requests(seed, kind="geometric"):
  rng = np.random.default_rng(seed)
  prompt = np.repeat(rng.integers(8, L + 1, 16)[:, None], 8, axis=1)
  return prompt, packing_benchmark.lengths(kind, rng, 16)


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize(("columns", "shared"), [(C, False), (C, True), (WIDE, True)])
def test_every_token_has_a_column_and_every_response_token_a_log_prob_of_its_own(columns, shared, shards):
  """In one row, a prompt in front of its responses; counted column by column."""
  for seed in range(5):
    prompt, length = requests(seed)
    length[0] = (0, 1, T, T, T, 1, 2, T)
    prompt[0], prompt[1], length[1] = L, 1, (T, 1, 1, 1, 1, 1, 1, 0)
    at = packing.pack_sequences(prompt, length, spec(columns, shared, shards))
    length = np.maximum(length, 1)
    assert at.shape == (16, 8, 4) and at.dtype == np.int32 and (at[..., 3] == length).all()
    for shard in range(shards):
      own = slice(shard * 16 // shards, (shard + 1) * 16 // shards)
      places, sizes, tokens = at[own].reshape(-1, 4), length[own].ravel(), prompt[own].ravel()
      read, found = (np.zeros(sizes.size * columns, int) for _ in range(2))
      prompts = {begin: size for begin, size in zip(places[:, 0], tokens, strict=True)}
      assert len(prompts) == sizes.size or shared
      for begin, size in prompts.items():
        read[begin : begin + size] += 1
      for (first, begin, slot, _), size, ahead in zip(places, sizes, tokens, strict=True):
        assert first // columns == slot // columns == (slot + size - 1) // columns  # in one row
        assert first + ahead <= begin and first // columns == (begin + size - 2) // columns
        read[begin : begin + size - 1] += 1
        found[slot : slot + size] += 1
      assert read.max() == found.max() == 1
      assert read.sum() == sum(prompts.values()) + (sizes - 1).sum() and found.sum() == sizes.sum()
      told = packing.tokens_read(jnp.asarray(prompt[own]), jnp.asarray(at[own]))
      assert int(told) == read.sum()


def test_a_prompt_is_computed_once_if_its_group_fits_into_a_row():
  prompt, length = np.full((4, 8), 20), np.full((4, 8), 12)
  at = packing.pack_sequences(prompt, length, spec(L + 8 * (T - 1), shared=True))
  assert (at[..., 0] == at[:, :1, 0]).all() and len(set(at[:, 0, 0])) == 4
  assert int(packing.tokens_read(prompt, at)) == 4 * (20 + 8 * 11)


@pytest.mark.parametrize("kind", ["geometric", "log-normal"])
def test_less_than_a_tenth_is_padding_where_lengths_are_heavy_tailed(kind):
  """128 sequences of an update, in pieces of 4 rows; a row each would be more than half padding."""
  for seed in range(5):
    prompt, length = requests(seed, kind)
    how = spec()
    used = int(packing.num_microbatches(how, jnp.asarray(packing.pack_sequences(prompt, length, how))))
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
  at = packing.pack_sequences(prompt, length, spec(12, T=9))
  of_prompt = [[12, 0, 24], [24 + 5, 12 + 9, 12 + 6]]
  first_log_prob = [[12, 0, 24], [24 + 3, 12 + 7, 12 + 4]]
  expected = [of_prompt, np.array(of_prompt) + prompt, first_log_prob, length]
  assert at.tolist() == np.stack(expected, -1).tolist()


def test_rows_with_shared_prompts_by_hand():
  """Rows of 12 columns: of a prompt of 3, responses of 9 and 2 fit into one, and of 4 in the other.

  Two prompts of 1 with two responses each, which need two columns for as many log-probs.
  """
  prompt, length = np.array([[3, 3, 3], [1, 1, 1]]), np.array([[4, 9, 2], [1, 1, 3]])
  at = packing.pack_sequences(prompt, length, spec(12, shared=True, T=9))
  assert at[0].tolist() == [[12, 15, 12, 4], [0, 3, 0, 9], [0, 11, 9, 2]]
  assert at[1].tolist() == [[18, 21, 19, 1], [18, 21, 20, 1], [18, 19, 16, 3]]


@pytest.mark.parametrize(("columns", "shared"), [(8, False), (8, True), (12, True)])
def test_what_is_in_a_piece_is_read_off_the_rows(columns, shared):
  """Tokens, targets, routing and counted tokens of two shards, against loops."""
  T, L, P, G = 5, 4, 4, 2
  S, rng = L + T, np.random.default_rng(0)
  prompt, length = rng.integers(1, L + 1, (P, G)), rng.integers(1, T + 1, (P, G))
  prompt[:], length[1, 1] = prompt[:, :1], T
  prompt[1] = L
  tokens = 100 + np.arange(P * G * S).reshape(P, G, S)
  routing = tokens[..., :-1, None, None] * np.array([1, -1])[:, None]
  column = np.arange(S - 1)
  balance_mask = (column >= L - prompt[..., None]) & (column < L + length[..., None] - 1)
  how, counts = spec(columns, shared, 2, 3, T), 0
  at = packing.pack_sequences(prompt, length, how)
  cut = jax.jit(packing.pack_rows(how, *map(jnp.asarray, (tokens, prompt, routing, balance_mask, at))))
  there = jax.jit(lambda number: packing.in_microbatch(how, jnp.asarray(at), number))
  for number in range(int(packing.num_microbatches(how, jnp.asarray(at)))):
    piece = jax.tree.map(np.asarray, cut(number))
    present = np.asarray(there(number))
    for p, g in np.argwhere(present):
      begin = at[p, g, :2] - number * 3 * columns
      row, first, n = begin[0] // columns + 3 * (p // 2), L - prompt[p, g], length[p, g]
      of_prompt, of_own = begin[0] % columns + np.arange(prompt[p, g]), begin[1] % columns + np.arange(n - 1)
      mine = np.concatenate([of_prompt, of_own])
      whose = g if not shared else max(h for h in range(G) if at[p, h, 0] == at[p, g, 0])
      np.testing.assert_array_equal(piece.tokens[row, of_own], tokens[p, g, L : L + n - 1])
      np.testing.assert_array_equal(piece.tokens[row, of_prompt], tokens[p, whose, first:L])
      np.testing.assert_array_equal(piece.routing[row, of_own], routing[p, g, L : L + n - 1])
      assert len(set(piece.segment[row, mine])) == 1 and piece.balance_mask[row, mine].all()
      if shared:
        assert not piece.response[row, of_prompt].any() and len(set(piece.response[row, of_own])) <= 1
        assert piece.response[row, of_own].all()
      slot = at[p, g, 2] % columns
      assert slot + n <= piece.wanted
      slots = slice(slot, slot + n)
      np.testing.assert_array_equal(piece.target[row, slots], tokens[p, g, L : L + n])
      before = piece.column[row, slots]
      np.testing.assert_array_equal(before, np.concatenate([of_prompt[-1:], of_own]))
    counts += piece.balance_mask.sum()
  assert shared or counts == balance_mask.sum()  # padding is counted nowhere
