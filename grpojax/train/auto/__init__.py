"""Chooses what a config leaves open of mesh, slots, pieces, chunk and remat; none of these changes a number.

A key is open at 0, "auto" or -1 (keys.OPEN), as all of these are in the scale `local`; any value closes it.
The rules are those that the pod check has measured (docs/pods.md, "What is chosen"); memory is by
train/footprint.py.
"""

from grpojax.train.auto.choose import build_model, choose, choose_here
from grpojax.train.auto.keys import describe, open_keys
from grpojax.train.auto.machine import Machine

__all__ = ["Machine", "build_model", "choose", "choose_here", "describe", "open_keys"]
