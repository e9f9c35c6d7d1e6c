#!/usr/bin/env bash
# One run on several GPU nodes under SLURM, one process a GPU:
#
#   sbatch --nodes=2 launch/slurm.sh --config=configs/dapo.py:local --config.model.path=/shared/model \
#       --config.data.path=/shared/train.jsonl --config.mesh.fsdp=16 --workdir=/shared/runs/mine
#
# The processes find each other through SLURM's environment: jax.distributed.initialize() reads it.  A job that is
# preempted, reaches its time limit or loses a node is queued again and goes on from --workdir, which every node
# must see.  Install once, in the folder from which you submit: ./tpu_setup.sh here --cpu true, then
# .venv/bin/pip install 'jax[cuda13]'.
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

# SIGTERM, from a preemption or 300 s before the time limit, reaches the processes; they save and exit with 75.
srun --kill-on-bad-exit=1 .venv/bin/python -m grpojax.main "$@"
code=$?
case $code in
  75 | 134 | 137 | 143) # asked to stop; aborted, killed or terminated because another one was
    ((${SLURM_RESTART_COUNT:-0} < 20)) && scontrol requeue "$SLURM_JOB_ID"
    ;;
esac
exit $code
