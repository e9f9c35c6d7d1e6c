"""grpojax: the GRPO family of critic-free policy optimisation, exact and composable, in JAX."""

import os

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # no advice about a missing torch
