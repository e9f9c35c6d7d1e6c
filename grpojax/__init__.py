"""grpojax: the GRPO family of critic-free policy optimisation, exact and composable, in JAX."""
