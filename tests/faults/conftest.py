"""The finished run that the tests of this folder damage copies of."""

import shutil

import pytest
import toy_run

from grpojax import train


@pytest.fixture(scope="session")
def finished(cache, tmp_path_factory):
  """A run's folder, with checkpoints after steps 2 and 4; and its job."""
  workdir = tmp_path_factory.mktemp("run")
  job = train.prepare(toy_run.config(cache), workdir)
  train.run(job)
  return workdir, job


@pytest.fixture
def run(finished, tmp_path):
  copy = tmp_path / "run"
  shutil.copytree(finished[0], copy)
  return copy, finished[1]
