"""The laboratory of many turns: games so small that every trajectory can be listed.

    python -m experiments.turns_lab              # claims, tables and figures into runs/turns_lab
    python -m experiments.turns_lab --fast       # a slice of it

Question: what does each credit for turns really estimate, and at what price?  The gradient of the expected
return is enumerated, so bias, variance and squared error are numbers, and the papers' claims have verdicts.
Answers: docs/turns_lab.md.
"""
