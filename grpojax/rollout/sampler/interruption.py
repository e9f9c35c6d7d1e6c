"""Forced interruption: at a budget of tokens the thinking is cut, and a text is put behind it.

The policy reads that text as any other and goes on with its answer, for which it has what is left of the
response's budget.  Who has closed its thinking by then, or has ended, is let be.  The tokens are INJECTED:
they count in lengths, and nothing is trained on them.  ScaleRL, https://arxiv.org/abs/2510.13786.

Which tokens are injected follows from the tokens in front of them, so that no sampler keeps a state for it.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from grpojax.data import text
from grpojax.types import ACTION, INJECTED, PADDING, Rollout


class Interruption(NamedTuple):
  """Budget of thinking, and the text that is injected behind it.  Static: another one is another program."""

  think_tokens: int  # of a response, before it is interrupted
  tokens: tuple[int, ...]  # that are injected
  closing: tuple[int, ...]  # in a response that has closed its thinking; (): none closes it


def build(config: ConfigDict, tokenizer, eos_ids: tuple[int, ...]) -> Interruption | None:
  """Returns what `config.interruption` asks for, None if that is nothing.

  Raises ValueError where no token is left for an answer, and for a text that would end the response.
  """
  c = config.interruption
  if not c.think_tokens:
    return None
  found = Interruption(c.think_tokens, *(text.encode(tokenizer, words) for words in (c.text, c.unless)))
  if not found.tokens or set(found.tokens) & set(eos_ids):
    raise ValueError(
      f"config.interruption.text = {c.text!r} is empty or has a token that ends a response, behind which no "
      "answer could follow; set a text without it, or config.interruption.think_tokens = 0."
    )
  spent = c.think_tokens + len(found.tokens)
  if spent >= config.rollout.max_tokens:
    raise ValueError(
      f"config.interruption.think_tokens = {c.think_tokens} and the {len(found.tokens)} tokens of its text "
      f"leave none of config.rollout.max_tokens = {config.rollout.max_tokens} for an answer; raise that to "
      f"more than {spent}."
    )
  return found


def force(c: Interruption | None, written, count, token, logp, entropy):
  """Returns (token, logp, entropy) [N] for position `count` [N] or [] of responses: sampled, or injected.

  `written` [N, T] has the tokens in front of it.  Log-prob and entropy of what is injected are 0.
  """
  if c is None:
    return token, logp, entropy
  at = count - c.think_tokens
  inject = (at >= 0) & (at < len(c.tokens)) & ~_closed(c, written)
  theirs = jnp.asarray(c.tokens, jnp.int32)[jnp.clip(at, 0, len(c.tokens) - 1)]
  return jnp.where(inject, theirs, token), *(jnp.where(inject, 0.0, x) for x in (logp, entropy))


def label(c: Interruption, rollout: Rollout) -> Rollout:
  """Returns the rollout with `kind`; of what is injected no set of tokens was kept."""
  column = np.arange(rollout.tokens.shape[-1])[None, None]
  inside = (column >= c.think_tokens) & (column < c.think_tokens + len(c.tokens))
  injected = inside & ~_closed(c, rollout.tokens)[..., None]
  kind = np.where(injected, np.int8(INJECTED), np.int8(ACTION))
  kind = np.where(column < rollout.length[..., None], kind, np.int8(PADDING))
  kept = rollout.kept
  if kept is not None:
    kept = np.where((kind == INJECTED)[..., None], np.int32(-1), kept)
  return rollout._replace(kind=kind, kept=kept)


def _closed(c: Interruption, tokens):
  """Returns [...] bool: the closing tokens stand among the first `think_tokens` of tokens [..., T]."""
  places = c.think_tokens - len(c.closing) + 1
  if not c.closing or places < 1:
    return tokens[..., 0] != tokens[..., 0]
  found = True
  for i, token in enumerate(c.closing):
    found = (tokens[..., i : i + places] == token) & found
  return found.any(-1)
