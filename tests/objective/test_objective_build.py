"""config.objective -> Objective: what is refused, in which words, and what compiles once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from objective_toys import bound, group, menu, random_batch, recipe

from grpojax import objective as lib
from grpojax.objective import advantage
from grpojax.objective.build import LISTS, SLOTS, functions
from grpojax.objective.check import NEED_A_GROUP


def refused(change, call=lib.check) -> str:
  """The sentence with which the changed base config is refused."""
  c = recipe("base")
  change(c)
  with pytest.raises(ValueError) as error:
    call(c)
  sentence = str(error.value)
  assert sentence.startswith("config.") and sentence.endswith(".") and "\n" not in sentence
  return sentence


def setting(key: str, value):
  """A change that sets config.<key> to value."""

  def change(c):
    *path, last = key.split(".")
    for part in path:
      c = c[part]
    with c.ignore_type():
      c[last] = value

  return change


def by_moment(**shape):
  """A change to ScaleRL's advantage with these entries of `shape`."""

  def change(c):
    setting("objective.advantage", dict(fn="center"))(c)
    setting("objective.rescale", dict(fn="rms"))(c)
    c.objective.shape.update(shape)

  return change


KL_IN_REWARD = dict(kl=dict(fn="kl_k1", beta=0.05))
ECHO = dict(fn="ce", coef=0.1, stream="observations")
SENTENCES = [
  (
    setting("objective.component.echo", dict(fn="ce", stream="right")),
    "config.objective.component.echo needs coef, the factor of this component in the loss.",
  ),
  (
    setting("objective.component.echo", dict(fn="ce", coef=0.1)),
    "config.objective.component.echo needs stream, the tokens that it counts, a function of "
    "grpojax/objective/stream.py.",
  ),
  (
    setting("objective.component.echo", ECHO | dict(stream="wrong")),
    "config.objective.component.echo.stream.fn = 'wrong', but grpojax/objective/stream.py has only actions, "
    "right, observations.",
  ),
  (
    setting("objective.component.echo", ECHO),
    "config.objective needs 'kind', which this run does not have: set config.env.name, without which there "
    "are no observations.",
  ),
  (
    setting("objective.component.echo", ECHO | dict(fn="opd")),
    "config.objective.component.echo: opd compares policies on tokens that they chose, and an environment "
    "chose observations; set stream = 'actions'.",
  ),
  (
    setting("objective.component.teach", dict(fn="ref_kl", coef=1.0, stream="actions")),
    "config.objective needs 'teacher_logp', which this run does not have: set config.teacher.path or .paths.",
  ),
  (
    setting("objective.component.teach", dict(fn="gkd", coef=1.0, stream="actions")),
    "config.objective needs 'divergence', which this run does not have: set config.teacher.path or "
    ".paths, and config.teacher.divergence.",
  ),
  (
    setting("objective.preference.dpo", dict(fn="dpo", coef=1.0)),
    "config.objective needs 'ref_logp', which this run does not have: set config.reference = 'init'.",
  ),
  (
    setting("objective.preference.dpo", dict(fn="dpo")),
    "config.objective.preference.dpo needs coef, the factor of these pairs in the loss.",
  ),
  (
    setting("objective.shape", dict(a=dict(fn="log_linear"), b=dict(fn="bypass"))),
    "config.objective.shape: b follows a, whose log pi_old depends on theta and is made in the loss; "
    "rename a to be the last in the order of names, or take one of them out.",
  ),
  (
    lambda c: c.objective.update(
      shape=dict(it=dict(fn="log_linear")), correct=dict(tis=dict(fn="truncated_is"))
    ),
    "config.objective.correct reads log pi_old before the update, and config.objective.shape: log_linear "
    "makes it depend on theta; take config.objective.veto: proximal_is, the same weight inside the loss.",
  ),
  (
    setting("objective.rescale", dict(fn="opd", student="new")),
    "config.objective.rescale.student = 'new'; it is 'old' or 'sampler'.",
  ),
  (
    setting("objective.advantage", dict(fn="none")),
    "config.objective.advantage.fn = 'none' leaves nothing to learn from; add an entry to "
    "config.objective.component or config.objective.preference, or set config.objective.rescale.fn = 'opd'.",
  ),
  (
    setting("objective.ratio", dict(fn="sequense")),
    "config.objective.ratio.fn = 'sequense', but grpojax/objective/ratio.py has only token, "
    "sequence, sequence_token, sequence_product, arithmetic, geometric.",
  ),
  (
    setting("objective.surrogate", dict(fn="sapo", low=0.1)),
    "config.objective.surrogate: sapo has no low; it takes tau_pos, tau_neg.",
  ),
  (
    setting("objective.aggregate", dict(fn="constant")),
    "config.objective.aggregate: constant needs budget.",
  ),
  (
    setting("objective.aggregate", dict(fn="token_mean", budget=80)),
    "config.objective.aggregate: fn = 'token_mean' and budget = 80 are two denominators, and a "
    "loss has one; drop budget, or set fn = 'constant'.",
  ),
  (
    setting("objective.penalty.kl", dict(fn="kl_k3")),
    "config.objective.penalty.kl needs beta, the factor of this penalty in the loss.",
  ),
  (
    setting("objective.penalty.kl", dict(fn="kl_k3", beta="0.1")),
    "config.objective.penalty.kl.beta = '0.1' must be a number.",
  ),
  (
    setting("objective.preference.pairs", dict(fn="simpo", coef=None)),
    "config.objective.preference.pairs.coef = None must be a number.",
  ),
  (
    setting("objective.penalty.kl", dict(fn="kl_k3", beta=0.1)),
    "config.objective needs 'ref_logp', which this run does not have: set config.reference = "
    "'init'.",
  ),
  (
    setting("objective.advantage", dict(fn="mixed_baseline")),
    "config.objective needs 'baseline', which this run does not have: set "
    "config.baseline.kind.",
  ),
  (
    setting("objective.ratio", dict(fn="no.such.module:fn")),
    "config.objective.ratio.fn = 'no.such.module:fn' cannot be imported: No module named 'no'.",
  ),
  (
    setting("objective.ratio", "token"),
    "config.objective.ratio is 'token', but must be a dict of fn and its keyword arguments.",
  ),
  (
    setting("objective.penalty", dict(kl=0.1)),
    "config.objective.penalty.kl is 0.1, but must be a dict of fn and its keyword arguments.",
  ),
  (
    setting("objective.aggregate", dict(fn="sequence_mean", rows="some")),
    "config.objective.aggregate.rows = 'some'; it is 'nonempty' or 'all'.",
  ),
  (
    setting("objective.advantage", dict(fn="gtpo", pool="mine")),
    "config.objective.advantage.pool = 'mine'; it is 'all' or 'own'.",
  ),
  (
    setting("objective.advantage", dict(fn="gigpo", form="turns")),
    "config.objective.advantage.form = 'turns'; it is 'trajectories' or 'rows'.",
  ),
  (
    lambda c: c.objective.update(advantage=dict(fn="gtpo"), rescale=dict(fn="batch_zscore")),
    "config.objective.rescale: batch_zscore takes one advantage per completion, and "
    "config.objective.advantage.fn gives one per token; use whiten.",
  ),
  (
    setting("objective.advantage", dict(fn="_centered")),
    "config.objective.advantage.fn = '_centered', but grpojax/objective/advantage.py has only ",
  ),
  (
    setting("objective.punishment", dict(fn="kl_k3")),
    "config.objective has no 'punishment'; it takes advantage, rescale, ratio, surrogate, "
    "aggregate, shape, select, correct, veto, batch_veto, penalty, component, preference.",
  ),
  *(
    (
      lambda c, slot=slot, fn=fn: c.objective.update({slot: dict(fn=fn), "shape": KL_IN_REWARD}),
      "config.objective.shape: kl_k1 changes the rewards, of which "
      f"config.objective.{slot}.fn = '{fn}' reads some or none; ",
    )
    for slot, fn in (
      ("advantage", "process_supervision"), ("advantage", "gtpo"), ("advantage", "grpo_s"),
      ("advantage", "gigpo"), ("advantage", "turn_return"), ("advantage", "gdpo"),
      ("rescale", "gtpo_over_batch"),
    )
  ),
  (
    by_moment(**KL_IN_REWARD),
    "config.objective.shape: kl_k1 changes the rewards, of which config.objective.rescale.fn = 'rms' reads ",
  ),
  (
    setting("objective.rescale", dict(fn="rms")),
    "config.objective.rescale.fn = 'rms' divides by the moment of R - mean, and "
    "config.objective.advantage.fn = 'zscore' gives something else; set it to 'center'.",
  ),
  (
    by_moment(it=dict(fn="finished_only")),
    "config.objective.shape: finished_only takes rewards out that the moment of "
    "config.objective.rescale.fn = 'rms' counts; use config.objective.select: finished.",
  ),
  (
    by_moment(),
    "config.objective needs 'moment', which this run does not have: set config.moment.kind.",
  ),
  (
    setting("objective.advantage", dict(fn="maxrl", all_wrong="one")),
    "config.objective.advantage.all_wrong = 'one'; it is 'zero' or 'minus_one'.",
  ),
  (
    setting("objective.aggregate", dict(fn="prompt_mean", prompts="some")),
    "config.objective.aggregate.prompts = 'some'; it is 'nonempty' or 'all'.",
  ),
  (
    setting("objective.surrogate", dict(fn="dppo_tv", form="soft")),
    "config.objective.surrogate.form = 'soft'; it is 'sg' or 'grad'.",
  ),
  (
    setting("objective.surrogate", dict(fn="vespo")),
    "config.objective.surrogate.fn = 'vespo' is of the ratio of a sequence; set config.objective.ratio.fn = "
    "'sequence_product'.",
  ),
  (
    lambda c: c.objective.update(surrogate=dict(fn="dppo_kl"), ratio=dict(fn="sequence")),
    "config.objective.surrogate.fn = 'dppo_kl' is of the ratio of a token; set config.objective.ratio.fn = "
    "'token'.",
  ),
  (
    setting("objective.correct.it", dict(fn="sequence_mask", stat="k4")),
    "config.objective.correct: stat = 'k4'; it is k1, k2, k3, abs.",
  ),
  (
    setting("objective.veto.it", dict(fn="taper_failures", unit="turn")),
    "config.objective.veto: unit = 'turn'; it is 'sequence' or 'token'.",
  ),
  (
    setting("objective.veto.it", dict(fn="stale_failures", delta=0.1, anchor="ref")),
    "config.objective.veto: anchor = 'ref'; it is 'sampler' or 'old'.",
  ),
  (
    setting("objective.batch_veto.it", dict(fn="m2po", scope="some")),
    "config.objective.batch_veto: scope = 'some'; it is 'harmful' or 'all'.",
  ),
  (
    setting("objective.penalty.it", dict(fn="log2_kl", beta=0.1, anchor="ref")),
    "config.objective.penalty: anchor = 'ref'; it is 'sampler' or 'old'.",
  ),
  (
    setting("rollout.group_size", 1),
    "config.rollout.group_size = 1 leaves zscore nothing to compare, so every advantage is 0; "
    "raise it, or set config.objective.advantage.fn to return_to_go, mixed_baseline or raw.",
  ),
  (
    setting("objective.advantage", dict(fn="leave_one_out_zscore", eps=1e-6)),
    "config.objective.advantage.eps = 1e-06 gives the only success of a group the advantage "
    "1 / eps; choose at least 0.01.",
  ),
  (
    setting("objective.surrogate", dict(fn="dual_clip", floor=1.0)),
    "config.objective.surrogate.floor = 1.0 would clip bad answers on-policy; choose more than 1 "
    "(the paper: 3).",
  ),
]


