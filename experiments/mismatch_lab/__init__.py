"""Each real cause of a gap between sampler and learner, put in on purpose, and what corrects for it.

    python -m experiments.mismatch_lab           # verdicts, tables and figures into runs/mismatch_lab
    python -m experiments.mismatch_lab --fast    # two policies instead of six

Question: which correction restores the gradient that the learner looks for, and at what variance?  A decoder
of this project writes answers so short that all are listed.  So expectation and covariance of an objective's
gradient, by the decoder's own parameters, are sums and no estimates.
"""
