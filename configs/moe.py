"""Mixture of experts: GSPO, whose mean ratio bears experts that route differently.

    python -m grpojax.main --config=configs/moe.py --workdir=runs/moe
    ... --config.routing_replay=R2 --config.load_balance=0  # pi_old's choice of experts
    ... --config.routing_replay=R3 --config.load_balance=0  # the sampler's
    ... --config.mesh.expert=4
    ... --config.objective.correct="{'band': {'fn': 'geometric_rejection', 'renormalize': True}}"

https://arxiv.org/abs/2507.18071 section 5.3.  At scale `local` the model is that of the folder.
"""

from ml_collections import ConfigDict

from grpojax.recipes import gspo


def get_config(arg: str = "mini") -> ConfigDict:
  c = gspo.get_config(arg)
  c.name = "moe"
  c.load_balance = 1e-3  # Qwen3-MoE's router_aux_loss_coef
  if "path" not in c.model:
    c.model.num_experts = 4
  return c
