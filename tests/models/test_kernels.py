"""The accelerators' kernels read what the reference reads: Pallas interpreted, cuDNN's call on XLA."""

import dataclasses
from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo as cudnn_rules  # which nothing public tells
from ml_collections import ConfigDict

from grpojax import models
from grpojax.models import attention, kernels
from grpojax.runtime import sharding

B, S, N, K, H = 4, 256, 4, 2, 64
slow = pytest.mark.slow
SPEC = models.Spec(
  family="llama", vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=N,
  num_key_value_heads=K, head_dim=H, intermediate_size=16, rms_norm_eps=1e-6, tie_word_embeddings=True,
  ropes=(models.spec.Rope(1e4),), rope_of=(0, 0), windows=(0, 96),
)  # fmt: skip


def mesh(**sizes):
  return sharding.make_mesh(ConfigDict(dict.fromkeys((*sharding.AXES, "slices"), 1) | sizes))


def segments(columns: int = S):
  """Rows of one, two and more sequences, and one with left padding; none ends where a block does."""
  ends = np.array([[columns, columns, columns], [40, 41, columns], [100, 150, 200], [30, 30, 230]])
  return jnp.asarray((np.arange(columns)[None, None] >= ends[..., None]).sum(axis=1, dtype=np.int32))


def responses(columns: int = S):
  """Of every segment 17 columns are a prompt, behind which stand responses of 23 columns."""
  since = attention.positions(segments(columns)) - 17
  return jnp.where(since < 0, 0, 1 + since // 23)


@cache
def inputs():
  shape = lambda heads: (B, S, heads, H)
  keys = jax.random.split(jax.random.key(0), 4)
  return [jax.random.normal(k, shape(n)) for k, n in zip(keys, (N, K, K, N), strict=True)]


def outputs(view, window, cap: float):
  """What is read, and the gradients of q, k and v of a weighted sum of it."""
  *qkv, weights = inputs()

  def loss(qkv, window):
    read, _ = view.of(window, None)[0](*qkv, H**-0.5, cap)
    return (read * weights).sum(), read

  (_, read), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(qkv, window)
  return [np.asarray(x) for x in (read, *grads)]


@cache
def expected(window: int, cap: float, shared: bool):
  view = attention.sequence_view(segments(), jnp.ones((1, H // 2)), None, responses() if shared else None)
  return outputs(view, jnp.int32(window), cap)


CUT = dict(fsdp=2, tensor=2, context=2)  # rows are dealt out
COLUMNS = dict(data=4, context=2)


@pytest.mark.parametrize(
  ("backend", "sizes", "window", "cap", "shared"),
  [
    ("splash", {}, 96, 0.0, False),
    pytest.param("splash", dict(data=2, tensor=4), 2**30, 2.0, False, marks=slow),  # few kv heads
    pytest.param("splash", CUT, 96, 0.0, False, marks=slow),
    pytest.param("splash", COLUMNS, 96, 0.0, False, marks=slow),
    ("splash", {}, 2**30, 0.0, True),
    pytest.param("splash", dict(data=2, tensor=4), 96, 2.0, True, marks=slow),
    pytest.param("splash", CUT, 2**30, 0.0, True, marks=slow),
    pytest.param("splash", COLUMNS, 96, 0.0, True, marks=slow),
    pytest.param("cudnn", dict(data=2, context=4), 2**30, 0.0, False, marks=slow),
    pytest.param("cudnn", dict(tensor=2), 96, 0.0, False, marks=slow),
    pytest.param("cudnn", dict(data=2, context=2), 96, 0.0, True, marks=slow),
  ],
)
def test_a_kernel_reads_what_the_reference_reads(backend, sizes, window, cap, shared, monkeypatch):
  """Forward and backward: packed rows, shared prompts, one of two windows, grouped heads, caps, meshes."""
  monkeypatch.setattr(kernels, "cudnn", partial(kernels.cudnn, implementation="xla"))
  spec = dataclasses.replace(SPEC, attention_softcap=cap)
  rows = segments(), jnp.ones((1, H // 2)), responses() if shared else None
  view = kernels.view(backend, spec, mesh(**sizes), sharding.RULES, *rows)
  for got, want in zip(outputs(view, jnp.int32(window), cap), expected(window, cap, shared), strict=True):
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=slow)])
def test_halves_exchanged_by_a_product_are_the_same_numbers(dtype):
  x, ct = (inputs()[i].astype(dtype) for i in (0, 3))
  angle = jax.random.uniform(jax.random.key(2), (B, S, H // 2), maxval=100.0)
  rope = jnp.cos(angle), jnp.sin(angle)
  turned = [jax.vjp(partial(f, rope=rope), x) for f in (attention.rotate, attention.rotate_by_product)]
  for got, want in zip(*((out, back(ct)[0]) for out, back in turned), strict=True):
    np.testing.assert_array_equal(got, want)


@slow
@pytest.mark.parametrize("shared", [False, True])
def test_a_decoder_may_take_a_kernel_for_its_updates(shared):
  """70 columns in a block of 128; hidden states and all gradients are the reference's."""
  spec = dataclasses.replace(SPEC, num_attention_heads=2, num_key_value_heads=1, windows=(30, 30))
  tokens = jax.random.randint(jax.random.key(1), (B, 70), 0, 32)

  def loss(params, model):
    response = responses(70) if shared else None
    hidden, _ = model.bind(params).forward(tokens, segments(70), response=response)
    return (hidden * jnp.arange(16.0)[None, None]).sum(), hidden

  reference = models.from_spec(spec, mesh())._replace(remat="attention")
  params = reference.init(jax.random.key(0))
  run = lambda model: jax.jit(jax.value_and_grad(partial(loss, model=model), has_aux=True))(params)
  splash = reference._replace(attention="splash")
  kept = f"f32[2,{2 * B},128]" if shared else f"f32[2,{B},2,128]"  # normalisers
  for policy in "attention", "full":  # they are kept, or not
    of_policy = splash._replace(remat=policy)
    traced = jax.make_jaxpr(jax.grad(partial(loss, model=of_policy), has_aux=True))(params)
    assert (kept in str(traced)) == (policy == "attention")
  got, want = run(splash), run(reference)
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-4 * np.abs(y).max())


def on(platform: str):
  device = SimpleNamespace(platform=platform, device_kind=f"NVIDIA {platform}")
  return SimpleNamespace(devices=np.array([device]))


LONG = dataclasses.replace(SPEC, dtype="bfloat16", head_dim=128)
CAPPED = dataclasses.replace(LONG, attention_softcap=50.0)
ODD = dataclasses.replace(LONG, head_dim=36)


@pytest.mark.parametrize(
  ("wanted", "platform", "spec", "backend", "why"),
  [
    ("auto", "cpu", LONG, "reference", ""),
    ("auto", "tpu", CAPPED, "splash", ""),
    ("auto", "tpu", ODD, "splash", ""),
    ("auto", "gpu", ODD, "reference", "head_dim = 36"),
    ("auto", "gpu", LONG, "cudnn", ""),
    ("auto", "gpu", CAPPED, "reference", "caps attention scores"),
    ("auto", "gpu", SPEC, "reference", "config.model.dtype = 'float32'"),
    ("reference", "tpu", LONG, "reference", ""),
    ("splash", "cpu", LONG, None, "config.attention = 'splash' cannot serve: it needs a TPU"),
    ("cudnn", "gpu", ODD, None, "config.attention = 'cudnn' cannot serve: head_dim = 36"),
    ("cudnn", "gpu", CAPPED, None, "config.attention = 'cudnn' cannot serve: the model caps"),
    ("cudnn", "tpu", LONG, None, "config.attention = 'cudnn' cannot serve: it needs an NVIDIA GPU"),
  ],
)
def test_the_platform_and_the_model_choose_the_kernel(wanted, platform, spec, backend, why):
  if backend is None:
    with pytest.raises(ValueError, match=why):
      kernels.choose(wanted, spec, on(platform))
    return
  chosen, reason = kernels.choose(wanted, spec, on(platform))
  assert chosen == backend and why in reason and bool(why) == bool(reason)


def test_blocks_are_large_where_they_waste_little():
  assert kernels.block(22527) == 2048 and kernels.room("splash", 22527, 1) == 22528
  assert kernels.block(10239, shards=4) == 512 and kernels.room("splash", 10239, 4) == 10240
  assert kernels.block(70) == 128 and kernels.room("splash", 70, 1) == 128
  assert kernels.block(300) == 128 and kernels.room("splash", 300, 1) == 384  # 512 would waste a third
  assert kernels.room("reference", 71, 4) == 72
  assert [kernels.room("cudnn", 111, shards) for shards in (1, 2, 4)] == [112, 112, 112]
  assert kernels.room("cudnn", 112, 1) == 112 and kernels.room("cudnn", 114, 4) == 120


def test_cudnn_takes_the_columns_that_a_pass_has_room_for():
  check = partial(cudnn_rules.check_is_flash_attention, cudnn_version=91_000, has_bias=True, is_training=True)
  for columns in (111, 112):
    x = jnp.zeros((2, kernels.room("cudnn", columns, 1), 4, 64), jnp.bfloat16)
    check(x, x, x, cudnn_rules.AttentionLayout.BTNH.value)
  with pytest.raises(NotImplementedError, match="sequence length Q 111"):  # no device is needed to be refused
    check(*[jnp.zeros((2, 111, 4, 64), jnp.bfloat16)] * 3, cudnn_rules.AttentionLayout.BTNH.value)
