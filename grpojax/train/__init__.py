"""Training: the loop, and what is made once for it."""
