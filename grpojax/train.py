"""One step: ask, answer, grade, compare, learn.  The map of the program; nobody imports it but main.

    data -> sampler -> rewards -> objective -> learner -> checkpoint, evaluate, report
"""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import checkpoint, console, evaluate, metrics, report, rewards, setup, sft, sharding
from grpojax import config as config_lib
from grpojax import objective as objective_lib
from grpojax.batch import Batch, Scored
from grpojax.data import pipeline, text
from grpojax.interrupt import Interrupt
from grpojax.learner import State
from grpojax.models import Model
from grpojax.objective import Objective
from grpojax.rollouts import Groups, collect, describe


class Job(NamedTuple):
  """A run that is ready to start: its config is legal, its data is read, nothing is compiled."""

  config: ConfigDict
  workdir: Path
  scorer: rewards.Rewards
  data: setup.Data
  mesh: Mesh
  model: Model
  objective: Objective
  programs: setup.Programs


def prepare(config: ConfigDict, workdir: Path) -> Job:
  """Everything that can be wrong with a config is found here.  Raises ValueError."""
  config_lib.check(config, jax.device_count())
  scorer = rewards.build(config.reward)
  objective = objective_lib.build(config.objective)
  data = setup.load_data(config, scorer.needs)
  checkpoint.claim_workdir(workdir, config)
  mesh = sharding.make_mesh(config.mesh)
  objective = jax.device_put(objective, sharding.replicated(mesh))  # numbers are arguments
  model = setup.build_model(config, data.tokenizer)
  programs = setup.build_programs(config, model, data.tokenizer, mesh)
  return Job(config, workdir, scorer, data, mesh, model, objective, programs)


def run(job: Job) -> None:
  """Trains until `config.steps`, from the newest checkpoint in `workdir` or from the cold start."""
  config, workdir, scorer, data, mesh, model, objective, programs = job
  announce(config, workdir, mesh, model, data)
  checkpoints = checkpoint.open_checkpoints(workdir, config.checkpoint.keep)
  restored = checkpoint.latest(checkpoints, *layout(config, model, mesh))
  first = step = restored[1]["step"] if restored else 0
  with metrics.Writer(workdir, first) as writer:
    state, reference = resume(job, restored) if restored else begin(job, writer)
    timer, troubles = metrics.Timer(), Counter()
    examine = partial(held_out, config, data, scorer, programs, timer)
    if not restored:
      writer.write("eval", 0, examine(state.params) | timer.take())

    with Interrupt() as interrupt, console.bar(config.steps, first, config.verbose) as progress:
      stop = step >= config.steps
      while not stop:
        step += 1
        key = jax.random.fold_in(jax.random.key(config.seed), step)  # a resumed run draws the same
        sample = partial(programs.sample, state.params)
        ask = partial(answer_and_grade, data, scorer, sample, key, timer, troubles)

        groups, stats = collect(config.dynamic_sampling, data.stream.next, ask)
        batches = to_batches(config, mesh, groups)
        with timer.phase("logprob"):  # of all batches, before any update moves the policy
          batches = [with_logps(programs.logp, state.params, reference, b) for b in batches]
          jax.block_until_ready(batches)
        learned = []
        with timer.phase("update"):
          for batch in batches:
            state, of_update = programs.update(state, objective, batch)
            learned.append(of_update)
          learned = metrics.over_updates(jax.device_get(learned))

        seen = learned | stats | describe(groups) | troubles | timer.take()
        seen |= tokens_per_second(seen)
        troubles.clear()
        writer.write("train", step, seen)
        writer.completions(step, showcase(data.tokenizer, groups))
        console.advance(progress, step, seen)

        if step % config.eval.every == 0 or step == config.steps:
          writer.write("eval", step, examine(state.params) | timer.take())
        stop = step == config.steps or interrupt.asked  # asked once: what stops has been saved
        if step % config.checkpoint.every == 0 or stop:
          writer.flush()
          host = {"step": step, "stream": data.stream.get_state()}
          checkpoint.save(checkpoints, step, (state, reference), host)
    checkpoint.finish(checkpoints)
    checkpoints.close()
  if jax.process_index() == 0:
    finish(config, workdir, first, step)


def begin(job: Job, writer: metrics.Writer) -> tuple[State, dict | None]:
  """(state, reference) of a new run: the cold start with a fresh optimiser."""
  params = sft.cold_start(job.config, job.model, job.mesh, job.data.train, job.data.tokenizer, writer)
  reference = jax.tree.map(jnp.copy, params) if job.config.reference else None
  return job.programs.fresh(params), reference


def resume(job: Job, restored) -> tuple[State, dict | None]:
  """(state, reference) of a checkpoint; the data stream goes back to where it was."""
  tree, host = restored
  job.data.stream.set_state(host["stream"])
  console.say(f"resumed after step {host['step']} of {job.config.steps}")
  return tree


def answer_and_grade(data, scorer, sample, key, timer, troubles: Counter, prompts):
  """Prompts -> Rollout and Scored, on the host; `troubles` counts rewards that gave no number."""
  with timer.phase("rollout"):
    rollout = sample(prompts, key)
  with timer.phase("reward"):
    texts = text.decode(data.tokenizer, rollout.tokens, rollout.length)
    graded = rewards.score(scorer, prompts.example, texts, rollout.length, rollout.ended)
  if graded.first_error:
    console.say_once(graded.first_error)
  troubles.update(graded.counts)
  return rollout, Scored(graded.reward, graded.accuracy, graded.valid, graded.parts)


