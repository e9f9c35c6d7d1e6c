"""ScaleRL: CISPO against the sampler, a mean per prompt, a moving deviation of the rewards.

    python -m grpojax.main --config=configs/scale_rl.py --workdir=runs/scale_rl --config.staleness=4
    ... --config.objective.aggregate.fn=token_mean              # leave one out
    ... --config.moment.kind=completion                         # the deviation as TRL moves it, in order

https://arxiv.org/abs/2510.13786; rate, eps and w_max as TRL's.  Groups without contrast are dropped and not
refilled; prompts with nine of ten completions right are drawn no more.  The paper's runs have 8 updates
between sampler and learner, a head in float32, and thinking that is cut after a number of tokens drawn from
10,240 to 12,288, with 2,048 more for the answer; config.interruption has one number.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "scale_rl"
  c.objective.advantage = dict(fn="center")
  c.objective.rescale = dict(fn="rms", eps=1e-4)
  c.moment.kind = "step"
  c.objective.surrogate = dict(fn="cispo", w_max=5.0, w_min=0.0)
  c.objective.aggregate = dict(fn="prompt_mean", prompts="nonempty")
  c.difficulty.update(kind="ema", rate=1.0, drop_solved=0.9)  # by the prompt's last completions
  c.model.head_dtype = "float32"
  c.objective.select.mixed_groups = dict(fn="mixed_groups")
  c.objective.shape.bypass = dict(fn="bypass")
  return c
