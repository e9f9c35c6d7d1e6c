"""The folders of tests/data/models and tests/data/scores; models are loaded once per test process."""

import functools
import shutil
from pathlib import Path

import data_toys
import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from grpojax import models
from grpojax.models import hf

FOLDERS = Path(__file__).parent / "data" / "models"
SCORES = FOLDERS.parent / "scores"
FAMILIES = sorted(path.name for path in FOLDERS.iterdir())


def mesh(**sizes):
  shape = {"data": 1, "fsdp": 1, "tensor": 1, "expert": 1} | sizes
  devices = np.array(jax.devices()[: np.prod(list(shape.values()))]).reshape(*shape.values())
  return Mesh(devices, tuple(shape), axis_types=(AxisType.Auto,) * len(shape))


@functools.cache
def loaded(family):
  """(model, parameters on one device, what transformers computed)."""
  model = models.from_spec(models.from_folder(FOLDERS / family))
  return model, hf.load(FOLDERS / family, model, mesh()), np.load(FOLDERS / family / "expected.npz")


def classifier(kind, to):
  """Writes the classifier of a "token" or a "sequence" to a folder, with the toys' tokenizer; returns it."""
  shutil.copytree(SCORES / kind, to)
  data_toys.tokenizer().save_pretrained(to)
  return to
