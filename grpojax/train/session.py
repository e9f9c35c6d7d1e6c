"""What surrounds a run while it trains: its workdir's lock, records, checkpoints, watchdog, signals, profile.

The loop pushes metrics that may still be computed, and never waits for one: a step's record is written when
the next step's is pushed, or before an evaluation and a checkpoint, so that no record up to it is missing.
"""

import contextlib
from collections import deque
from collections.abc import Callable

import jax

from grpojax.config import schema
from grpojax.config import workdir as workdir_lib
from grpojax.rollout.evaluate import evaluate
from grpojax.rollout.prefetch import Prefetcher
from grpojax.runtime import checkpointer, console, diagnosis, loggers, processes, storage
from grpojax.runtime import metrics as metrics_lib
from grpojax.runtime.profiling import profiler
from grpojax.runtime.signals import Interrupt
from grpojax.runtime.watchdog import progress, watchdog
from grpojax.train import about, checkpoint, manifest, ownership, samples, step_log
from grpojax.train.setup import Job
from grpojax.train.state import RunState
from grpojax.types import Groups


class Session:
  """`with Session(job) as session`: locks the workdir and opens its records and checkpoints."""

  def __init__(self, job: Job, on_step: Callable[[int, dict[str, float]], None] | None = None):
    self.job, self.timer, self.pending = job, job.rollout.timer, None
    self.on_step = on_step
    self.step, self.step_seconds = 0, 0.0  # under way; of the last one
    self.recent, self.told = deque(maxlen=diagnosis.STEPS), set()

  def __enter__(self):
    job = self.job
    self.timer.take()
    with contextlib.ExitStack() as stack:
      stacks = job.workdir / f"stacks_{jax.process_index()}.txt"  # a bucket's are on stderr alone
      stack.enter_context(watchdog(job.config.guard.minutes, "reading a checkpoint", stacks))
      stack.callback(job.programs.close)
      self._open(stack)
      self.stack = stack.pop_all()
    return self

  def _open(self, stack: contextlib.ExitStack) -> None:
    """Locks the workdir, opens what the session has, and restores the newest checkpoint."""
    job = self.job
    self.owner = stack.enter_context(ownership.own(job.workdir, job.asked))
    self.stands_on = manifest.describe(job, self.owner.run)
    self.checkpoints = checkpointer.open_checkpoints(job.workdir, job.config.checkpoint.keep)
    found = checkpoint.restore(job, self.checkpoints, self.stands_on)
    self.restored = (found.state, found.in_flight) if found else None
    self.first = self.saved = found.state.step if found else 0
    self.files, self.upload = stack.enter_context(storage.mirror(job.workdir))
    self.owner.check_resumed(self.first, self.files)
    about.write(self.files, job)
    self.writer = stack.enter_context(self._writer())
    if found:
      manifest.compare_records(found.records, self.writer.digests(), self.first)
    progress("making the initial policy")

  def _writer(self) -> metrics_lib.Writer:
    """Opens the records and the loggers beside them."""
    c, job = self.job.config, self.job
    settings = schema.flatten(workdir_lib.plain(c))
    run = loggers.Run(self.owner.run.id, c.name, c.log.project, settings, self.files, self.first)
    opened = loggers.open_all(c.log.to, run, job.workdir)
    return metrics_lib.Writer(self.files, self.first, opened, c.log.completions_every)

  def __exit__(self, *error):
    return self.stack.__exit__(*error)

  @contextlib.contextmanager
  def watch(self):
    """Surrounds the steps with signals, profile and progress bar; then waits for the last save."""
    c, first = self.job.config, self.first
    with (
      Interrupt(self._waits_for) as self.interrupt,
      profiler(c.profile_steps, self.files, first) as self.profile,
      console.bar(c.steps, first, c.verbose) as self.progress,
    ):
      yield
      checkpointer.finish(self.checkpoints)  # here, where a signal does not yet end the process
      self.owner.note_saved(self.saved)
    self.checkpoints.close()

  def _waits_for(self) -> str:
    """Returns what a stop waits for, and what is lost by a second one.  Called by a signal handler."""
    last = f" (the last took {console.duration(self.step_seconds)})" if self.step_seconds else ""
    lost = f"from step {self.saved}" if self.saved else "from the beginning, as nothing is saved yet"
    return (
      f"Stopping after step {self.step}: waiting until it is done{last} and saved. Once more ends at once,"
      f" and the same command then goes on {lost}."
    )

  def stop_requested(self) -> bool:
    """Collective: True if some process was asked to stop.  The loop's one question to all processes."""
    return processes.any_process(self.interrupt.asked)

  def begin(self, step: int) -> None:
    """Notes that a step begins."""
    self.step = step
    progress(f"taking step {step}")
    self.profile(step)

  def push(self, step: int, updates: list[dict], metrics: dict, groups: Groups | None = None) -> None:
    """Takes a step's metrics, its updates' still on the device; writes the record of the step before.

    `groups` are None where nothing was sampled.
    """
    times = self.timer.take()
    waited = times.pop("time/update_wait", 0.0)  # for updates of the step before
    if self.pending:
      times["time/step"] -= waited
      self._write_pending({"time/update": waited, "time/step": waited})
    else:  # its record is written
      times = step_log.add_times(times, {"time/update": waited})
    self.timer.follow(updates[-1])
    table = samples.table(self.job, groups) if groups else []
    self.pending = step_log.PendingRecord(step, updates, metrics, table, times, groups)

  def flush(self) -> None:
    """Waits for the last step's updates and writes its record."""
    if self.pending:
      with self.timer.phase("update"):
        jax.block_until_ready(self.pending.updates)
      self._write_pending(self.timer.take())

  def _write_pending(self, times: dict[str, float]) -> None:
    """Writes the pending record, with more seconds by phase."""
    pending, self.pending = self.pending, None
    pending = pending._replace(times=step_log.add_times(pending.times, times))
    self.step_seconds = pending.times["time/step"]
    record = step_log.write(self.job.config, self.files, self.writer, self.progress, pending)
    self.recent.append(record)
    if len(self.recent) == diagnosis.STEPS:
      step_log.tell(list(self.recent), self.told)
    if self.on_step:
      self.on_step(pending.step, record)

  def evaluate(self, step: int, params: dict) -> None:
    """Collective: measures the policy on held-out questions and writes the record."""
    if self.pending:
      self.flush()
    progress(f"evaluating after step {step}")
    c = self.job.config.eval
    questions = min(c.prompts, len(self.job.data.held_out.records))
    console.say(f"evaluating: {questions} held-out questions, {c.samples} completions each ...")
    found = evaluate(self.job.rollout, params)
    times = self.timer.take()
    self.writer.write("eval", step, found | times)
    console.evaluation(step, found, times["time/eval"])

  def save(self, state: RunState, rollouts: Prefetcher | None = None) -> None:
    """Collective: starts to save the state, after all records up to it are on disk; each step once.

    `rollouts` has what is in flight; None: nothing is.
    """
    self.flush()
    self.writer.flush()
    self.upload()
    if state.step == self.saved:
      return
    progress(f"saving step {state.step}")
    if self.interrupt.asked:
      console.say(f"saving step {state.step} ...")
    stands_on = self.stands_on | {"records": self.writer.digests()}
    in_flight = rollouts.checkpoint() if rollouts else ((), [])
    tree, host = checkpoint.checkpoint_tree(self.job, state, in_flight, stands_on)
    self.owner.check()
    checkpointer.save(self.checkpoints, state.step, tree, host)
    self.owner.note_saved(self.saved)  # the one before is on disk now
    self.saved = state.step
