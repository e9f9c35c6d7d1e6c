"""GSPO: one ratio per completion, so clipping drops whole completions.  https://arxiv.org/abs/2507.18071

    python -m grpojax.main --config=configs/gspo.py --workdir=runs/gspo
    ... --config.updates_per_rollout=4               # the paper's
    ... --config=configs/gspo.py:paper               # Qwen3-30B-A3B, as the paper's, on 32 chips of v5p

The clip range is the paper's.  It is narrow on purpose: a mean log-ratio moves little.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "gspo"
  c.objective.ratio = dict(fn="sequence")
  c.objective.surrogate = dict(fn="ppo_clip", low=3e-4, high=4e-4)
  c.objective.aggregate = dict(fn="sequence_mean")
  if arg == "paper":
    c.model.path = "Qwen3-30B-A3B"
    c.rollout.update(prompts=256, max_tokens=16384, slots=256)
    c.updates_per_rollout = 4
    c.microbatches = 16  # two rows at a time on each of 32 shards
    c.mesh.update(fsdp=-1, context=1)  # compute hides gathers of experts, not sent tokens: docs/pods.md
    c.mesh.sampler.update(tensor=1, expert=8)
  return c
