"""The workload as a config of grpojax: `recipe.py:0.04` has a KL penalty.

`recipe.py:heavy` has 256 requests; `:static` has 64, in the plain sampler; `:32` samples so many sequences.
The flags --config.model.path and --config.data.path name the folder and the file that folder.py wrote.
"""

from benchmarks.peers import workload as w
from grpojax.recipes import base


def get_config(what: str = "0.0"):
  c = base.get_config("pocket" if w.REAL else "local")
  c.name, c.verbose, c.steps = "peers", False, 10**6
  c.model.dtype = "float32"
  c.data.update(template="none", chat=False, prompt_budget=w.PROMPT, held_out=w.HEAVY_PROMPTS)
  c.reward.accuracy = dict(fn="benchmarks.peers.recipe:even_share")
  prompts = {"heavy": w.HEAVY_PROMPTS} | {str(n): n // w.GROUP for n in w.SIZES}
  prompts = prompts.get(what, w.PROMPTS)
  slots = {"static": 0, "heavy": w.PROMPTS * w.GROUP}.get(what, prompts * w.GROUP)
  c.rollout.update(prompts=prompts, group_size=w.GROUP, max_tokens=w.NEW, slots=slots)
  c.rollout.prefill_chunk = 4 * w.PROMPT  # a device's prompts of one rollout
  c.mesh.cpu_devices = 1 if w.REAL else 2  # one a core; a large model's parameters would be there twice
  c.updates_per_rollout, c.microbatches = 1, 4  # a prompt of a device at a time: it stays in the caches
  c.logprob_chunk = 4 * w.NEW if w.REAL else w.NEW  # a chunk reads and writes the gradient of the whole head
  c.optimizer.update(
    learning_rate=w.LEARNING_RATE, warmup_steps=0, b1=w.B1, b2=w.B2, clip_norm=w.CLIP_NORM,
    state_dtype="float32",
  )  # fmt: skip
  if what == "0.04":
    c.reference = "init"
    c.objective.penalty.kl = dict(fn="kl_k3", beta=float(what))
  c.eval.update(every=10**6, prompts=prompts, samples=w.GROUP)  # one batch before training, as ever
  c.checkpoint.every = 10**6
  return c


def even_share(sample):
  return w.even_share(sample.text)
