"""What the compilers are told, and what they then do: compile what they abort at, hide what would wait."""

import json
from types import SimpleNamespace

import numpy as np
import podcheck_toys
import pytest
import subprocesses
from model_folders import mesh

from grpojax.runtime import compiler_options


def test_only_several_devices_of_a_cpu_are_told_something():
  assert compiler_options.options(mesh()) is None
  assert compiler_options.options(mesh(data=2), decoding=True) == {
    "xla_disable_hlo_passes": "all-reduce-promotion"
  }


@pytest.mark.parametrize(
  ("kind", "has"),
  [
    ("TPU v5 lite", False),
    ("TPU v5e", False),
    ("TPU v5", True),
    ("TPU v6 lite", True),
    ("TPU7x", True),
    ("TPU of a later kind, 7x", False),
  ],
)
def test_collectives_of_updates_are_carried_out_by_sparse_cores_where_a_chip_has_some(kind, has):
  tpu = SimpleNamespace(devices=np.array([SimpleNamespace(platform="tpu", device_kind=kind)]), size=1)
  of = lambda **how: any("sparse_core" in name for name in compiler_options.options(tpu, **how))
  assert of() == has and not of(decoding=True)


GATHERED = """
import json
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from grpojax.recipes import base
from grpojax.runtime import compiler_options, sharding
from grpojax.tools.podcheck import compiled, topology
from grpojax.tools.podcheck.programs import Program

where = topology.find("v5p:4x4x4")
config = base.get_config("tiny")
config.mesh.update(fsdp=16, context=4)
mesh = sharding.make_mesh(config.mesh, where.devices)

@jax.grad
def gradient(layers, x):
  y, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w[0]) @ w[1], None), x, layers)
  return jnp.square(y.astype(jnp.float32)).sum()

def gathered(embed):
  array = lambda spec, *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))
  layers = array(P(None, embed), 4, 2048, 8192), array(P(None, None, embed), 4, 8192, 2048)
  x = array(P(("fsdp", "context")), 64 * 1024, 2048)
  kept = tuple(w.sharding for w in layers)
  call = jax.jit(gradient, out_shardings=kept, compiler_options=compiler_options.options(mesh))
  program = Program(call, (layers, x), call.lower(layers, x), {}, 1, dict(mesh.shape))
  rows = compiled.compile_for(where, program).counts.rows
  return [(r.collective.kind, r.collective.hidden) for r in rows if r.collective]

print(json.dumps([gathered("fsdp"), gathered(("fsdp", "context"))]))
"""


@pytest.mark.slow
@podcheck_toys.needs_libtpu
def test_gathers_and_sums_of_gradients_along_two_and_three_axes_of_a_torus_begin_and_end_apart():
  done = podcheck_toys.python("-c", GATHERED)
  assert not done.returncode, done.stderr
  two, three = json.loads(done.stdout)
  assert [kind for kind, hidden in two + three if not hidden] == []
  assert {kind for kind, _ in two} == {"all-gather", "reduce-scatter", "all-reduce"}  # the last: of `context`
  assert {kind for kind, _ in three} == {"all-gather", "reduce-scatter"}


@pytest.mark.slow
def test_bfloat16_trains_on_two_devices_of_a_cpu(tmp_path):
  """Cold start, log-probs and update each sum bfloat16 over the devices; one abort would be the end."""
  flags = ["steps=1", "cold_start.steps=1", "model.dtype=bfloat16", "mesh.cpu_devices=2", "eval.every=9"]
  flags = [f"--config.{flag}" for flag in (*flags, "verbose=False", f"cache_dir={tmp_path}")]
  done = subprocesses.run_one("grpojax.main", "--config=grpo:tiny", f"--workdir={tmp_path / 'run'}", *flags)
  assert done.code == 0, done.err
  assert "step 1/1" in done.out and "on 2 of 2 cpu" in done.out
