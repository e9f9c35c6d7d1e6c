"""Checks config.env: there is such an environment, and the rest of the run is one for trajectories."""

from ml_collections import ConfigDict

from grpojax.rollout.envs import build

TASKS = "grpojax.rollout.envs.rows:Tasks"
# Key, what it has to be, and why it can be nothing else where environments answer.
_REFUSED = (
  ("rollout.in_flight", 0, "takes up newer policies in the middle of single turns"),
  ("adaptive_group.stop", "", "joins groups that were sampled apart, whose anchors have other numbers"),
  ("process.scorer", "", "scores the steps of one completion, and turns have rewards of their own"),
  ("routing_replay", "R3", "replays what the sampler of single turns records; 'R2' has pi_old's choice"),
  ("rollout.top_k", 0, "records what it kept, which the sampler of turns does not"),
  ("interruption.think_tokens", 0, "cuts the thinking of a completion; config.env.action_tokens is a turn's"),
  ("difficulty.kind", "beta", "compares a prompt's last completions; set 'ema'"),
  ("rollout.kv_cache", "int8", "is of the sampler of single turns"),
)


def check(c: ConfigDict) -> None:
  """Raises ValueError for an environment that cannot be made, or a run that trajectories are not for."""
  if not c.env.name:
    return
  try:
    build.check(c.env.name, c.env.knobs.to_dict(), c.env.timeout)
  except ValueError as error:
    raise ValueError(f"config.env: {error}") from None
  for key, word, why in _REFUSED:
    value = _get(c, key)
    if value == word if isinstance(word, str) and word else value != word:
      raise ValueError(f"config.{key} = {value!r} {why}; change it, or set config.env.name = ''.")
  if c.reward:
    raise ValueError(
      f"config.reward.{next(iter(c.reward))} grades completions, and config.env.name = '{c.env.name}' brings "
      "its own rewards; set config.reward = ConfigDict() in the recipe, or config.env.name = ''."
    )
  _same_tasks(c)
  if not c.data.chat:
    raise ValueError(
      "config.data.chat = False has no turns, which environments need; set config.data.chat = True."
    )
  for key in "rollout", "eval":
    if c[key].max_tokens < c.env.action_tokens:
      raise ValueError(
        f"config.{key}.max_tokens = {c[key].max_tokens}, the budget of a trajectory, is less than one "
        f"action's, config.env.action_tokens = {c.env.action_tokens}; raise it."
      )


def _same_tasks(c: ConfigDict) -> None:
  """Raises ValueError where the prompts show the tasks of another environment than the one that is played."""
  data = c.data.to_dict()
  shown = data.get("environment", "frozen_lake"), data.get("knobs", {})  # the dataset's defaults
  if data["task"] == TASKS and shown != (c.env.name, c.env.knobs.to_dict()):
    raise ValueError(
      f"config.data.environment = {shown[0]!r} with config.data.knobs = {shown[1]} has other tasks than "
      f"config.env.name = {c.env.name!r} with config.env.knobs = {c.env.knobs.to_dict()} plays; set both "
      "alike."
    )


def _get(c: ConfigDict, key: str):
  for part in key.split("."):
    c = c[part]
  return c