def to_batches(config: ConfigDict, mesh, groups: Groups) -> list[Batch]:
  """Deals the groups into the step's optimiser batches and puts them on the mesh."""
  prompts, rollout, scored = groups
  G, T = rollout.tokens.shape[1:]
  repeat = lambda x: np.repeat(x[:, None], G, axis=1)  # noqa: E731
  batch = Batch(
    mask=(np.arange(T)[None, None] < rollout.length[..., None]).astype(np.float32),
    reward=scored.reward,
    accuracy=scored.accuracy,
    valid=scored.valid,
    ended=rollout.ended,
    sampler_logp=rollout.sampler_logp,
    tokens=np.concatenate([repeat(prompts.tokens), rollout.tokens], axis=-1),
    prompt_length=repeat(prompts.length),
  )
  updates = config.updates_per_rollout
  deal = lambda u: jax.tree.map(lambda x: x[u::updates], batch)  # noqa: E731
  return [sharding.to_device(mesh, deal(u)) for u in range(updates)]


def with_logps(logp, params, reference, batch: Batch) -> Batch:
  """Adds log pi_old, its entropy, and log pi_ref if there is a reference."""
  old, entropy = logp(params, batch.tokens, batch.prompt_length)
  ref = logp(reference, batch.tokens, batch.prompt_length)[0] if reference else None
  return batch._replace(old_logp=old, entropy=entropy, ref_logp=ref)


def held_out(config, data, scorer, programs, timer, params) -> dict[str, float]:
  """Evaluation on the first `eval.prompts` held-out questions, always with the same draws."""
  key = jax.random.key(config.seed)
  count, P = min(config.eval.prompts, len(data.held_out.records)), config.rollout.prompts
  parts = []
  with timer.phase("eval"):
    for start in range(0, count, P):
      rows = np.minimum(np.arange(start, start + P), count - 1)  # the last chunk repeats a row ...
      prompts = pipeline.take(data.held_out, rows, data.tokenizer.pad_token_id)
      rollout = programs.sample_eval(params, prompts, key)
      texts = text.decode(data.tokenizer, rollout.tokens, rollout.length)
      scored = rewards.score(scorer, prompts.example, texts, rollout.length, rollout.ended)
      answers = [[scorer.answer(t) for t in group] for group in texts]
      part = evaluate.per_question(scored.accuracy, answers, rollout.length, rollout.ended)
      real = np.arange(start, start + P) < count  # ... that is not counted
      parts.append({name: x[real] for name, x in part.items()})
  questions = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
  return evaluate.summarise(questions, config.eval.samples)


def showcase(tokenizer, groups: Groups) -> list[dict]:
  """The first group of the step, as text with its rewards."""
  rollout, scored = groups.rollout, groups.scored
  return [
    dict(
      prompt=groups.prompts.example[0]["question"],
      completions=text.decode(tokenizer, rollout.tokens[0], rollout.length[0]),
      rewards=scored.reward[0].tolist(),
      lengths=rollout.length[0].tolist(),
      ended=rollout.ended[0].tolist(),
    )
  ]


def tokens_per_second(seen: dict[str, float]) -> dict[str, float]:
  """Sampled tokens over the seconds of a phase."""
  phases = ("rollout", "update")
  return {f"tokens_per_second/{p}": seen["num_tokens"] / seen[f"time/{p}"] for p in phases}


def layout(config: ConfigDict, model, mesh):
  """Shapes and shardings of what a checkpoint's tree holds: (state, reference)."""
  shapes, where = setup.state_layout(config, model, mesh)
  reference = (model.shapes, where.params) if config.reference else (None, None)
  return (shapes, reference[0]), (where, reference[1])


def announce(config: ConfigDict, workdir: Path, mesh, model, data) -> None:
  """What runs, on what, in a few lines."""
  size = sum(x.size for x in jax.tree.leaves(model.shapes))
  axes = " x ".join(f"{axis} {n}" for axis, n in mesh.shape.items())
  console.say(
    f"{config.name}:{config.scale} in {workdir}: {size / 1e6:.2f} M parameters, mesh {axes} on "
    f"{mesh.size} of {jax.device_count()} {jax.devices()[0].device_kind} device(s), "
    f"{jax.process_count()} process(es)"
  )
  for split in (data.train, data.held_out):
    dropped = f", {split.dropped} dropped over config.data.prompt_budget" if split.dropped else ""
    console.say(f"{split.name}: {len(split.records)} prompts{dropped}")
  if config.updates_per_rollout == 1:
    console.say("One update per rollout is on-policy: ratios are 1, nothing clips, loss is near 0.")


def finish(config: ConfigDict, workdir: Path, first: int, step: int) -> None:
  """The report and the final table, or where an interrupted run stands."""
  report.write(workdir)
  if step < config.steps:
    console.say(f"Stopped after step {step} and saved; the same command goes on from there.")
    return
  if first >= config.steps:
    console.say(f"This run is finished at step {first}; raise --config.steps, or take another --workdir.")
  records = metrics.read(workdir)
  evals = [r for r in records if r["kind"] == "eval"]
  console.final_table(evals[0], evals[-1], workdir / "report.html", metrics.phase_seconds(records))
