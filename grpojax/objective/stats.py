"""Masked statistics.  `on` marks what counts; nothing behind it can reach a result.

Variances take two passes: in float32, E[x²] − E[x]² turns equal rewards into huge advantages.
"""

import jax
import jax.numpy as jnp

EXP_LIMIT = 20.0  # e^20 is never a sane ratio; verl, tunix and OpenRLHF clamp there too


def exp(x):
  """Returns e^x with x clamped to ±20, so that a value compared with a bound cannot overflow."""
  return jnp.exp(jnp.clip(x, -EXP_LIMIT, EXP_LIMIT))


def expm1(x):
  """Returns e^x − 1, clamped as `exp`; near 0, where e^x − 1 has lost its digits, it has all of them."""
  return jnp.expm1(jnp.clip(x, -EXP_LIMIT, EXP_LIMIT))


def total(x, on, axis=None):
  """Returns the sum of x where `on`, along `axis` (kept, so that it broadcasts back)."""
  return jnp.where(on, x, 0.0).sum(axis, keepdims=axis is not None)


def mean(x, on, axis=None):
  """Returns the mean of x where `on`; 0 where nothing is."""
  return total(x, on, axis) / jnp.maximum(total(1.0, on, axis), 1.0)


def std(x, on, *, ddof, axis=None):
  """Returns the standard deviation with an explicit ddof; 0 where fewer than ddof + 1 values are on."""
  squares = total((x - mean(x, on, axis)) ** 2, on, axis)
  return jnp.sqrt(squares / jnp.maximum(total(1.0, on, axis) - ddof, 1.0))


def spread(x, on, axis=None):
  """Returns max − min where `on`.  It is exactly 0 for equal values, which a computed std is not."""
  keep = axis is not None
  high = jnp.where(on, x, -jnp.inf).max(axis, keepdims=keep)
  low = jnp.where(on, x, jnp.inf).min(axis, keepdims=keep)
  return jnp.maximum(high - low, 0.0)


def largest(x, on, axis=None):
  """Returns the largest x where `on`; 0 where nothing is."""
  keep = axis is not None
  top = jnp.where(on, x, -jnp.inf).max(axis, keepdims=keep)
  return jnp.where(on.any(axis, keepdims=keep), top, 0.0)


def equal(x, on):
  """Returns True [] if values are equal where `on`, up to 8 units in the last place of the largest.

  Rewards are equal or not (`spread` = 0); what was divided by its mean differs by rounding.
  """
  largest = jnp.where(on, jnp.abs(x), 0.0).max()
  return spread(x, on) <= 8 * jnp.finfo(x.dtype).eps * largest


def kth_largest(x, on, k):
  """Returns the k-th largest of the values ≥ 0 where `on`, exactly; what is smaller than 0 counts as 0.

  Subnormal values count as 0, too, where XLA flushes them.

  Floats ≥ 0 are ordered as their bits, so the value is found bit by bit, by counting.  A sort would
  take ten times as long, and on a mesh would gather what counting only sums.
  """
  width = jnp.finfo(x.dtype).bits
  integer = jnp.dtype(f"int{width}")
  bits = jax.lax.bitcast_convert_type(jnp.where(on, jnp.maximum(x, 0), -1.0), integer)

  def count(bound):
    rows = (bits >= bound).sum(-1, dtype=jnp.float32)  # exact below 2²⁴, and twice as fast as integers
    return rows.astype(jnp.int32).sum()

  def decide(i, found):
    longer = found | (jnp.ones((), integer) << (width - 2 - i))
    return jnp.where(count(longer) >= k, longer, found)

  found = jax.lax.fori_loop(0, width - 1, decide, jnp.zeros((), integer))
  return jax.lax.bitcast_convert_type(found, x.dtype)


def smallest_with_mean(x, on, limit):
  """Returns which x ≥ 0 lie below the highest bound under which their mean, where `on`, is at most `limit`.

  Equal values lie on one side.  The bound is found as in `kth_largest`, since the mean of what lies below a
  bound only grows with it.
  """
  width = jnp.finfo(x.dtype).bits
  integer = jnp.dtype(f"int{width}")
  bits = jax.lax.bitcast_convert_type(x, integer)

  def decide(i, found):
    longer = found | (jnp.ones((), integer) << (width - 2 - i))
    return jnp.where(mean(x, on & (bits <= longer)) <= limit, longer, found)

  return bits <= jax.lax.fori_loop(0, width - 1, decide, jnp.zeros((), integer))


def ema(average, value, *, rate):
  """Returns (1 − rate) · average + rate · value, for every leaf.

  A moving baseline (value: the step's mean reward; use the average from before the step), or a
  reference policy that follows (value: θ; TR-DPO, https://arxiv.org/abs/2404.09656, has rate 0.6
  every 512 steps).  In bfloat16 a rate below 2⁻⁸ is lost.
  """
  return jax.tree.map(lambda old, new: (1 - rate) * old + rate * new, average, value)
