"""Pipelines: stages of training that start from each other, each in a folder of its own.

    stages.py     config.stages -> the stages in order, each with its whole config
    inputs.py     files and folders from outside that a stage reads, by their content
    manifest.py   what a stage stands on and what it has left; which stages are done, stale or left
    kinds.py      what a stage of each kind does
    answering.py  how a stage that trains nothing asks questions
    sampling.py   a stage that leaves rows for another one to learn
    rejection.py  sampled answers -> those that are kept to be learned
    pairing.py    sampled answers -> pairs of a chosen and a rejected one
    judge.py      the policy's own scores of its answers
    chain.py      runs what is left, one stage after another
    page.py       report.html of the whole chain
    stage_page.py report.html of a stage that is no run
    command.py    the flags of `grpojax pipeline`
"""
