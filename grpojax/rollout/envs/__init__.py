"""Environments of many turns: plain Python, without jax, in processes of their own beside the device."""