@pytest.mark.parametrize("change, sentence", SENTENCES)
def test_a_mistake_is_refused_in_one_sentence(change, sentence):
  assert refused(change).startswith(sentence)


def test_plain_gspo_cannot_drop_its_length_norm():
  def change(c):
    c.objective.ratio = dict(fn="sequence")
    c.objective.aggregate = dict(fn="constant", budget=80)

  assert refused(change) == (
    "config.objective.ratio.fn = 'sequence' has 1 / length inside, which aggregate.fn = 'constant' "
    "cannot drop; set config.objective.ratio.fn = 'sequence_token'."
  )


def test_one_completion_has_no_mixed_groups():
  def change(c):
    c.rollout.group_size = 1
    c.objective.advantage = dict(fn="return_to_go")
    c.objective.select.mixed = dict(fn="mixed_groups")

  assert "has no mixed groups" in refused(change)


@pytest.mark.parametrize("fn", menu("correct"))
def test_a_correction_without_the_samplers_log_probs_is_refused_while_tracing(fn):
  c = recipe("base")
  c.objective.correct.it = dict(fn=fn.__name__)
  objective, (batch, _) = lib.build(c.objective), random_batch(0)
  with pytest.raises(ValueError, match="needs 'sampler_logp', which this run does not have"):
    jax.eval_shape(lib.prepare, objective, batch._replace(sampler_logp=None))


