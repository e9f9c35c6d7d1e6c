"""The programs of a run, where a benchmark decides what ends a response, not the tokenizer."""

from unittest import mock

from grpojax.train import setup


def programs(config, model, tokenizer, mesh, ids: tuple[int, ...]) -> setup.Programs:
  """An id outside the vocabulary lets no response end, which a real run refuses."""
  with mock.patch.object(setup, "eos_ids", return_value=ids):
    return setup.build_programs(config, model, tokenizer, mesh)
