"""Roofline of a compiled program: its text is read, what runs is counted, and the seconds are estimated.

    hlo -> loops -> flops, kernels, traffic, collectives of an instruction -> counts of a program -> estimate

What the estimate means for a config is the check's to say (`podcheck/check.py`).
"""
