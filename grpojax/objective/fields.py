"""What a function reads beside its arguments, and the sentence for a run that does not have it."""

from grpojax.batch import Array, Batch

PROVIDED_BY = dict(
  ref_logp="set config.reference = 'init'",
  sampler_logp="the sampler did not return it; take what reads it out of config.objective",
  old_logp="the learner recomputes it, or config.objective.shape.bypass = dict(fn='bypass')",
  entropy="the learner returns it beside log π",
)


def field(batch: Batch, name: str) -> Array:
  """batch.<name> or batch.extra[name]; raises ValueError, while tracing, where it is absent."""
  value = getattr(batch, name, None)
  if value is None:
    value = (batch.extra or {}).get(name)
  if value is None:
    raise ValueError(
      f"The objective reads '{name}', which this run does not have: "
      f"{PROVIDED_BY.get(name, 'put it into Batch.extra')}."
    )
  return value
