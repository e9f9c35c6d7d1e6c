#!/usr/bin/env bash
# One run on several GPU nodes under SLURM, one process a GPU:
#
#   sbatch --nodes=2 launch/slurm.sh --config=configs/dapo.py:local --config.model.path=/shared/model \
#       --config.data.path=/shared/train.jsonl --config.mesh.fsdp=16 --workdir=/shared/runs/mine
#
# What does not begin with "--" is another command of grpojax: launch/slurm.sh pipeline r1 --workdir=/shared/runs/r1.
# The processes find each other through SLURM's environment: jax.distributed.initialize() reads it.  A job that is
# preempted, reaches its time limit or loses a node is queued again and goes on from --workdir, which every node
# must see.  Install once, in the folder from which you submit: ./tpu_setup.sh here --cpu true, then
# .venv/bin/pip install '.[cuda]'.
#SBATCH --job-name=grpojax
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -uo pipefail
failed=grpojax-$SLURM_JOB_ID.failed
[[ ${1:-} != --* ]] || set -- train "$@"

# SIGTERM, from a preemption or 300 s before the time limit, reaches every task; they save and exit with 75.  A task
# that fails ends the others by itself, with a status above its own: so who failed is noted, and not guessed from srun's.
# shellcheck disable=SC2016  # expanded by the task's shell, which a SIGTERM to both does not end
task='trap : TERM; "$@"; code=$?
  case $code in 0 | 75 | 134 | 137 | 143) ;; *) echo "task $SLURM_PROCID: status $code" >>"$0" ;; esac; exit $code'
rm -f "$failed"
srun --kill-on-bad-exit=0 bash -c "$task" "$failed" .venv/bin/python -m grpojax "$@"
code=$?
if [[ -f $failed ]]; then
  cat "$failed"
elif ((code != 0 && ${SLURM_RESTART_COUNT:-0} < 20)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
