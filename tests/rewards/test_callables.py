"""Functions of one's own: what each gets, by the names of its parameters, and how its failures are told."""

import asyncio
import functools

import pytest

from grpojax import rewards
from grpojax.rewards import callables

EXAMPLES = [{"question": "1+1=?", "answer": "2"}, {"question": "2+3=?", "answer": "5"}]
TEXTS = [["2", "3"], ["5", "no 5"]]
RIGHT = [[1.0, 0.0], [1.0, 0.0]]


def graded(fn, **fields):
  slot = {"accuracy": {"fn": callables.name_of(fn)}}
  built = rewards.build(slot, {"accuracy": callables.adapt(fn, fields)})
  groups = rewards.samples(EXAMPLES, TEXTS, [[1, 1]] * 2, [[True, True]] * 2)
  return built, rewards.score(built, groups)


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
  built, found = graded(fn)
  assert found.reward.tolist() == RIGHT and found.valid.all()
  assert set(built.needs) <= {"answer", "question"}


def test_a_column_may_be_called_as_in_the_rows():
  built, found = graded(renamed, ground_truth="answer")
  assert found.reward.tolist() == RIGHT and built.needs == ("answer",)
  assert callables.columns_of(renamed) == ["ground_truth"]


def test_calls_that_await_go_on_side_by_side_and_where_a_loop_runs_already():
  """Each waits until all have begun, inside a running event loop, as in a notebook."""
  begun = []

  async def together(completion):
    begun.append(completion)
    while len(begun) < 4:
      await asyncio.sleep(0)
    return 1.0

  async def notebook():
    return graded(together)[1]

  assert asyncio.run(notebook()).reward.tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("awaits", [False, True])
def test_one_failure_costs_one_completion(awaits):
  def fails(completion):
    return 1 / (completion != "3")

  async def fails_later(completion):
    return fails(completion)

  _, found = graded(fails_later if awaits else fails)
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
  assert graded(Judge())[1].reward.tolist() == [[0.0, 0.0]] * 2


def test_a_function_of_something_else_is_refused():
  with pytest.raises(ValueError, match=r"takes text, label; its parameters must have `completion`"):
    callables.adapt(lambda text, label: 0.0, {})
