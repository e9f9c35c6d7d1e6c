"""What else does the policy pay for?  logp, batch, entropy -> cost [P, G, T], with gradient.

Weighted like the policy term and multiplied by its `beta`; mismatch weights do not touch it.
x = log π_θ − log π_ref.
"""

import jax.numpy as jnp

from grpojax.batch import Array, Batch
from grpojax.objective.fields import field


def kl_k3(logp: Array, batch: Batch, entropy: Array | None) -> Array:
  """e^−x + x − 1.  GRPO, https://arxiv.org/abs/2402.03300

  Its value is unbiased for KL(π_θ‖π_ref); its gradient is that of the other KL, KL(π_ref‖π_θ).
  """
  x = logp - field(batch, "ref_logp")
  return jnp.exp(-jnp.clip(x, -20.0, 20.0)) + x - 1
