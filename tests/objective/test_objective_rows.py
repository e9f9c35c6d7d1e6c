"""One line worked by hand for every function of every slot.  A function without a line fails."""

import functools

import jax
import numpy as np
import pytest
from objective_toys import MENU, batch, group

from grpojax.objective import (
  advantage,
  aggregate,
  batch_veto,
  component,
  correct,
  penalty,
  preference,
  ratio,
  rescale,
  select,
  shape,
  stream,
  surrogate,
  veto,
)
from grpojax.objective.preference import Pair
from grpojax.types import ACTION, INJECTED, OBSERVATION, Batch, Turns

LN2 = float(np.log(2))
ONES = np.ones(3)
TAIL = [1.0, 1.0, 1.0, 0.0]  # the last token is masked
NO_EPS = 1 - 2**-0.5  # an eps that makes std 0.7071 a divisor of 1
LENGTHS = [[[1, 1, 1, 1], [1, 1, 0, 0]], [[1, 0, 0, 0], [0, 0, 0, 0]]]  # 4, 2 | 1, 0 tokens
ALL, THREE = np.ones((2, 2), bool), np.array([[True, True], [True, False]])
# Two right answers of entropy 0.4 and 0.2, a wrong one of 0.5.  With alpha 1 and 0.3:
# gains 1 + 0.3 · 4/3, 1 + 0.3 · 2/3, 0, of mean 0.86667 and deviation 0.61824; pains 0, 0, -1.3.
GTPO = [0.862662, 0.539164, -1.414214]
# A trajectory of two turns, the second of which pays, and one of a turn; the first anchors agree.
TURNS = Turns(
  index=np.array([[0, -1, 1], [0, 0, -1]]), count=np.array([2, 1]), reward=np.array([[0.0, 1], [0, 9]]),
  anchor=np.array([[7, 8], [7, 8]]), invalid=np.array([[False, True], [False, True]]),
)  # fmt: skip
TWO = group([1, 0], [[1, 0, 1], [1, 1, 0]], turns=TURNS)
BOTH = batch([[1, 0]], TWO.mask[None], turns=jax.tree.map(lambda x: x[None], TURNS))
RHO = np.log([[[2.0, 0.5], [4.0, 0.1]]])  # the last token is masked: Π ρ = 1, 4
MISMATCH = batch([[1, 0]], [[[1, 1], [1, 0]]], old_logp=RHO, sampler_logp=0 * RHO)
KL = batch([[1, 0]], old_logp=np.full((1, 2, 2), -np.log(3.0)), ref_logp=np.full((1, 2, 2), -LN2))
# Of the sampler 1/2 and 1/4, of the teacher 1/8 and 1.
TAUGHT = batch(
  [[1]], [[[1, 1]]], sampler_logp=[[[-LN2, -2 * LN2]]], old_logp=[[[-LN2, -LN2]]],
  teacher_logp=[[[-3 * LN2, 0]]], lag=[[[3, 0]]], kind=[[[ACTION, OBSERVATION]]],
)  # fmt: skip
PAIR = Pair(np.array([-1.0, -3]), np.array([-2.0, -2]), np.array([1, 2]))  # s = 1, -1
THETA = np.zeros((1, 2, 2))  # log π_θ: x = log 2, r = 3


def weights(*rows):
  """Row weights put on the tokens of LENGTHS."""
  return np.asarray(LENGTHS) * np.reshape(rows, (2, 2, 1))


