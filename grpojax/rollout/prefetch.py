"""Rollouts of the coming steps: which prompts are sampled when, by which policy, and what is in flight."""

import functools
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grpojax.rollout import adaptive_groups, dynamic_sampling, generate
from grpojax.rollout.context import RolloutContext, rows_of, take_prompts
from grpojax.rollout.curriculum import Outcomes
from grpojax.rollout.generate import PendingRollout
from grpojax.rollout.sampler.engine import ALL
from grpojax.types import ACTION, PADDING, Groups, Prompts


class Collected(NamedTuple):
  """A step's groups, and what is known of how they came about."""

  groups: Groups
  outcomes: Outcomes  # of all groups that all processes have drawn, kept or not, in order of drawing
  metrics: dict[str, float]
  params: dict  # trained parameters of the policy that sampled, whose log-probs are log π_old


class PolicyVersion(NamedTuple):
  """The policy after some training step, which samples."""

  params: dict  # trained parameters
  version: int  # training steps behind them
  own: Callable[[], dict]  # -> the sampler's copy, which is made once, when it is first asked for


class Prefetcher:
  """Gives each step's groups; with `depth` k > 0 the prompts of the next k steps are sampled meanwhile.

  A step's groups are then of the policy of k updates before; or, with config.rollout.in_flight, all that is
  sampled takes so many decode steps by each of the policies since, and the rest by the newest.  `frozen` are
  the parameters that no update changes.  `in_flight` is what `checkpoint` gave before a run was interrupted.
  """

  def __init__(self, context: RolloutContext, depth: int, frozen: dict, in_flight: Sequence = ()):
    self.context, self.depth, self.frozen = context, depth, frozen
    self.pieces = context.config.rollout.in_flight or ALL
    self.pending = deque()
    for params, plain in in_flight:  # as they were begun: each took up the policies of those behind it
      policy = self._policy(params, plain["version"])
      self._take_up(policy, self.pieces)
      self.pending.append(self._restored(policy, plain))

  def next(self, step: int, params: dict, weights: np.ndarray | None) -> Collected:
    """Collective: the groups of `step`.  `params` are the policy's after the step before.

    New prompts are drawn by `weights` [rows], None: by epochs.  Groups whose policy is more than `depth`
    updates old are dropped, counted, and sampled again by the policy of now.
    """
    if self.depth:  # the next updates are made in place, and these parameters go on sampling
      params = jax.tree.map(jnp.copy, params)
    policy, dropped = self._policy(params, step - 1), 0
    self._take_up(policy, ALL)
    while len(self.pending) <= self.depth:
      ahead = step + len(self.pending)
      steps = self.pieces if self.pending else ALL
      drawn = self.context.data.stream.next(weights)
      self.pending.append(self._start(ahead, policy, drawn, steps))
    pending = self.pending.popleft()
    if policy.version - pending.version > self.depth:
      dropped = self.context.shards.sum(len(pending.prompts.id))
      self._cancel(pending)
      pending = self._start(step, policy, pending.prompts)
    collected = _collect(self.context, StepSource(self.context, self.frozen, pending, weights))
    metrics = collected.metrics | ({"staleness/dropped_groups": dropped} if self.depth else {})
    return collected._replace(metrics=metrics)

  def checkpoint(self) -> tuple[tuple[dict, ...], list[dict]]:
    """Collective: (parameters of the policies that sample ahead, what they sample as plain data).

    Several processes wait for what was sent: a save compares their folders by all devices, behind it.
    """
    if jax.process_count() > 1:
      jax.block_until_ready([one.decode_state for one in self.pending])
    rows = (rows_of(self.context.data, one.prompts.id) for one in self.pending)
    rows = [self.context.shards.gather(own).tolist() for own in rows]
    plain = [
      dict(step=one.step, version=one.version, rows=own) for one, own in zip(self.pending, rows, strict=True)
    ]
    return tuple(one.params for one in self.pending), plain

  def close(self) -> None:
    """Ends the host's work on what is sampled ahead; a checkpoint that was made before has it."""
    for one in self.pending:
      self._cancel(one)

  def _cancel(self, pending: PendingRollout) -> None:
    if self.context.engine.cancel and pending.decode_state is not None:
      self.context.engine.cancel(pending.decode_state)

  def _policy(self, params: dict, version: int) -> PolicyVersion:
    own = functools.cache(partial(generate.synced, self.context, self.frozen, params))
    return PolicyVersion(params, version, own)

  def _restored(self, policy: PolicyVersion, plain: dict[str, Any]) -> PendingRollout:
    rows = self.context.shards.local(plain["rows"])
    return self._start(plain["step"], policy, take_prompts(self.context.data, rows), self.pieces)

  def _take_up(self, policy: PolicyVersion, first: int) -> None:
    """Lets all that is pending go on by a newer policy, the first so many steps, if it takes up any."""
    if self.pieces == ALL:
      return
    for i, one in enumerate(self.pending):
      if one.decode_state is not None and policy.version > one.newest:
        steps = self.pieces if i else first
        going = generate.go_on(self.context, policy.own(), one, policy.params, policy.version, steps)
        self.pending[i] = going

  def _start(self, step: int, policy: PolicyVersion, prompts: Prompts, steps: int = ALL) -> PendingRollout:
    """Starts to sample; beyond the last step nothing is, but a longer run knows what to sample."""
    params, version = policy.params, policy.version
    if step > self.context.config.steps:
      return PendingRollout(step, version, prompts, params, None, version, params)
    return generate.start(self.context, policy.own(), params, prompts, step, 0, version, steps)


