"""What a run says of its own settings: each sentence where it is true, and nowhere else."""

import pytest
from objective_toys import recipe

from grpojax import objective as lib
from grpojax.objective.notices import _TABLE

# A part of the sentence, what makes it true, and what else makes it untrue again.
SOFT = dict(fn="shaping:soft_overlong", max_tokens=48, cache=9)
CISPO, SAPO = ({"objective.surrogate": dict(fn=fn)} for fn in ("cispo", "sapo"))
DPPO = {"objective.surrogate": dict(fn="dppo_tv")}
TOKEN, SEQUENCE = ({"objective.ratio": dict(fn=fn)} for fn in ("token", "sequence"))
MEAN = {"objective.aggregate": dict(fn="token_mean")}
WHITEN = {"objective.rescale": dict(fn="whiten")}
REINFORCE = {"objective.surrogate": dict(fn="reinforce"), "updates_per_rollout": 1}
RLOO = REINFORCE | {"objective.advantage": dict(fn="leave_one_out")}
BYPASS = {"objective.shape.b": dict(fn="bypass")}
ICEPOP = {"objective.correct.i": dict(fn="icepop")}
FINISHED, MIXED = ({"objective.select.it": dict(fn=fn)} for fn in ("finished", "mixed_groups"))
CASES = [
  ("surrogate.w_max bounds", CISPO, SAPO),
  ("'token_mean' weighs", SEQUENCE | MEAN, TOKEN),
  ("'constant' divides", {"objective.aggregate": dict(fn="constant", budget=48)}, MEAN),
  ("'reinforce' is the paper's RLOO", RLOO, {"objective.advantage": dict(fn="center")}),
  ("'reinforce' corrects for no", REINFORCE | {"updates_per_rollout": 2},
   {"objective.veto.it": dict(fn="taper_failures")}),
  ("measures from log pi_old", DPPO | TOKEN, BYPASS),
  ("dppo_kl has bounds", {"objective.surrogate": dict(fn="dppo_kl")}, DPPO),
  ("m2po drops", {"objective.batch_veto.it": dict(fn="m2po")}, {"objective.batch_veto": {}}),
  ("normalises GDPO's",
   {"objective.advantage": dict(fn="gdpo"), "objective.rescale": dict(fn="batch_zscore")}, WHITEN),
  ("'whiten' counts", WHITEN, {"objective.rescale": dict(fn="identity")}),
  ("truncated_is bounds", {"objective.correct.i": dict(fn="truncated_is")}, ICEPOP),
  ("bypass takes", BYPASS | ICEPOP, {"objective.shape.b": dict(fn="finished_only")}),
  ("finished takes out", FINISHED | {"reward.soft": SOFT}, {"reward.soft": dict(fn="shaping:r1_format")}),
  ("mixed_groups only drops", MIXED, {"dynamic_sampling.enabled": True}),
  ("top_entropy takes", {"objective.select.it": dict(fn="top_entropy")}, FINISHED),
  ("kl_k3 has the value", {"objective.penalty.kl": dict(fn="kl_k3", beta=0.1)},
   {"objective.penalty.kl": dict(fn="kl_k3_plus", beta=0.1)}),
  ("kl_k1 has no gradient", {"objective.penalty.kl": dict(fn="kl_k1", beta=0.1)},
   {"objective.penalty.kl": dict(fn="kl_k1_corrected", beta=0.1)}),
  ("compares turns", {"objective.advantage": dict(fn="gigpo")}, {"env.name": "frozen_lake"}),
]  # fmt: skip


def said(changes: dict) -> list[str]:
  """What is said of the base config after `changes`."""
  c = recipe("base", "mini")
  c.unlock()
  for key, value in changes.items():
    *path, last = key.split(".")
    node = c
    for part in path:
      node = node[part]
    node[last] = value
  return lib.notices(c)


@pytest.mark.parametrize(("words", "true", "untrue"), CASES)
def test_a_sentence_is_said_where_it_is_true_and_only_there(words, true, untrue):
  about = lambda sentences: [s for s in sentences if words in s]
  assert len(about(said(true))) == 1
  assert not about(said(true | untrue))


def test_nothing_is_said_of_the_base_config_and_every_sentence_has_its_case():
  assert said({}) == []
  assert len(CASES) == len(_TABLE)


@pytest.mark.parametrize("sentence", [sentence for _, sentence in _TABLE])
def test_it_is_one_sentence_that_names_its_key(sentence):
  assert sentence.startswith("config.objective.") and sentence.endswith(".")
  assert ". " not in sentence and "\n" not in sentence


@pytest.mark.parametrize(
  ("name", "words"),
  [
    ("grpo", ["kl_k3 has"]),
    ("rloo", ["paper's RLOO"]),
    ("dapo", []),
    ("gspo", []),
    ("cispo", ["w_max"]),
    ("reinforce_pp", ["whiten"]),
    ("gigpo", ["kl_k3 has", "completion is one turn"]),
    ("essa", ["kl_k3 has", "completion is one turn"]),
    ("agent", ["constant", "completion is one turn"]),
    ("agent_high_entropy", ["constant", "completion is one turn"]),
    ("stack", ["constant", "completion is one turn"]),
    ("math_single_turn", ["constant"]),
    ("m2po", ["m2po drops"]),
    ("gdpo", ["normalises GDPO's"]),
    ("topr", []),
    ("dppo", []),
  ],
)
def test_what_a_recipe_says(name, words):
  sentences = lib.notices(recipe(name, "mini"))
  assert len(sentences) == len(words)
  assert all(any(word in s for s in sentences) for word in words)
