"""Gold answers and test cases out of the forms in which public files hold them."""

import base64
import pickle
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpojax.data.local import gold, unit_tests


def test_a_pickle_runs_nothing(tmp_path):
  value = base64.b64encode(zlib.compress(pickle.dumps(print))).decode()
  with pytest.raises(ValueError, match=r"private_test_cases cannot be decoded \(it asks for"):
    unit_tests.from_livecodebench(dict(public_test_cases="[]", private_test_cases=value))


@pytest.mark.parametrize(
  ("text", "boxed"),
  [
    (r"\boxed{1} then \boxed{2}", "2"),
    (r"$\boxed{\{1,2\}}$", r"\{1,2\}"),
    (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
    (r"\boxed{\text{a \} b}} rest}", r"\text{a \} b}"),
    (r"we get \boxed 7.", "7"),
    (r"we get $\boxed 7$ apples", "7"),
    (r"\fbox{ 3 }", "3"),
    (r"\boxed {4}", "4"),
    (r"\boxed{1} and \boxed{2", ""),
    ("nothing", ""),
  ],
)
def test_the_last_box(text, boxed):
  assert gold.last_boxed(text) == boxed


nested = st.recursive(
  st.text(alphabet="ab1 +", max_size=4),
  lambda inner: st.lists(inner.map("{{{}}}".format), max_size=3).map("x".join),
)


@given(
  before=st.text(alphabet="ab$ ", max_size=5), inside=nested, after=st.text(alphabet="ab}$. ", max_size=5)
)
def test_a_box_ends_where_its_brace_closes(before, inside, after):
  assert gold.last_boxed(f"{before}\\boxed{{{inside}}}{after}") == inside.strip()


@pytest.mark.parametrize(
  ("value", "plain"),
  [
    (204, "204"),
    (204.0, "204"),
    (0.5, "0.5"),
    (" 2 ", "2"),
    ("025", "025"),
    (None, ""),
    (float("nan"), ""),
    ([1.0, "x"], "1, x"),
    (10**20, "1" + "0" * 20),
  ],
)
def test_answers_are_text(value, plain):
  assert gold.plain(value) == plain


@pytest.mark.parametrize(
  ("solution", "answer"),
  [
    ("#### 1,234,567", "1234567"),
    ("#### 12 #### 13", "13"),
    ("#### 1,2", "1,2"),
    ("#### $1,000.50", "$1000.50"),
    ("12", ""),
  ],
)
def test_gsm8k_answers(solution, answer):
  assert gold.after_hashes(solution) == answer
