"""Bugs of newer objectives, planted one at a time into a function's own text: the stored cases see each.

Most are what some code of the field does, or did: a mask that forbids coming back, a missing stop_gradient, a
ratio where the paper has a difference of probabilities, a sum for a mean.
"""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import test_objective_cases_2026 as slots
import test_objective_cases_terms as terms
from objective_cases_2026 import LOSSES
from objective_cases_terms import BY_LOGP, DIVERGENCES, KEPT

from grpojax.objective import (
  advantage,
  aggregate,
  batch_veto,
  component,
  penalty,
  preference,
  rescale,
  surrogate,
  veto,
  vocabulary,
)

SG = "jax.lax.stop_gradient("
PLANTED = [  # module, function, its text, the bug; variants of the cases
  (advantage, "maxrl", "jnp.where(mean > 0, mean + eps, 1.0)", "(_std(group, 1) + 1e-6)", "maxrl"),
  (advantage, "maxrl", "nothing, -1.0", "nothing, 1.0", "maxrl"),
  (advantage, "opo", "length * group.reward", "group.reward", "opo"),
  (advantage, "opo", "group.mask.sum(-1)", "group.mask.max(-1)", "opo"),
  (advantage, "gdpo", "weight * relative", "relative", "gdpo"),
  (advantage, "gdpo", "(known > 0) &", "(known > -1) &", "gdpo"),
  (advantage, "gdpo", ".sum(-1)", ".mean(-1)", "gdpo"),
  (rescale, "gpg", "advantage * (batch", "advantage / (batch", "gpg"),
  (rescale, "rms", "jnp.sqrt(jnp.where(known", "(jnp.where(known", "scalerl_norm"),
  (rescale, "rms", "advantage / (", "advantage * (", "scalerl_norm"),
  (rescale, "opd", 'field(batch, "teacher_logp") - old', 'old - field(batch, "teacher_logp")', "opd"),
  (rescale, "opd", "(1 - before)", "before", "opd"),
  (surrogate, "dppo_tv", "jnp.exp(logp) - jnp.exp(logp - log_ratio)", "jnp.exp(log_ratio) - 1", "dppo_tv"),
  (
    surrogate, "dppo_tv", "jnp.where(advantage > 0, moved <= high, moved >= -low)", "jnp.abs(moved) <= high",
    "dppo_tv",
  ),
  (surrogate, "dppo_kl", "(kl <= high) | (log_ratio <= 0)", "kl <= high", "dppo_kl"),
  (surrogate, "dppo_kl", "jnp.exp(old) * log_ratio", "jnp.exp(logp) * log_ratio", "dppo_kl"),
  (surrogate, "_weighted", "jnp.minimum(jnp.exp(log_ratio), w_max)", "jnp.exp(log_ratio)", "dppo_tv"),
  (surrogate, "_weighted", SG + "jnp.where(inside", "(jnp.where(inside", "dppo_tv"),
  (surrogate, "_weighted", "log_ratio - jax.lax.stop_gradient(log_ratio)", "log_ratio", "prime_default"),
  (surrogate, "tv_band", "jnp.abs(jnp", "(jnp", "prime_ipo"),
  (surrogate, "cispo", SG + "jnp", "(jnp", "reinforce_is"),
  (surrogate, "vespo", "decay * (1 - jnp.exp(log_w))", "-decay * jnp.exp(log_w)", "vespo"),
  (surrogate, "vespo", SG + "weight)", "weight", "vespo"),
  (surrogate, "vespo", "advantage >= 0", "advantage < 0", "vespo"),
  (batch_veto, "m2po", "log_ratio**2", "jnp.abs(log_ratio)", "m2po"),
  (batch_veto, "m2po", "jnp.sign(batch.advantage) > 0", "jnp.sign(batch.advantage) < 0", "m2po"),
  (veto, "stale_failures", "batch.advantage >= 0", "batch.advantage < 0", "opsm"),
  (veto, "stale_failures", "old - logp", "logp - old", "opsm"),
  (veto, "stale_failures", "stats.mean(", "stats.total(", "opsm"),
  (veto, "taper_failures", "jnp.minimum(stats.exp(log_ratio), 1.0)", "stats.exp(log_ratio)", "topr"),
  (veto, "taper_failures", "log_ratio.sum(", "log_ratio.mean(", "topr"),
  (penalty, "log2_kl", ") ** 2", ") ** 2 / 2", "log2_kl"),
  (penalty, "log2_kl", ") ** 2", ") ** 2 / 2", "dro"),
  (aggregate, "prompt_sum", "sum((1, 2), keepdims=True)", "sum(-1, keepdims=True)", "scalerl_norm"),
  (component, "ce", "-logp", "logp", "ce"),
  (component, "ref_kl", SG + "field", "(field", "ref_kl"),
  (component, "ref_kl", ">= -low", "<= low", "ref_kl"),
  (component, "opd", SG + "field", "(field", "opd"),
  (preference, "dpo", "beta * (chosen - rejected)", "beta * chosen - rejected", "dpo"),
  (preference, "dpo", "beta * (chosen - rejected)", "beta * (rejected - chosen)", "spin"),
  (preference, "_against_reference", "pair.policy - pair.reference", "pair.policy", "dpo"),
  (preference, "ipo", "1 / (2 * beta)", "1 / beta", "ipo"),
  (preference, "ipo", "/ jnp.maximum(pair.length, 1)", "", "ipo"),
  (preference, "simpo", "- gamma", "+ gamma", "simpo"),
  (vocabulary, "kept_logprobs", "logits / temperature", "logits", "kept_set"),
  (vocabulary, "kept_logprobs", "kept | ~kept", "kept | kept", "kept_set"),
  (vocabulary, "forward_kl", "jnp.exp(log_t)", "jnp.exp(log_s)", "distillation"),
  (vocabulary, "reverse_kl", "jnp.exp(log_s)", "jnp.exp(log_t)", "distillation"),
  (vocabulary, "jsd", "beta * of(log_t) + (1 - beta) *", "0.5 * of(log_t) + 0.5 *", "distillation"),
]  # fmt: skip


