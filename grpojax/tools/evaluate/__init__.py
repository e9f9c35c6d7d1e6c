"""Held-out accuracy.  `grpojax evaluate` measures a checkpoint on benchmarks.

    policy.py      which parameters answer
    suites.py      which questions
    items.py       what was answered, on disk; an evaluation that was killed goes on from it
    benchmark.py   ask, answer, grade, write
    estimators.py  pass@k, maj@k, intervals; training uses them too
"""

from grpojax.rollout.estimators import per_question, summarise

__all__ = ["per_question", "summarise"]
