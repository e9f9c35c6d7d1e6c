"""Every public file's layout, read from a file as it is published; what is expected is worked by hand."""

import base64
import json
import pickle
import zlib

import data_toys
import pytest

from grpojax.data.local import layouts, sources

WRAPPED = (
  "Solve the following math problem step by step. The last line of your response should be of the"
  " form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\n"
  'Remember to put your answer on its own line after "Answer:".'
)
SLIME = WRAPPED.replace("$Answer (without quotes)", "\\boxed{{$Answer}}")
DAPO = dict(data_source="math_dapo", ability="MATH", extra_info=dict(index="9a9b"))
USER = lambda text: [dict(role="user", content=text)]
STDIN = [dict(input="1 2\n", output="3\n", testtype="stdin")]
CALL = [dict(input='[1, 2]\n"a"', output="[2, 1]", testtype="functional")]


def packed(cases):
  """As LiveCodeBench hides its private cases."""
  return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


# layout, file, row as published, question, gold answer (or test cases), some of meta
MATH = [
  ("gsm8k", "jsonl", dict(question="How many?", answer="5*200=1,000\n#### 1,000"), "How many?", "1000", {}),
  ("gsm8k", "parquet", dict(question="Loss?", answer="He lost.\n#### -72"), "Loss?", "-72", {}),
  (
    "math",
    "parquet",
    dict(
      problem="Half?", level="Level 1", solution=r"$\boxed{1}$, no: $\boxed{\frac{1}{2}}$.", type="Algebra"
    ),
    "Half?",
    r"\frac{1}{2}",
    dict(level="Level 1", type="Algebra"),
  ),
  (
    "math_500",
    "jsonl",
    dict(
      problem="P?", solution=r"\boxed{3}", answer="3", subject="Algebra", level=2, unique_id="test/a/1.json"
    ),
    "P?",
    "3",
    dict(subject="Algebra", level=2, unique_id="test/a/1.json"),
  ),
  (
    "aime",
    "parquet",
    dict(id=60, problem="Aya?", solution="s", answer="204", url="u", year="2024"),
    "Aya?",
    "204",
    dict(year="2024"),
  ),
  (
    "aime",
    "parquet",
    {"ID": "2024-II-4", "Problem": "Let x", "Solution": "s", "Answer": 33},
    "Let x",
    "33",
    dict(id="2024-II-4"),
  ),
  ("aime", "jsonl", dict(question="Sum of bases?", answer="70"), "Sum of bases?", "70", {}),
  ("aime", "jsonl", dict(id=1, problem="Boxed?", solution=r"\boxed{025}"), "Boxed?", "025", {}),
  (
    "aime",
    "parquet",
    dict(problem_idx=1, problem="Arena?", answer=70, problem_type=["Number Theory"]),
    "Arena?",
    "70",
    {},
  ),
  ("amc", "parquet", dict(id=0, problem="AMC?", answer=142.0, url="u"), "AMC?", "142", dict(url="u")),
  ("amc", "jsonl", dict(id=0, question="AMC 23?", answer="27.0", url="u"), "AMC 23?", "27.0", {}),
  ("minerva", "jsonl", dict(question="Mass?", answer="4.5e33"), "Mass?", "4.5e33", {}),
  (
    "minerva",
    "jsonl",
    dict(problem="Mass?", solution=r"so \boxed{4.5e33} g", type="Astronomy"),
    "Mass?",
    "4.5e33",
    {},
  ),
  (
    "olympiadbench",
    "parquet",
    dict(
      id=1606,
      question="Find all.",
      solution=["s"],
      final_answer=["$2$", "$-1$"],
      context="Let n > 0.",
      image_1=None,
      modality="Text-only",
      is_multiple_answer=True,
      subfield="Algebra",
    ),
    "Let n > 0.\nFind all.",
    "$2$, $-1$",
    dict(subfield="Algebra"),
  ),
  (
    "dapo_math",
    "parquet",
    DAPO
    | dict(prompt=USER(WRAPPED.format("What\n\nis it?")), reward_model=dict(ground_truth="-1234", style="s")),
    "What\n\nis it?",
    "-1234",
    {"ability": "MATH", "extra_info.index": "9a9b"},
  ),
  ("dapo_math", "jsonl", dict(prompt=USER(SLIME.format("What?")), label="34"), "What?", "34", {}),
  (
    "dapo_math",
    "jsonl",
    dict(prompt="What is it?", solution="34", data_source="math_dapo"),
    "What is it?",
    "34",
    {},
  ),
  ("deepscaler", "json", dict(problem="Knot?", answer="26", solution="..."), "Knot?", "26", {}),
  (
    "countdown",
    "parquet",
    dict(target=98, nums=[44, 19, 35]),
    "Using the numbers [44, 19, 35], create an equation that equals 98. You can use basic arithmetic"
    " operations (+, -, *, /) and each number can only be used once.",
    "98",
    dict(nums=[44, 19, 35], target=98),
  ),
]
STARTED = "{}\n\nUse this starter code:\n```python\n{}\n```"
CODE = [
  (
    "apps",
    "jsonl",
    dict(
      problem_id=0,
      question="Add.\n",
      solutions="[]",
      input_output=json.dumps(dict(inputs=["1 2\n"], outputs=["3\n"])),
      difficulty="interview",
      starter_code="",
    ),
    "Add.",
    dict(inputs=["1 2\n"], outputs=["3\n"]),
  ),
  (
    "apps",
    "parquet",
    dict(
      problem_id=1,
      question="Swap.",
      input_output='{"fn_name": "swap", "inputs": [[1, 2]], "outputs": [[2, 1]]}',
      starter_code="def swap(a, b):\n\t",
    ),
    STARTED.format("Swap.", "def swap(a, b):"),
    dict(inputs=[[1, 2]], outputs=[[2, 1]], fn_name="swap"),
  ),
  (
    "livecodebench",
    "jsonl",
    dict(
      question_title="t",
      question_content="Add.",
      question_id="abc",
      starter_code="",
      public_test_cases=json.dumps(STDIN),
      private_test_cases=packed([dict(STDIN[0], input="2 2\n", output="4\n")]),
      metadata="{}",
    ),
    "Add.",
    dict(inputs=["1 2\n", "2 2\n"], outputs=["3\n", "4\n"]),
  ),
  (
    "livecodebench",
    "jsonl",
    dict(
      question_content="Swap.",
      starter_code="class Solution:\n  def swap(self, a, b):",
      public_test_cases=json.dumps(CALL),
      private_test_cases=json.dumps(CALL),
      metadata='{"func_name": "swap"}',
    ),
    STARTED.format("Swap.", "class Solution:\n  def swap(self, a, b):"),
    dict(inputs=['[1, 2]\n"a"'] * 2, outputs=["[2, 1]"] * 2, fn_name="swap"),
  ),
  (
    "code",
    "jsonl",
    dict(prompt="Add.", tests=dict(inputs=["1"], outputs=["2"])),
    "Add.",
    dict(inputs=["1"], outputs=["2"]),
  ),
  (
    "code",
    "parquet",
    dict(problem="Add.", tests=json.dumps([dict(type="stdin_stdout", input="1", output="2")])),
    "Add.",
    dict(inputs=["1"], outputs=["2"]),
  ),
  (
    "code",
    "parquet",
    dict(problem="Add.", tests=json.dumps([dict(type="function_call", fn_name="f", input=[1], output=[2])])),
    "Add.",
    dict(inputs=[[1]], outputs=[[2]], fn_name="f"),
  ),
]