ROWS = [
  (advantage.raw, [group([1, 0])], {}, [1, 0]),
  (advantage.none, [group([1, 0])], {}, [0, 0]),
  (advantage.center, [group([1, 0, 0, 1])], {}, [0.5, -0.5, -0.5, 0.5]),
  (advantage.zscore, [group([1, 0, 0, 0])], dict(eps=0.0), [1.5, -0.5, -0.5, -0.5]),
  (advantage.zscore, [group([1, 0, 0, 0])], dict(eps=0.5), [0.75, -0.25, -0.25, -0.25]),
  (advantage.zscore, [group([1, 0])], dict(eps=0.0, ddof=0), [1, -1]),
  (advantage.maxrl, [group([1, 0, 0, 0])], {}, [3, -1, -1, -1]),
  (advantage.maxrl, [group([3, 1])], dict(eps=2.0), [0.25, -0.25]),
  (advantage.maxrl, [group([0.5, -1.5])], {}, [0, 0]),
  (advantage.maxrl, [group([0, 0])], dict(all_wrong="minus_one"), [-1, -1]),
  (advantage.opo, [group([1, 0, 0], [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]])], {}, [0.5, -0.5, -0.5]),
  (
    advantage.gdpo,  # z of two values is +-0.7071; the second completion has no second reward
    [group([0, 0, 0], part=[[1.0, 4], [0, 9], [0, 0]], part_valid=[[1, 1], [1, 0], [1, 1]],
           part_weight=[[1, 3]] * 3)],
    dict(eps=0.0),
    [2 / 3**0.5 + 3 / 2**0.5, -1 / 3**0.5, -1 / 3**0.5 - 3 / 2**0.5],
  ),
  (advantage.leave_one_out, [group([3, 0, 0])], {}, [3, -1.5, -1.5]),
  (  # weights 4 · 1, 1 · 4, 1 · 0: b = (4 · 1 + 4 · 3) / 8
    advantage.optimal_baseline,
    [group([1, 3, 9], [[1, 1], [1, 0], [1, 1]], grad_norm=[1.0, 2, 0], sampler_logp=np.zeros((3, 2)),
           old_logp=[[LN2, 0], [0, 9], [0, 0]])],
    {},
    [-1, 1, 7],
  ),
  (advantage.leave_one_out_std, [group([1, 0, 0, 0])], dict(eps=0.0), [2, -2 / 3, -2 / 3, -2 / 3]),
  (advantage.leave_one_out_zscore, [group([2, 1, 0])], dict(eps=NO_EPS), [1.5, 0, -1.5]),
  (advantage.mixed_baseline, [group([1, 0], baseline=[0.25] * 2)], dict(mix=0.5), [0.625, -0.375]),
  (
    advantage.pooled,
    [group([1, 0], pool_mean=[0.25] * 2, pool_std=[0.5] * 2)],
    dict(eps=0.0),
    [1.5, -0.5],
  ),
  (
    advantage.return_to_go,  # rewards of row 1: -0.1 at its first token, 1 - 0.2 at its last
    [group([1, 2], [[1, 0, 1, 0], [1, 1, 0, 0]], old_logp=[[0.2, 9, 0.4, 9], [0] * 4],
           ref_logp=np.zeros((2, 4)))],
    dict(beta=0.5),
    [[0.7, 0.8, 0.8, 0], [2, 2, 0, 0]],
  ),
  (
    advantage.process_supervision,  # scores 1, 0, 0: z = 1.4142, -0.7071, -0.7071
    [group([0, 0], np.ones((2, 3)), step_score=[[1.0, 0], [0, 9]], step_end=[[0, 2], [1, -1]])],
    dict(eps=0.0, ddof=0),
    np.array([[1, -1, -1], [-1, -1, 0]]) * 0.5**0.5,
  ),
  (
    advantage.gtpo,
    [group([1, 1, 0], np.ones((3, 1)), entropy=[[0.4], [0.2], [0.5]])],
    dict(alpha2=0.3),
    np.reshape(GTPO, (3, 1)),
  ),
  (
    advantage.grpo_s,
    [group([1, 1, 0], [[1, 1], [1, 1], [1, 0]], entropy=[[0.2, 0.6], [0.1, 0.3], [0.5, 9]])],
    dict(beta2=0.3),
    GTPO,
  ),
  # Returns 0.5, 1 and 0, of mean 0.5; with a penalty 0.25, 0.5 and 0, of mean 0.25.
  (advantage.turn_return, [TWO], dict(gamma=0.5, baseline="none"), [[0.5, 0, 1], [0, 0, 0]]),
  (advantage.turn_return, [TWO], dict(gamma=0.5, std=False), [[0, 0, 0.5], [-0.5, -0.5, 0]]),
  (advantage.turn_return, [TWO], dict(gamma=0.5, eps=0.0), [[0, 0, 1], [-1, -1, 0]]),
  (
    advantage.turn_return,
    [TWO],
    dict(gamma=0.5, std=False, penalty=0.5),
    [[0, 0, 0.25], [-0.25, -0.25, 0]],
  ),
  # Trajectories +-0.5; the anchor 7 compares 0.5 with 0, the anchor 8 nothing.
  (advantage.gigpo, [TWO], dict(omega=2.0, gamma=0.5), [[1, 0, 0.5], [-1, -1, 0]]),
  (
    advantage.gigpo,
    [TWO],
    dict(omega=2.0, gamma=0.5, form="rows"),
    [[5 / 6, 0, 1 / 3], [-7 / 6, -7 / 6, 0]],
  ),
  (
    advantage.gigpo,
    [TWO],
    dict(omega=0.0, std=True, eps=0.0),
    np.array([[1, 0, 1], [-1, -1, 0]]) * 0.5**0.5,
  ),
  (advantage.gigpo, [group([1, 0])], dict(omega=2.0), [1.5, -1.5]),  # one turn each
  (
    advantage.hgpo,  # returns 1, 0 and 9, 8, the second less its penalty; both levels of a second turn agree
    [group([1, 0], turns=TURNS._replace(index=np.array([[0, 1]] * 2), count=np.array([2, 2])))],
    dict(gamma=1.0, std=False, penalty=1.0, eps=0.0),
    [[-4, -4], [4, 4]],
  ),
  (rescale.identity, [np.ones((1, 2)), batch([[1, 0]])], {}, [[1, 1]]),
  (
    rescale.whiten,  # samples 1, 1, 1, 0
    [np.array([[1.0, 0.0]]), batch([[1, 0]], [[[1, 1, 1], [1, 0, 0]]])],
    dict(eps=0.0),
    [[[0.5] * 3, [-1.5] * 3]],
  ),
  (rescale.batch_std, [np.array([[3.0, 1]]), batch([[1, 0]])], dict(eps=NO_EPS), [[3, 1]]),
  (rescale.rms, [np.array([[3.0, 1]]), batch([[1, 0]], moment=[[4.0, 4]])], dict(eps=0.5), [[1.2, 0.4]]),
  (
    rescale.rms,
    [np.array([[3.0], [0]]), batch([[1], [0]], moment=[[4.0], [np.nan]])],
    dict(eps=0.0),
    [[1.5], [0]],
  ),
  (
    rescale.rms,  # a moment a group, an advantage a token
    [np.full((2, 1, 2), 6.0), batch([[1], [0]], moment=[[4.0], [9]])],
    dict(eps=0.0),
    [[[3, 3]], [[2, 2]]],
  ),
  (rescale.gpg, [np.array([[0.5, -0.5], [0, 0]]), batch([[1, 0], [-1, -1]])], {}, [[2 / 3, -2 / 3], [0, 0]]),
  (rescale.opd, [np.ones((1, 1)), TAUGHT], dict(scale=0.5), [[[1 - LN2, 1 + LN2 / 2]]]),
  (
    rescale.opd,  # gaps of -2 and 2: half of their sizes is before the second
    [np.ones((1, 1, 2)), TAUGHT],
    dict(student="sampler", gamma=0.5),
    [[[1 - 3 * LN2, 1 + 2.5 * LN2]]],
  ),
  (
    rescale.batch_zscore,
    [np.array([[1.0], [0], [0], [0]]), batch([[1], [0], [0], [0]])],
    dict(eps=0.0),
    [[1.5], [-0.5], [-0.5], [-0.5]],
  ),
  (
    rescale.gtpo_over_batch,
    [
      np.zeros((3, 1)),
      batch([[1], [1], [0]], np.ones((3, 1, 1)), entropy=[[[0.4]], [[0.2]], [[0.5]]]),
    ],
    dict(alpha2=0.3),
    np.reshape(GTPO, (3, 1, 1)),
  ),
  (ratio.token, [[1, -1, 0.5], ONES, ONES], {}, [1, -1, 0.5]),
  (ratio.sequence, [[0.5, -0.2, 0.3, 9], TAIL, np.ones(4)], {}, [0.2] * 4),
  (ratio.sequence_token, [[0.5, -0.2, 0.3], ONES, ONES], {}, [0.2] * 3),
  (ratio.sequence_product, [[0.5, -0.2, 0.3, 9], TAIL, np.ones(4)], {}, [0.6] * 4),
  (ratio.arithmetic, [[LN2, 2 * LN2, 9], [1, 1, 0], ONES], {}, [np.log(3)] * 3),
  (ratio.geometric, [[1, -1, 0], ONES, ONES], dict(low=0.4, high=0.3), [-0.7 / 3] * 3),
  (ratio.geometric, [[1, -1, 0], ONES, -ONES], dict(low=0.4, high=0.3), [0.2] * 3),
  (surrogate.reinforce, [9.0, -2.0, 3.0], {}, -6),
  (surrogate.ppo_clip, [LN2, -2.0, 1.0], dict(low=0.1, high=0.3), 1.3),
  (surrogate.ppo_clip, [LN2, -2.0, -1.0], dict(low=0.1, high=0.3), -2),
  (surrogate.ppo_clip, [-LN2, -2.0, 1.0], dict(low=0.1, high=0.3), 0.5),
  (surrogate.ppo_clip, [-LN2, -2.0, -1.0], dict(low=0.1, high=0.3), -0.9),
  (surrogate.dual_clip, [2 * LN2, -2.0, -2.0], dict(floor=3.0), -6),
  (surrogate.dual_clip, [2 * LN2, -2.0, 2.0], dict(high=0.5, floor=3.0), 3),
  (surrogate.linear, [LN2, -2.0, 3.0], {}, 6),
  (surrogate.cispo, [LN2, -2.0, 3.0], dict(w_max=1.5), -9),
  (surrogate.cispo, [-LN2, -2.0, 3.0], dict(w_min=0.8), -4.8),
  (surrogate.sapo, [LN2, -2.0, 1.0], dict(tau_pos=np.log(3)), 3 / np.log(3)),  # sigmoid(ln 3) = 3/4
  (surrogate.sapo, [0.0, -2.0, -3.0], dict(tau_neg=4.0), -1.5),
  (surrogate.dppo_tv, [LN2, -LN2, 3.0], dict(high=0.3), 3 * 2 * -LN2),  # from 1/4 to 1/2, and up is wanted
  (surrogate.dppo_tv, [LN2, -LN2, 3.0], dict(high=0.2), 0),
  (surrogate.dppo_tv, [LN2, -LN2, -3.0], dict(low=0.2), 3 * 2 * LN2),  # down is: it may come back
  (surrogate.dppo_tv, [-LN2, -2 * LN2, -3.0], dict(low=0.2), 0),
  (surrogate.dppo_tv, [LN2, -LN2, 3.0], dict(high=0.3, w_max=1.5, form="grad"), 4.5),
  (surrogate.dppo_kl, [LN2, -LN2, 3.0], dict(high=0.14), 3 * 2 * -LN2),  # KL(1/4, 1/2) = 0.1308
  (surrogate.dppo_kl, [LN2, -LN2, 3.0], dict(high=0.13), 0),
  (surrogate.dppo_kl, [LN2, -LN2, -3.0], dict(low=0.13), 3 * 2 * LN2),
  (surrogate.dppo_kl, [-LN2, -2 * LN2, -3.0], dict(low=0.14, form="grad"), 0),  # KL(1/2, 1/4) = 0.1438
  (surrogate.tv_band, [LN2, -LN2, 3.0], dict(delta=0.3), 6),
  (surrogate.tv_band, [LN2, -LN2, -3.0], dict(delta=0.2), 0),
  (surrogate.vespo, [LN2, -1.5, 1.0], {}, -1.5 * 4 * np.exp(-3)),  # W = 2
  (surrogate.vespo, [-LN2, -1.5, -1.0], {}, 1.5 / 8 * np.exp(1)),
  (surrogate.ratio_band, [LN2, -2.0, 3.0], dict(high=2.5), 6),
  (surrogate.ratio_band, [LN2, -2.0, 3.0], dict(high=1.5), 0),
  (surrogate.ratio_band, [-LN2, -2.0, 3.0], dict(low=0.6), 0),
  (aggregate.token_mean, [batch(ALL, LENGTHS)], {}, weights(1 / 7, 1 / 7, 1 / 7, 0)),
  (aggregate.sequence_mean, [batch(ALL, LENGTHS)], {}, weights(1 / 12, 1 / 6, 1 / 3, 0)),
  (aggregate.sequence_mean, [batch(ALL, LENGTHS)], dict(rows="all"), weights(1 / 16, 1 / 8, 1 / 4, 0)),
  (aggregate.sequence_sum, [batch(ALL, LENGTHS)], {}, weights(1 / 3, 1 / 3, 1 / 3, 0)),
  (aggregate.sequence_sum, [batch(ALL, LENGTHS)], dict(rows="all"), weights(1 / 4, 1 / 4, 1 / 4, 0)),
  (aggregate.constant, [batch(ALL, LENGTHS)], dict(budget=5), weights(*[1 / 20] * 4)),
  (aggregate.constant, [batch(ALL, LENGTHS, valid=THREE)], dict(budget=5), weights(*[1 / 15] * 4)),
  (aggregate.prompt_mean, [batch(ALL, LENGTHS)], {}, weights(1 / 12, 1 / 12, 1 / 2, 1 / 2)),
  (
    aggregate.prompt_mean,
    [batch(ALL, np.multiply(LENGTHS, np.reshape([1, 0], (2, 1, 1))))],
    dict(prompts="all"),
    np.multiply(LENGTHS, np.reshape([1 / 12, 0], (2, 1, 1))),
  ),
  (aggregate.prompt_sum, [batch(ALL, LENGTHS)], {}, weights(1 / 6, 1 / 6, 1, 1)),
  (aggregate.turn_mean, [BOTH], {}, [[[1 / 3, 0, 1 / 3], [1 / 6, 1 / 6, 0]]]),
  (aggregate.turn_mean, [batch(ALL, LENGTHS)], {}, weights(1 / 12, 1 / 6, 1 / 3, 0)),
  (aggregate.trajectory_turn_mean, [BOTH], {}, [[[1 / 4, 0, 1 / 4], [1 / 4, 1 / 4, 0]]]),
  (shape.bypass, [MISMATCH], {}, dict(old_logp=0 * RHO)),
  (
    shape.kl_k1,
    [batch([[1, 0]], [[[1, 1], [1, 0]]], old_logp=RHO, ref_logp=0 * RHO)],
    dict(beta=0.5),
    dict(reward=[[1, -LN2]]),
  ),
  (shape.log_linear, [TAUGHT], {}, dict(prox_share=[[[2 / 3, 0]]])),
  (
    shape.finished_only,
    [batch([[1, 0]], ended=[[True, False]])],
    {},
    dict(valid=[[True, False]], reward=[[1, 0]]),
  ),
  (select.mixed_groups, [batch([[1, 1], [1, 0], [0, 0]])], {}, [[[0]], [[1]], [[0]]]),
  (
    select.mixed_groups,  # the wrong answer of the second group has no verdict
    [batch([[1, 0], [1, 0]], valid=[[True, True], [True, False]])],
    {},
    [[[1]], [[0]]],
  ),
  (select.finished, [batch([[1, 0]], ended=[[True, False]])], {}, [[[1], [0]]]),
  (
    select.top_entropy,
    [batch([[1, 0]], [[[1, 1, 0], [1, 1, 1]]], entropy=[[[1.0, 5, 9], [2, 3, 4]]])],
    dict(share=0.4),
    [[[0, 1, 0], [0, 0, 1]]],
  ),
  (
    select.top_entropy,  # the quantile is not a prompt's
    [batch([[1], [0]], np.ones((2, 1, 2)), entropy=[[[1.0, 2]], [[3, 4]]])],
    dict(share=0.5),
    [[[0, 0]], [[1, 1]]],
  ),
  (correct.truncated_is, [MISMATCH], dict(high=1.5), [[[1.5, 0.5], [1.5, 1]]]),
  (correct.sequence_truncated_is, [MISMATCH], dict(high=3.0), [[[1], [3]]]),
  (correct.icepop, [MISMATCH], dict(low=0.5, high=3.0), [[[2, 0.5], [0, 1]]]),
  (correct.icepop, [MISMATCH], dict(low=0.5, high=3.0, weighted=False), [[[1, 1], [0, 1]]]),
  (correct.sequence_mask, [MISMATCH], dict(stat="k1", reduce="sum", low=0.5, high=2.0), [[[1], [0]]]),
  (correct.sequence_mask, [MISMATCH], dict(stat="k1", low=2.0, high=5.0), [[[0], [1]]]),
  (correct.sequence_mask, [MISMATCH], dict(stat="k2", high=0.5), [[[1], [0]]]),  # 0.240, 0.961
  (correct.sequence_mask, [MISMATCH], dict(stat="k3", reduce="max", high=0.5), [[[1], [0]]]),  # 0.307, 1.614
  (correct.sequence_mask, [MISMATCH], dict(high=2.0), [[[1], [0]]]),  # 2, 4
  (correct.masked_is, [MISMATCH], dict(high=3.0), [[[1], [0]]]),
  (correct.masked_is, [MISMATCH], dict(low=2.0, high=5.0), [[[0], [4]]]),
  (correct.masked_is, [MISMATCH], dict(high=5.0, weighted=False), [[[1], [1]]]),
  (correct.geometric_rejection, [MISMATCH], dict(low=0.9, high=1.1), [[[1], [0]]]),
  (correct.geometric_rejection, [MISMATCH], dict(low=1.1, high=4.1), [[[0], [1]]]),
  (correct.sequence_masked_tis, [MISMATCH], dict(low=0.9, high=1.1), [[[2, 0.5], [0, 0]]]),
  (correct.worst_token, [MISMATCH], dict(low=0.6), [[[0], [1]]]),
  (correct.worst_token, [MISMATCH], dict(high=3.0), [[[1], [0]]]),
  (
    veto.stale_failures,  # mean of log μ - log π_θ: 5, 0.2, 0.05
    [
      np.zeros((1, 3, 2)),
      batch([[1, 0, 0]], [[[1, 1], [1, 1], [1, 0]]], sampler_logp=[[[9, 1], [0.3, 0.1], [0.05, 9]]],
            advantage=[[[1, 1], [-1, -1], [-1, -1]]]),
    ],
    dict(delta=0.1),
    [[[1, 1], [0, 0], [1, 1]]],
  ),
  (veto.worst_ratio, [RHO, MISMATCH], dict(low=0.6), [[[0], [1]]]),
  (
    veto.stale_failures,  # against π_old: 0 and 1
    [np.zeros((1, 2, 1)),
     batch([[0, 0]], np.ones((1, 2, 1)), old_logp=[[[0.0], [1]]], advantage=-np.ones((1, 2, 1)))],
    dict(delta=0.5, anchor="old"),
    [[[1], [0]]],
  ),
  (veto.taper_failures, [-RHO, MISMATCH._replace(sampler_logp=0 * RHO)], {}, [[[1], [0.25]]]),  # R = 1, 0
  (
    veto.taper_failures,
    [-RHO, MISMATCH._replace(advantage=np.array([[[-1.0, -1], [1, 1]]]))],
    dict(unit="token", sign="advantage"),
    [[[0.5, 1], [1, 1]]],
  ),
  (veto.proximal_is, [-RHO, MISMATCH], dict(low=0.5, high=3.0), [[[2, 0.5], [0, 1]]]),
  (
    batch_veto.m2po,  # log r = 0.1, 0.2, 0.3, A > 0: squares of mean 0.047, and 0.025 without the largest
    [np.array([[[0.1, 0.2], [0.3, -5]]]), batch([[1, 0]], old_logp=THETA, advantage=THETA + 1)],
    {},
    [[[1, 1], [0, 1]]],
  ),
  (
    batch_veto.m2po,  # of equal ones none stays, and nothing behind the mask counts
    [np.array([[[0.3, 0.3], [0.1, 9]]]),
     batch([[1, 0]], [[[1, 1], [1, 0]]], old_logp=THETA, advantage=THETA - 1)],
    dict(scope="all"),
    [[[0, 0], [1, 1]]],
  ),
  (penalty.kl_k1, [THETA, KL, None], {}, np.full((1, 2, 2), LN2)),
  (penalty.kl_k2, [THETA, KL, None], {}, np.full((1, 2, 2), LN2**2 / 2)),
  (penalty.kl_k3, [THETA, KL, None], {}, np.full((1, 2, 2), LN2 - 0.5)),
  (penalty.kl_k3_plus, [THETA, KL, None], {}, np.full((1, 2, 2), LN2 - 0.5)),
  (penalty.kl_k1_corrected, [THETA, KL, None], {}, np.full((1, 2, 2), 3 * LN2)),
  (penalty.kl_k3_corrected, [THETA, KL, None], {}, np.full((1, 2, 2), 3 * (LN2 - 0.5))),
  (penalty.log2_kl, [THETA, KL._replace(sampler_logp=KL.ref_logp), None], {}, np.full((1, 2, 2), LN2**2)),
  (penalty.log2_kl, [THETA, KL, None], dict(anchor="old"), np.full((1, 2, 2), np.log(3) ** 2)),
  (
    penalty.entropy_bonus,
    [THETA, KL._replace(weight=THETA + 0.5, token_mean_weight=THETA + 0.25), THETA + 2],
    {},
    np.full((1, 2, 2), -1.0),
  ),
  (component.ce, [-LN2 * np.ones((1, 1, 2)), TAUGHT], {}, [[[LN2, LN2]]]),
  (  # q = 1/4 and 2; the first fell by 3/8 and keeps its square
    component.ref_kl,
    [np.array([[[-3 * LN2, -LN2]]]), TAUGHT],
    dict(tau=0.5),
    [[[2 * LN2**2, -2 * LN2 + LN2**2 / 2]]],
  ),
  (component.ref_kl, [np.array([[[-2 * LN2, 0]]]), TAUGHT], dict(low=0.25, tau=0.0), [[[LN2 / 2, 0]]]),
  (component.gkd, [THETA, KL._replace(divergence=THETA + 3)], {}, np.full((1, 2, 2), 3.0)),
  (  # r = 1/2 and 2 of gaps -1 and 0; then 2 and 1/2 of -3 and 2
    component.opd,
    [np.array([[[-2 * LN2, 0]]]), TAUGHT],
    dict(low=0.25),
    [[[0.75 * LN2, 0]]],
  ),
  (component.opd, [np.array([[[0, -2 * LN2]]]), TAUGHT], {}, [[[6 * LN2, -LN2]]]),
  (preference.dpo, [PAIR], dict(beta=np.log(3) / 2), np.log(4 / 3)),  # sigmoid(ln 3) = 3/4
  (preference.dpo, [PAIR], dict(beta=np.log(3) / 2, smoothing=0.5), np.log(4 / 3) / 2 + np.log(4) / 2),
  (preference.ipo, [PAIR], dict(beta=0.5), 0.25),  # 1 + 1/2 - 1
  (preference.simpo, [PAIR], dict(beta=2.0, gamma=1.0 - np.log(3)), np.log(4 / 3)),  # -1 + 3/2
  (stream.actions, [TAUGHT], {}, [[[1, 1]]]),
  (stream.right, [MISMATCH], {}, [[[1, 1], [0, 0]]]),
  (stream.observations, [TAUGHT], {}, [[[0, 1]]]),
  (
    stream.observations,
    [TAUGHT._replace(extra=dict(kind=np.array([[[OBSERVATION, INJECTED]]])))],
    {},
    [[[1, 0]]],
  ),
]  # fmt: skip


@functools.cache
def results() -> list:
  """What the function of every row gives: one program, as each operation alone would compile as long."""
  args = [[np.asarray(x) if isinstance(x, list | float) else x for x in row[1]] for row in ROWS]
  rows = lambda args: [fn(*x, **knobs) for (fn, _, knobs, _), x in zip(ROWS, args, strict=True)]
  return jax.jit(rows)(args)


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[row[0].__name__ for row in ROWS])
def test_a_row_is_what_it_is_by_hand(number):
  result, expected = results()[number], ROWS[number][-1]
  pairs = [(result, expected)]
  if isinstance(result, Batch):
    pairs = [(getattr(result, name), value) for name, value in expected.items()]
  for got, want in pairs:
    assert np.shape(got) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_every_function_has_a_row():
  assert set(MENU.values()) == {fn for fn, *_ in ROWS}
