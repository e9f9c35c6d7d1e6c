"""Refusals of objectives that build and make no sense.  Each sentence says what to change."""

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from grpojax.objective.build import build, functions
from grpojax.objective.fields import EXTRA
from grpojax.objective.formula import Objective, loss, prepare
from grpojax.types import Batch, Turns

NEED_A_GROUP = (  # advantages that are 0 for a single completion; a test holds this list
  "center", "zscore", "leave_one_out", "leave_one_out_std", "leave_one_out_zscore",
  "maxrl", "opo", "gdpo", "gtpo", "grpo_s", "optimal_baseline",
)  # fmt: skip
READ_OTHER_THAN_THE_REWARD = (  # so that KL in the reward would reach some rows, or none
  "process_supervision", "gtpo", "grpo_s", "turn_return", "gigpo", "hgpo", "gdpo",
)  # fmt: skip
UNIT = dict(dppo_tv="token", dppo_kl="token", tv_band="token", vespo="sequence_product")  # of their ratio
NORMALISED_INSIDE = ("sequence", "arithmetic", "geometric")  # ratios that contain 1 / length


def check(config: ConfigDict, extra: tuple[str, ...] = ()) -> None:
  """Raises ValueError for what is wrong with `config.objective` in the run that `config` describes.

  `extra` names the entries of Batch.extra that the run fills.  Nothing is compiled: the objective
  is traced once on a batch of shapes, which finds every field that it reads and the run lacks.
  """
  o = config.objective
  _one_denominator(o.aggregate)
  objective = build(o)
  _length_norm(o)
  _group(config)
  _kl_in_reward(o)
  _proximal(o)
  _own_terms(config)
  _moment(o)
  _unit(o)
  _ranges(o)
  batch, logp = _shapes(config, extra)
  try:
    jax.eval_shape(_update, objective, logp, batch)
  except (TypeError, AttributeError, OverflowError) as error:
    said = str(error).partition("\n")[0]
    raise ValueError(
      f"config.objective cannot be computed ({type(error).__name__}: {said}); is each of its functions one "
      "for its slot, and each of its numbers one of 32 bits?"
    ) from error


def reads_old_policy(config: ConfigDict, extra: tuple[str, ...] = ()) -> bool:
  """Returns True if π_old's log-probs or entropies are read before the update, whose pass computes them.

  An objective that `check` accepted reads them if it cannot be traced without them.
  """
  batch, logp = _shapes(config, extra)
  try:
    jax.eval_shape(_update, build(config.objective), logp, batch._replace(old_logp=None, entropy=None))
  except (AttributeError, TypeError, ValueError):
    return True
  return False


def replaces_old_policy(config: ConfigDict) -> bool:
  """Returns True if `config.objective.shape` puts another policy in the place of π_old."""
  return any(entry.fn in ("bypass", "log_linear") for entry in config.objective.shape.values())


def reads_teacher(config: ConfigDict, extra: tuple[str, ...] = ()) -> bool:
  """Returns True if an objective that `check` accepted reads the teacher's log-probs."""
  return _reads(config, extra, "teacher_logp")


def reads_reference(config: ConfigDict, extra: tuple[str, ...] = ()) -> bool:
  """Returns True if the objective of a config with a reference reads the reference's log-probs."""
  return _reads(config, extra, "ref_logp")


def _reads(config: ConfigDict, extra: tuple[str, ...], name: str) -> bool:
  """Returns True if the objective cannot be traced without this field of the batch."""
  batch, logp = _shapes(config, extra)
  try:
    jax.eval_shape(_update, build(config.objective), logp, batch._replace(**{name: None}))
  except ValueError:
    return True
  return False


def _update(objective: Objective, logp, batch: Batch):
  return loss(objective, logp, prepare(objective, batch, logp), -logp)


def _one_denominator(aggregate: ConfigDict) -> None:
  fn, budget = aggregate.get("fn"), aggregate.get("budget")
  if budget is not None and fn in ("token_mean", "prompt_mean", "sequence_mean", "sequence_sum"):
    raise ValueError(
      f"config.objective.aggregate: fn = '{fn}' and budget = {budget} are two denominators, and a "
      "loss has one; drop budget, or set fn = 'constant'."
    )


def _length_norm(o: ConfigDict) -> None:
  if o.aggregate.fn == "constant" and o.ratio.fn in NORMALISED_INSIDE:
    raise ValueError(
      f"config.objective.ratio.fn = '{o.ratio.fn}' has 1 / length inside, which aggregate.fn = "
      "'constant' cannot drop; set config.objective.ratio.fn = 'sequence_token'."
    )


def _group(config: ConfigDict) -> None:
  if config.rollout.group_size > 1:
    return
  fn = config.objective.advantage.fn
  if fn in NEED_A_GROUP:
    raise ValueError(
      f"config.rollout.group_size = 1 leaves {fn} nothing to compare, so every advantage is 0; "
      "raise it, or set config.objective.advantage.fn to return_to_go, mixed_baseline or raw."
    )
  if any(entry.fn == "mixed_groups" for entry in config.objective.select.values()):
    raise ValueError(
      "config.rollout.group_size = 1 has no mixed groups; take mixed_groups out of "
      "config.objective.select."
    )


