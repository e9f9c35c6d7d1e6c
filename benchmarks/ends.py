"""Programs of a run with end-of-response ids that the benchmark sets, not the tokenizer."""

from unittest import mock

from grpojax.train import policy
from grpojax.train import programs as programs_lib


def programs(config, model, tokenizer, mesh, ids: tuple[int, ...]) -> programs_lib.Programs:
  """Builds programs; an id outside the vocabulary lets no response end, which a real run refuses."""
  with mock.patch.object(policy, "eos_ids", return_value=ids):
    return programs_lib.build(config, model, tokenizer, mesh)
