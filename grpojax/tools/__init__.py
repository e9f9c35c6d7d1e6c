"""The commands beside training; nobody imports them but grpojax/__main__.py and experiments/."""
