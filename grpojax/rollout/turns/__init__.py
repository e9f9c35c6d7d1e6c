"""Trajectories of many turns: the policy acts in slots on the device, environments answer beside it."""

from grpojax.rollout.turns import build

__all__ = ["build"]