def test_the_advantages_that_need_a_group_are_those_that_vanish_without():
  one, _ = random_batch(3, G=1)
  vanish = {
    fn.__name__
    for fn in menu("advantage")
    if not np.any(bound(fn)(jax.tree.map(lambda x: x[0], one._replace(reward=one.reward + 1))))
  }
  one_turn = {"turn_return", "gigpo", "hgpo"}  # compare turns, and this group has a single one
  assert vanish - one_turn - {"none"} == set(NEED_A_GROUP)  # which is 0 for every group


def test_every_slot_has_a_file_and_every_file_a_menu():
  assert set(lib.Objective._fields) == {*SLOTS, *LISTS}
  assert all(functions(slot) for slot in (*SLOTS, *LISTS))


def test_two_builds_compile_once_and_so_do_two_numbers():
  c = recipe("grpo")
  c.objective.advantage = dict(fn="gtpo", pool="all", alpha2=0.1)
  c.objective.correct.tis = dict(fn="masked_is", high=2.0, weighted=True)
  batch, theta = random_batch(0)
  logp = jnp.asarray(theta["logp"])

  traced = []

  @jax.jit
  def loss(objective):
    traced.append(1)
    return lib.loss(objective, logp, lib.prepare(objective, batch))[0]

  one = loss(lib.build(c.objective))
  c.objective.surrogate.low = 0.1
  c.objective.penalty.kl.beta = 0.2
  c.objective.advantage.alpha2 = 0.3
  c.objective.correct.tis.high = 1.1
  two = loss(lib.build(c.objective))
  assert len(traced) == 1 and one != two
  c.objective.advantage.pool = "own"  # a word is another program
  assert loss(lib.build(c.objective)) != two and len(traced) == 2


def test_a_function_of_ones_own_goes_into_a_slot():
  c = recipe("base")
  c.objective.advantage = dict(fn="grpojax.objective.advantage:center")
  objective = lib.build(c.objective)
  np.testing.assert_allclose(objective.advantage(group([1, 0])), advantage.center(group([1, 0])))


def test_a_plain_dict_builds_as_a_config_does():
  config = recipe("dapo").objective
  assert jax.tree.structure(lib.build(config)) == jax.tree.structure(lib.build(config.to_dict()))
  assert isinstance(config, ConfigDict)
