"""Accuracy against compute: `grpojax scale RUN...` fits ScaleRL's sigmoid to the evaluations of runs.

    fit.py       the sigmoid, its fit on grids, its linear form
    seeds.py     intervals: whole seeds are resampled, their curves averaged and fitted
    runs.py      workdirs -> recipes, a curve a seed
    estimate.py  a recipe's fit, and the end that its first half predicts
    figures.py page.py scale.html   the table, the sentences and the figures of scale.html
    command.py   the flags
"""