def checks(variant: str) -> Iterator[Callable]:
  """Yields the tests of a variant's stored cases, in float64."""
  for cases, test in (
    (LOSSES, slots.test_a_case_holds_in_float64),
    (BY_LOGP, terms.test_a_case_holds_in_float64),
    (KEPT, terms.test_a_case_of_kept_sets_holds),
    (DIVERGENCES, terms.test_a_case_of_distillation_over_the_vocabulary_holds),
  ):
    for name, case in cases.items():
      if case["variant"] == variant:
        yield partial(test, name)


def forget() -> None:
  """Forgets the programs that were traced: each has the functions of its time."""
  for program in slots.run, terms.run, terms.by_kept:
    program.clear_cache()


def plant(monkeypatch, module, name: str, text: str, bug: str) -> None:
  """Puts the function with another text into its module."""
  source = textwrap.dedent(inspect.getsource(getattr(module, name)))
  head, doc, body = source.partition(getattr(module, name).__doc__)
  assert text in body, f"{name} has no {text}"
  scope = dict(vars(module))
  exec(compile(head + doc + body.replace(text, bug), module.__file__, "exec"), scope)
  scope[name].__module__ = module.__name__
  monkeypatch.setattr(module, name, scope[name])
  forget()


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name", "text", "bug", "variant"), PLANTED)
def test_a_planted_bug_is_caught(module, name, text, bug, variant, monkeypatch, request):
  request.addfinalizer(forget)
  plant(monkeypatch, module, name, text, bug)
  tried = list(checks(variant))
  assert tried
  for check in tried:
    try:
      check()
    except AssertionError:
      return
  pytest.fail(f"all {len(tried)} cases of {variant} hold with {bug!r} for {text!r} in {name}")


def test_every_function_of_the_newer_family_has_one():
  known = {name for _, name, *_ in PLANTED}
  policy = "maxrl opo gdpo gpg rms dppo_tv dppo_kl tv_band vespo m2po stale_failures taper_failures log2_kl"
  others = "prompt_sum ce ref_kl opd dpo ipo simpo kept_logprobs forward_kl reverse_kl jsd"
  assert known == set(policy.split()) | set(others.split()) | {"cispo", "_weighted", "_against_reference"}
