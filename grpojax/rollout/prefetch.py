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
  sampled takes so many decode steps by each of the policies since, and the rest by the newest.  For a step to
  come as many batches of P prompts are sampled ahead as the newest step took, which are several under dynamic
  sampling; of those that wait in the middle, each with a cache of its own, only one.
  `frozen` are the parameters that no update changes.  `in_flight` is what `checkpoint` gave before a run was
  interrupted.
  """

  def __init__(self, context: RolloutContext, depth: int, frozen: dict, in_flight: Sequence = ()):
    self.context, self.depth, self.frozen = context, depth, frozen
    self.pieces = context.config.rollout.in_flight or ALL
    self.pending = deque()  # of each step to come, its batches in order of drawing
    self.batches = 1  # that the newest step took
    for params, plain in in_flight:  # as they were begun: each took up the policies of those behind it
      policy, self.batches = self._policy(params, plain["version"]), plain["batches"]
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
      drawn = [self.context.data.stream.next(weights) for _ in range(self.batches)]
      self.pending.append(self._start(ahead, policy, drawn, steps))
    begun = self.pending.popleft()
    if policy.version - begun[0].version > self.depth:
      dropped = self.context.shards.sum(sum(len(one.prompts.id) for one in begun))
      self._cancel(begun)
      begun = self._start(step, policy, [one.prompts for one in begun])
    collected = _collect(self.context, StepSource(self.context, self.frozen, begun, weights))
    if not self.depth:
      return collected
    if self.pieces == ALL:
      self.batches = int(collected.metrics.get("dynamic_sampling/tries", 1))
    return collected._replace(metrics=collected.metrics | {"staleness/dropped_groups": dropped})

  def checkpoint(self) -> tuple[tuple[dict, ...], list[dict]]:
    """Collective: (parameters of the policies that sample ahead, what they sample as plain data), by step.

    Several processes wait for what was sent: a save compares their folders by all devices, behind it.
    """
    if jax.process_count() > 1:
      jax.block_until_ready([one.decode_state for begun in self.pending for one in begun])
    return tuple(begun[0].params for begun in self.pending), [self._plain(begun) for begun in self.pending]

  def _plain(self, begun: list[PendingRollout]) -> dict[str, Any]:
    """Collective: a step's batches as plain data; one policy began them all."""
    data, gather = self.context.data, self.context.shards.gather
    rows = [gather(rows_of(data, one.prompts.id)).tolist() for one in begun]
    return dict(step=begun[0].step, version=begun[0].version, rows=rows, batches=self.batches)

  def close(self) -> None:
    """Ends the host's work on what is sampled ahead; a checkpoint that was made before has it."""
    for begun in self.pending:
      self._cancel(begun)

  def _cancel(self, begun: list[PendingRollout]) -> None:
    for one in begun:
      if self.context.engine.cancel and one.decode_state is not None:
        self.context.engine.cancel(one.decode_state)

  def _policy(self, params: dict, version: int) -> PolicyVersion:
    own = functools.cache(partial(generate.synced, self.context, self.frozen, params))
    return PolicyVersion(params, version, own)

  def _restored(self, policy: PolicyVersion, plain: dict[str, Any]) -> list[PendingRollout]:
    local, data = self.context.shards.local, self.context.data
    drawn = [take_prompts(data, local(rows)) for rows in plain["rows"]]
    return self._start(plain["step"], policy, drawn, self.pieces)

  def _take_up(self, policy: PolicyVersion, first: int) -> None:
    """Lets all that is pending go on by a newer policy, `first` steps of the first, if it takes up any."""
    if self.pieces == ALL:
      return
    for i, begun in enumerate(self.pending):
      steps = self.pieces if i else first
      self.pending[i] = [self._went_on(one, policy, steps) for one in begun]

  def _went_on(self, one: PendingRollout, policy: PolicyVersion, steps: int) -> PendingRollout:
    if one.decode_state is None or policy.version <= one.newest:
      return one
    return generate.go_on(self.context, policy.own(), one, policy.params, policy.version, steps)

  def _start(
    self, step: int, policy: PolicyVersion, drawn: list[Prompts], steps: int = ALL
  ) -> list[PendingRollout]:
    """Starts to sample a step's batches; beyond the last step none, but a longer run knows what to sample."""
    params, version = policy.params, policy.version
    if step > self.context.config.steps:
      return [PendingRollout(step, version, prompts, params, None, version, params) for prompts in drawn]
    return [
      generate.start(self.context, policy.own(), params, prompts, step, draw, version, steps)
      for draw, prompts in enumerate(drawn)
    ]


class StepSource:
  """Draws, samples and scores the prompts of one step, of which the batches `begun` are on their way."""

  def __init__(self, context: RolloutContext, frozen: dict, begun: list[PendingRollout], weights):
    self.context, self.frozen, self.begun, self.weights = context, frozen, begun, weights
    self.first = begun[0]  # whose policy samples all of the step

  def sample(self, number: int) -> list[Groups]:
    """Collective: the scored groups of the step's batch `number`; with the first come all that were begun."""
    if number:
      return [self.generate(self.context.data.stream.next(self.weights), number)]
    if len(self.begun) > 1:
      return generate.score_together(self.context, self.begun)
    return [self.generate(self.first.prompts, 0)]

  def generate(self, prompts: Prompts, number: int) -> Groups:
    """Collective: the scored groups of these prompts; `number` tells apart a prompt's samples in a step."""
    one = self.first
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
  config, first = context.config, source.first
  if context.streams:
    stream, draws = generate.ScoredStream(context, first), context.data.stream
    groups, outcomes, metrics = dynamic_sampling.collect_streaming(
      config.dynamic_sampling, stream, partial(draws.next, source.weights), draws.rewind
    )
  elif config.adaptive_group.stop:
    groups, outcomes, metrics = adaptive_groups.collect(
      config.adaptive_group, first.prompts, source.generate, context.shards
    )
  else:
    groups, outcomes, metrics = dynamic_sampling.collect(
      config.dynamic_sampling, source.sample, context.shards
    )
  if groups.prompts.example is None:  # the groups came from another process
    prompts = take_prompts(context.data, rows_of(context.data, groups.prompts.id))
    groups = groups._replace(prompts=prompts)
  return Collected(_labelled(groups, first.version), outcomes, metrics, first.newest_params)


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