def read(tmp_path, layout, suffix, rows, **columns):
  """(examples, counts) of a file with these rows."""
  path = data_toys.write(tmp_path / f"file.{suffix}", rows)
  source = dict(one=dict(layout=layout, path=str(path), **columns))
  (found, _) = sources.find(dict(train=source, test=source))
  return sources.read(found, "skip", True)


@pytest.mark.parametrize(("layout", "suffix", "row", "question", "answer", "meta"), MATH)
def test_math(tmp_path, layout, suffix, row, question, answer, meta):
  ((example,), counts) = read(tmp_path, layout, suffix, [row])
  assert (example["question"], example["answer"]) == (question, answer)
  assert meta.items() <= json.loads(example["meta"]).items()
  assert example["tests"] == example["history"] == "" and counts.rows == 1
  assert example["task"] == ("countdown" if layout == "countdown" else "math")


@pytest.mark.parametrize(("layout", "suffix", "row", "question", "tests"), CODE)
def test_code(tmp_path, layout, suffix, row, question, tests):
  ((example,), _) = read(tmp_path, layout, suffix, [row])
  assert (example["question"], json.loads(example["tests"])) == (question, tests)
  assert example["answer"] == "" and example["task"] == "code"


def test_every_layout_has_a_row_here():
  assert {case[0] for case in MATH + CODE} == set(layouts.LAYOUTS)


@pytest.mark.parametrize(
  "meta, kept",
  [
    ("", {}),
    ("level, TAGS", {"level": 0, "TAGS": []}),
    ("*", {"level": 0, "tags": [], "x.y": "", "x": {"y": 2}}),
    ("x.y,x", {"x.y": "", "x": {"y": 2}}),
  ],
)
def test_columns_for_rewards_stay_as_they_are(tmp_path, meta, kept):
  """Also 0, "" and []; no key stands for None."""
  row = {"q": "1?", "a": "1", "level": 0, "tags": [], "x.y": "", "x": {"y": 2}, "none": None}
  ((example,), _) = read(tmp_path, "columns", "jsonl", [row], prompt="q", answer="a", meta=meta)
  assert json.loads(example["meta"]) == kept


