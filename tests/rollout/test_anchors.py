"""Anchors: which turns faced the same situation."""

import random
from difflib import SequenceMatcher

import numpy as np
import pytest
from objective_cases import LOSSES

from grpojax.rollout import anchors

ESSA = LOSSES["essa_mean_norm_w0.5"]["extra"]


@pytest.mark.parametrize("message, wanted", ESSA["canonicalisation"])
def test_an_error_message_forgets_names_and_numbers(message, wanted):
  assert anchors.canonical(message) == wanted


def test_an_error_anchor_is_the_stored_one():
  stored = tuple(ESSA["anchor"][1])
  assert anchors.error_anchor("fix", " bad 'x'  at line 3\n") == stored
  assert anchors.error_anchor("fix", "  ") == ("write", "fix", "unknown")


def test_equal_anchors_get_equal_numbers():
  got = anchors.ids([("ok", "a"), "s0", ("ok", "a"), ("ok", "b"), "s0"])
  np.testing.assert_array_equal(got, [0, 1, 0, 2, 1])
  assert got.dtype == np.int32


def first_fit(observations, threshold):
  """As verl-agent says it: compare with the founder of every cluster, in order; join the first."""
  clusters = []
  for row, text in enumerate(observations):
    for cluster in clusters:
      if SequenceMatcher(None, text, observations[cluster[0]]).ratio() >= threshold:
        cluster.append(row)
        break
    else:
      clusters.append([row])
  return [next(n for n, cluster in enumerate(clusters) if row in cluster) for row in range(len(observations))]


@pytest.mark.parametrize("threshold", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("length", [20, 250])  # from 200 on difflib ignores popular characters of the founder
def test_fuzzy_anchors_are_the_first_fit(threshold, length):
  draw = random.Random(0)
  seeds = ["".join(draw.choices("abcdefgh ", k=length)) for _ in range(4)]

  def changed(text):
    """Some characters replaced: few, or a third of them."""
    share = draw.choice([0.02, 0.1, 0.3])
    return "".join(draw.choice("xyz") if draw.random() < share else x for x in text)

  rows = [changed(draw.choice(seeds)) for _ in range(24)] + ["", ""]
  got = anchors.fuzzy_ids(rows, threshold)
  assert got.dtype == np.int32 and 2 < len(set(got.tolist())) < len(rows)
  np.testing.assert_array_equal(got, first_fit(rows, threshold))


def test_fuzzy_anchors_compare_with_the_founder_and_join_the_first():
  """c is like b and b like a, but c is not like a; e fits two anchors."""
  a, b, c = "0123456789", "012345678x", "01234567yx"
  assert anchors.fuzzy_ids([a, b, c], threshold=0.9).tolist() == [0, 0, 1]
  assert anchors.fuzzy_ids([b, a, c], threshold=0.9).tolist() == [0, 0, 0]
  assert anchors.fuzzy_ids([a, c, b], threshold=0.9).tolist() == [0, 1, 0]
  assert anchors.fuzzy_ids([a, a, b], threshold=1.0).tolist() == [0, 0, 1]


def test_resemblance_is_that_of_the_newcomer_to_the_founder():
  """difflib's ratio is not symmetric: 0.25 for tide and diet, 0.5 for diet and tide."""
  assert anchors.fuzzy_ids(["diet", "tide"], threshold=0.4).tolist() == [0, 1]
  assert anchors.fuzzy_ids(["tide", "diet"], threshold=0.4).tolist() == [0, 0]
