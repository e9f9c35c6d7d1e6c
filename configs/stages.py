"""Keys of what learns given answers and of what makes them: stages of a pipeline, and `grpojax sft`.

`base.py` adds them to every config.
"""

from ml_collections import ConfigDict


def between_evaluations(links: list[dict]) -> list[ConfigDict]:
  """Returns the stages of a pipeline: an evaluation of the base, these, one of the policy that they leave."""
  before, after = dict(name="before", kind="evaluate", init="base"), dict(name="after", kind="evaluate")
  return [ConfigDict(stage) for stage in (before, *links, after)]


def flawless(c: ConfigDict) -> dict:
  """Returns keys of config.data: the embedded task's demonstrations without a flaw; {} of other tasks."""
  return dict(wrong=0.0, rambling=0.0, unmarked=0.0) if c.data.task == "mini_aime" else {}


def add(c: ConfigDict) -> None:
  """Adds the sections, with their defaults."""
  c.sft = ConfigDict()  # of `grpojax sft`, in place of steps, objective and optimizer.learning_rate
  c.sft.path = ""  # JSON Lines of {"messages": [...]}, docs/pipelines.md; "": the task's own demonstrations
  c.sft.steps = 200  # updates
  c.sft.batch_size = 32  # rows of an update, from the shuffled rows of an epoch
  c.sft.optimizer = "adamw"  # its other numbers are those of config.optimizer
  c.sft.learning_rate = 2e-3  # after warm-up; cosine to a tenth
  c.sft.warmup_steps = 10

  c.preference = ConfigDict()  # stages of a pipeline that learn pairs of answers, as config.sft
  c.preference.path = ""  # JSON Lines of {"prompt", "chosen", "rejected"}, docs/pipelines.md
  c.preference.loss = dict(fn="dpo", beta=0.1)  # of grpojax/objective/preference.py: dpo, ipo, simpo
  c.preference.steps = 32  # updates: 1,024 pairs, two passes over what a stage leaves; in six DPO runs away
  c.preference.batch_size = 32  # pairs of an update, from the shuffled pairs of an epoch
  c.preference.optimizer = "adamw"
  c.preference.learning_rate = 5e-5  # a fortieth of SFT's, as Zephyr (2310.16944): a pair pulls hard
  c.preference.warmup_steps = 4

  c.sample = ConfigDict()  # stages of a pipeline that sample training questions and keep what is right
  c.sample.rows = "answers"  # that they leave: right ones, for config.sft; "pairs" of a chosen and a rejected
  # one, for config.preference; "judgements": right answers, and what a judge should say, for config.sft
  c.sample.by = "verifier"  # of pairs: a right and a wrong answer; "judge": the best and the worst by the
  # policy itself (config.judge); "demonstration": the data's, and the policy's own (SPIN, 2401.01335)
  c.sample.prompts = 1024  # of the training split, the first so many; 0: all
  c.sample.samples = 8  # completions of each, of config.eval.max_tokens tokens at most
  c.sample.temperature = 1.0  # STaR is greedy; ReST-EM and R1 sample
  c.sample.keep = 4  # right completions of a prompt, different from each other, at most
  c.sample.balance = "hard"  # "none": `keep` of each; "hard": where n of N were right, keep (1 - n/N) of it,
  # rounded up, and one at least, so that easy prompts do not crowd out the others (DART-Math, 2407.13690)

  c.judge = ConfigDict()  # the policy scores its own answers.  Self-rewarding, https://arxiv.org/abs/2401.10020
  c.judge.rubric = "{question}\n{answer}\nright?"  # the prompt, bare of config.data.template
  c.judge.marker = "Score:"  # of the form: an integer from 0 to `most` behind the last one
  c.judge.most = 5
  c.judge.samples = 3  # judgements of an answer, whose mean is its score (the paper: 3)
  c.judge.temperature = 1.0
  c.judge.max_tokens = 10  # of a judgement
  c.judge.prompt_budget = 96  # tokens of the rubric with question and answer; longer ones: counted, no score


RUBRIC = (  # of models that can read; after figure 2 of Self-rewarding's paper, for questions with an answer
  "Review the response to the question below. It gets a point for each of these: it is relevant; it deals"
  " with all of the question; its steps follow from each other; its steps are correct; its final answer is"
  " right and clearly stated.\n\nQuestion: {question}\n\nResponse: {answer}\n\nSay briefly what earns points"
  " and what does not. Then end with the total in the form: Score: <0 to 5>"
)
