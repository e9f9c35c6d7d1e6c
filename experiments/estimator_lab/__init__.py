"""The estimator laboratory: policies so small that every response can be enumerated.

    python -m experiments.estimator_lab              # claims, tables and figures into runs/estimator_lab
    python -m experiments.estimator_lab --fast       # a slice of it

Question: what does each variant really estimate, and at what price?  The true gradient is known, so
bias, variance and the signal lost to clipping are numbers, and the literature's claims have verdicts.
Answers: docs/estimator_lab.md.
"""