class StepSource:
  """Draws, samples and scores the prompts of one step, of which the first batch is on its way."""

  def __init__(self, context: RolloutContext, frozen: dict, pending: PendingRollout, weights):
    self.context, self.frozen, self.pending, self.weights = context, frozen, pending, weights
    self.draws = 0

  def draw(self) -> Prompts:
    """Returns this process's shard of the next P prompts."""
    self.draws += 1
    return self.pending.prompts if self.draws == 1 else self.context.data.stream.next(self.weights)

  def generate(self, prompts: Prompts, number: int) -> Groups:
    """Collective: the scored groups of draw `number`."""
    one = self.pending
    if number:
      own = generate.synced(self.context, self.frozen, one.newest_params)
      one = generate.start(self.context, own, one.newest_params, prompts, one.step, number, one.newest)
    groups = generate.generate_and_score(self.context, one)
    if not self.context.config.rollout.in_flight:
      return groups
    since = groups.rollout.version
    since = np.zeros_like(groups.rollout.tokens) if since is None else since
    return groups._replace(rollout=groups.rollout._replace(version=one.version + since))


def _collect(context: RolloutContext, source: StepSource) -> Collected:
  """Collective: one step's groups, by the rule that the config chooses."""
  config, pending = context.config, source.pending
  if context.streams:
    stream, draws = generate.ScoredStream(context, pending), context.data.stream
    groups, outcomes, metrics = dynamic_sampling.collect_streaming(
      config.dynamic_sampling, stream, partial(draws.next, source.weights), draws.rewind
    )
  elif config.adaptive_group.stop:
    groups, outcomes, metrics = adaptive_groups.collect(
      config.adaptive_group, source.draw, source.generate, context.shards
    )
  else:
    groups, outcomes, metrics = dynamic_sampling.collect(
      config.dynamic_sampling, source.draw, source.generate, context.shards
    )
  if groups.prompts.example is None:  # the groups came from another process
    prompts = take_prompts(context.data, rows_of(context.data, groups.prompts.id))
    groups = groups._replace(prompts=prompts)
  return Collected(_labelled(groups, pending.version), outcomes, metrics, pending.newest_params)


def _labelled(groups: Groups, version: int) -> Groups:
  """Returns the groups with the kind of every response token and the version of the policy that chose it.

  `version` is of groups that one policy has sampled.
  """
  rollout, kind = groups.rollout, groups.rollout.kind
  if kind is None:
    response = np.arange(rollout.tokens.shape[-1]) < rollout.length[..., None]
    kind = np.where(response, np.int8(ACTION), np.int8(PADDING))
  if rollout.version is not None:
    version = rollout.version
  version = np.where(kind == ACTION, np.int32(version), np.int32(-1))
  return groups._replace(rollout=rollout._replace(kind=kind, version=version))
