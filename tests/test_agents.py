"""Anchors: which turns faced the same situation."""

import numpy as np
import pytest
from objective_cases import LOSSES

from grpojax.agents import anchors

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