def _kl_in_reward(o: ConfigDict) -> None:
  if not any(entry.fn == "kl_k1" for entry in o.shape.values()):
    return
  for slot, fns in ("advantage", READ_OTHER_THAN_THE_REWARD), ("rescale", ("gtpo_over_batch", "rms")):
    if o[slot].fn in fns:
      raise ValueError(
        f"config.objective.shape: kl_k1 changes the rewards, of which config.objective.{slot}.fn = "
        f"'{o[slot].fn}' reads some or none; take the KL as config.objective.penalty: kl_k2, which has the "
        "same gradient."
      )


def _proximal(o: ConfigDict) -> None:
  """Raises ValueError where log π_old depends on θ and is read before θ is known."""
  entry = next((name for name, entry in o.shape.items() if entry.fn == "log_linear"), None)
  if entry is None:
    return
  if later := [name for name in sorted(o.shape) if name > entry]:
    raise ValueError(
      f"config.objective.shape: {later[0]} follows {entry}, whose log pi_old depends on theta and is made "
      f"in the loss; rename {entry} to be the last in the order of names, or take one of them out."
    )
  if o.correct:
    raise ValueError(
      "config.objective.correct reads log pi_old before the update, and config.objective.shape: log_linear "
      "makes it depend on theta; take config.objective.veto: proximal_is, the same weight inside the loss."
    )


def _own_terms(config: ConfigDict) -> None:
  """Raises ValueError for components of tokens that they cannot be of, and where nothing is trained on."""
  o = config.objective
  for name, entry in o.component.items():
    if entry.fn in ("ref_kl", "opd", "gkd") and entry.stream == "observations":
      raise ValueError(
        f"config.objective.component.{name}: {entry.fn} compares policies on tokens that they chose, and an "
        "environment chose observations; set stream = 'actions'."
      )
  if o.advantage.fn == "none" and o.rescale.fn != "opd" and not (o.component or o.preference or o.penalty):
    raise ValueError(
      "config.objective.advantage.fn = 'none' leaves nothing to learn from; add an entry to "
      "config.objective.component or config.objective.preference, or set config.objective.rescale.fn = 'opd'."
    )
  if o.preference and config.rollout.group_size == 1:
    raise ValueError(
      "config.rollout.group_size = 1 makes no pair of completions for config.objective.preference; raise it."
    )


def _moment(o: ConfigDict) -> None:
  if o.rescale.fn != "rms":
    return
  if o.advantage.fn != "center":
    raise ValueError(
      "config.objective.rescale.fn = 'rms' divides by the moment of R - mean, and "
      f"config.objective.advantage.fn = '{o.advantage.fn}' gives something else; set it to 'center'."
    )
  if any(entry.fn == "finished_only" for entry in o.shape.values()):
    raise ValueError(
      "config.objective.shape: finished_only takes rewards out that the moment of "
      "config.objective.rescale.fn = 'rms' counts; use config.objective.select: finished."
    )


def _unit(o: ConfigDict) -> None:
  unit = UNIT.get(o.surrogate.fn)
  if unit and o.ratio.fn in functions("ratio") and o.ratio.fn != unit:
    raise ValueError(
      f"config.objective.surrogate.fn = '{o.surrogate.fn}' is of the ratio of a {unit.partition('_')[0]}; "
      f"set config.objective.ratio.fn = '{unit}'."
    )


def _ranges(o: ConfigDict) -> None:
  if o.advantage.fn == "leave_one_out_zscore" and o.advantage.get("eps", 1e-2) < 1e-2:
    raise ValueError(
      f"config.objective.advantage.eps = {o.advantage.eps} gives the only success of a group the "
      "advantage 1 / eps; choose at least 0.01."
    )
  if o.surrogate.fn == "dual_clip" and o.surrogate.get("floor", 3.0) <= 1:
    raise ValueError(
      f"config.objective.surrogate.floor = {o.surrogate.floor} would clip bad answers on-policy; "
      "choose more than 1 (the paper: 3)."
    )


def _shapes(config: ConfigDict, extra: tuple[str, ...]) -> tuple[Batch, jax.ShapeDtypeStruct]:
  """Returns the batch that the learner will see, as shapes with few prompts and tokens."""
  P, G, T, K = 2, config.rollout.group_size, 4, 3
  of = lambda *shape, dtype=jnp.float32: jax.ShapeDtypeStruct(shape, dtype)
  token, row, flag = of(P, G, T), of(P, G), of(P, G, dtype=bool)
  sizes = {"row": row, "token": of(P, G, T, dtype=jnp.int32), "step": of(P, G, K), "part": of(P, G, K)}
  batch = Batch(
    mask=token,
    reward=row,
    accuracy=row,
    valid=flag,
    ended=flag,
    sampler_logp=token,
    old_logp=token,
    ref_logp=token if config.reference else None,
    teacher_logp=token if config.teacher.path or config.teacher.paths else None,
    divergence=token if config.teacher.divergence else None,
    entropy=token,
    turns=_turns(P, G, T, of) if config.env.name else None,
    extra={name: sizes[EXTRA[name].per] for name in extra},
  )
  return batch, token


def _turns(P: int, G: int, T: int, of) -> Turns:
  U, whole = 3, jnp.int32
  index, count, anchor = of(P, G, T, dtype=whole), of(P, G, dtype=whole), of(P, G, U, dtype=whole)
  return Turns(index, count, of(P, G, U), anchor, of(P, G, U, dtype=bool))
