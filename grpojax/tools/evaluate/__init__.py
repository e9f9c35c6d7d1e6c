"""Held-out accuracy.  `grpojax evaluate` measures a checkpoint on benchmarks.

    policy.py     the parameters that answer
    suites.py     the questions
    items.py      answers on disk; an evaluation that was killed goes on from them
    benchmark.py  sampling, grading, writing
    curves.py     what k samples of a question are worth
    forcing.py    accuracy against tokens: thinking is cut, or made to go on
    summary.py    every number with its interval; rollout/estimators.py has pass@k and maj@k
"""

from grpojax.rollout.estimators import per_question, summarise

__all__ = ["per_question", "summarise"]