COLUMNS = [
  (dict(prompt="q", answer="a"), dict(q="One?", a=1), ("One?", "", "1", "")),
  (dict(prompt="x.Q", answer="x.gold"), dict(x=dict(q="One?", gold=["1", "2"])), ("One?", "", "1, 2", "")),
  (dict(prompt="q"), dict(q="One?", a=1), ("One?", "", "", "")),
  (
    dict(prompt="q", tests="t"),
    dict(q="One?", t='{"inputs": [1], "outputs": [2]}'),
    ("One?", "", "", '{"inputs": [1], "outputs": [2]}'),
  ),
  (dict(prompt="messages"), dict(messages=USER(" One? ")), ("One?", "", "", "")),
  (
    dict(prompt="messages"),
    dict(
      messages=[
        dict(role="system", content="Be kind."),
        *USER("Hi"),
        dict(role="assistant", content="Yes?"),
        *USER("One?"),
      ]
    ),
    (
      "One?",
      json.dumps(
        [
          dict(role="system", content="Be kind."),
          dict(role="user", content="Hi"),
          dict(role="assistant", content="Yes?"),
        ]
      ),
      "",
      "",
    ),
  ),
]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(("columns", "row", "expected"), COLUMNS)
def test_any_file_by_its_columns(tmp_path, suffix, columns, row, expected):
  ((example,), _) = read(tmp_path, "columns", suffix, [row], **columns)
  assert tuple(example[key] for key in ("question", "history", "answer", "tests")) == expected


class Bomb:
  def __reduce__(self):
    return (print, ("it ran",))


GOOD = dict(question="1+1?", answer="#### 2")
MALFORMED = [
  ("gsm8k", b'{"question": "cut', "Unterminated string"),
  ("gsm8k", b'{"question": "\xff", "answer": "#### 1"}', "codec can't decode"),
  ("gsm8k", b"[1, 2]", "a row is an object with columns, not list"),
  ("gsm8k", dict(question="1+1?", answer="two"), "no answer"),
  ("gsm8k", dict(question="1+1?"), "no answer in its columns question"),
  ("gsm8k", dict(answer="#### 2"), "no question"),
  ("gsm8k", dict(question="  ", answer="#### 2"), "a message is no text"),
  ("gsm8k", dict(question=7, answer="#### 2"), "a message is no text"),
  ("gsm8k", b'{"question": "\\ud800?", "answer": "#### 2"}', "surrogates not allowed"),
  ("gsm8k", b'{"question": "1?", "answer": "#### \\ud800"}', "surrogates not allowed"),
  ("dapo_math", dict(prompt="P?", answer=dict(text="1")), "the answer is not text but has the fields text"),
  ("math", dict(problem="P?", solution=r"so \boxed{1"), "no answer"),
  ("countdown", dict(target=3), "no nums or no target"),
  ("olympiadbench", dict(question="P?", final_answer=["1"], image_1={"bytes": "x"}), "needs an image"),
  ("olympiadbench", dict(question="Prove.", final_answer=[]), "no answer"),
  (
    "dapo_math",
    dict(prompt=[dict(role="assistant", content="P?")], label="1"),
    "the assistant's, not the user's",
  ),
  ("dapo_math", dict(prompt=[dict(content="P?")], label="1"), "KeyError: 'role'"),
  ("apps", dict(question="P?", input_output=""), "no tests"),
  ("apps", dict(question="P?", input_output='{"inputs": [1, 2], "outputs": [1]}'), "2 inputs, but 1 outputs"),
  ("apps", dict(question="P?", input_output='{"inputs": [], "outputs": []}'), "no tests"),
  (
    "code",
    dict(prompt="P?", tests=[dict(type="function_call", input=[1], output=2)]),
    "a function that has no name",
  ),
  ("code", dict(prompt="P?", tests=[*STDIN, *CALL]), "some cases call a function"),
  (
    "livecodebench",
    dict(
      question_content="P?",
      public_test_cases="[]",
      private_test_cases=base64.b64encode(zlib.compress(pickle.dumps(Bomb()))).decode(),
    ),
    "it asks for",
  ),
]


@pytest.mark.parametrize(("layout", "row", "reason"), MALFORMED)
def test_malformed_rows_are_left_out_with_file_line_and_reason(tmp_path, layout, row, reason):
  good = next(case[2] for case in MATH + CODE if case[0] == layout)
  examples, counts = read(tmp_path, layout, "jsonl", [good, row, b"", good | dict(question="Another?")])
  assert (counts.rows, counts.malformed) == (3, 1) and 1 <= len(examples) <= 2
  (place,) = counts.locations
  assert place.startswith("file.jsonl:2: ") and reason in place
