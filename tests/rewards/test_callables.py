"""Functions of one's own: what each gets, by the names of its parameters, and how its failures are told."""

import asyncio
import functools
import json

import pytest

from grpojax import rewards
from grpojax.rewards import callables

EXAMPLES = [
  {"question": "1+1=?", "answer": "2", "meta": json.dumps({"level": 3, "tags": ["a"], "completion": "2"})},
  {"question": "2+3=?", "answer": "5", "meta": json.dumps({"level": 0, "hint": "more than 4"})},
]
TEXTS = [["2", "3"], ["5", "no 5"]]
RIGHT = [[1.0, 0.0], [1.0, 0.0]]


def graded(fn, **fields) -> rewards.Graded:
  slot = {"accuracy": {"fn": callables.name_of(fn)}}
  built = rewards.build(slot, {"accuracy": callables.adapt(fn, fields)})
  groups = rewards.samples(EXAMPLES, TEXTS, [[1, 1]] * 2, [[True, True]] * 2)
  return rewards.score(built, groups)


def one(completion, answer):
  return float(completion == answer)


async def one_awaited(completion, answer):
  await asyncio.sleep(0)
  return float(completion == answer)


def many(completions, answer, **kwargs):
  assert kwargs["prompts"] == kwargs["question"] and len(kwargs["prompts"]) == len(completions)
  return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]


async def many_awaited(prompts, completions, answer):
  assert prompts == ["1+1=?", "1+1=?", "2+3=?", "2+3=?"]
  return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]


def of_sample(sample):
  return float(sample.text == sample.example["answer"])


def renamed(completion, ground_truth, prompt="-"):
  return float(completion == ground_truth and prompt.endswith("=?"))


@pytest.mark.parametrize("fn", [one, one_awaited, many, many_awaited, of_sample])
def test_what_a_function_gets_follows_from_its_parameters(fn):
  found = graded(fn)
  assert found.reward.tolist() == RIGHT and found.valid.all()


def test_a_column_may_be_called_as_in_the_rows():
  assert graded(renamed, ground_truth="answer").reward.tolist() == RIGHT
  assert callables.columns_of(renamed) == {"ground_truth": True, "prompt": False}


def test_further_columns_are_given_by_name_with_their_own_types():
  """A column that this row lacks is None, or the parameter's default; of a batch a list has each row's."""
  seen = []

  def one_by_one(completion, level, hint, tags=()):
    seen.append((completion, level, hint, tags))
    return level

  def at_once(completions, level, hint, **columns):
    seen.append((level, hint, columns["tags"], "completion" in columns))
    return [float(n) for n in level]

  async def later(completion, level):
    return level

  expected = [[3.0, 3.0], [0.0, 0.0]]
  assert graded(one_by_one).reward.tolist() == expected
  assert seen[0] == ("2", 3, None, ["a"]) and seen[2] == ("5", 0, "more than 4", ())
  assert graded(at_once).reward.tolist() == graded(later).reward.tolist() == expected
  assert seen[4] == ([3, 3, 0, 0], [None, None, *["more than 4"] * 2], [["a"], ["a"], None, None], False)
  assert callables.columns_of(at_once) == {"level": True, "hint": True, "*": False}


def test_a_column_of_the_rows_own_goes_before_a_field_of_that_name():
  row = {"question": "1+1=?", "answer": "2", "source": "file", "meta": '{"source": "book"}'}
  assert callables.columns_in(row)["source"] == "book"
  for meta in ("", "[1]", "no JSON", '"text"'):  # of a dataset that keeps something else there
    assert callables.columns_in(row | {"meta": meta})["source"] == "file"


def test_a_column_that_no_row_has_is_refused():
  callables.check(one, {}, EXAMPLES)
  callables.check(lambda completion, hint: 0.0, {}, EXAMPLES)
  with pytest.raises(ValueError, match=r"takes `lvl`, and no row has it; name one of question, .*level"):
    callables.check(lambda completion, lvl: 0.0, {}, EXAMPLES)


def test_calls_that_await_go_on_side_by_side_and_where_a_loop_runs_already():
  """Each waits until all have begun, inside a running event loop, as in a notebook."""
  begun = []

  async def together(completion):
    begun.append(completion)
    while len(begun) < 4:
      await asyncio.sleep(0)
    return 1.0

  async def notebook():
    return graded(together)

  assert asyncio.run(notebook()).reward.tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("awaits", [False, True])
def test_one_failure_costs_one_completion(awaits):
  def fails(completion):
    return 1 / (completion != "3")

  async def fails_later(completion):
    return fails(completion)

  found = graded(fails_later if awaits else fails)
  assert found.valid.tolist() == [[True, False], [True, True]]
  assert found.counts["rewards/accuracy/failed"] == 1 and "ZeroDivisionError" in found.first_error


def test_a_function_is_recorded_by_its_module_and_name():
  class Judge:
    def __call__(self, completion):
      return 0.0

  here = "test_a_function_is_recorded_by_its_module_and_name.<locals>"
  assert callables.name_of(one) == f"{__name__}:one"
  assert callables.name_of(functools.partial(one, answer="2")) == f"{__name__}:one"
  assert callables.name_of(Judge()) == f"{__name__}:{here}.Judge"
  assert graded(Judge()).reward.tolist() == [[0.0, 0.0]] * 2


def test_a_function_of_something_else_is_refused():
  with pytest.raises(ValueError, match=r"takes text, label; its parameters must have `completion`"):
    callables.adapt(lambda text, label: 0.0, {})
