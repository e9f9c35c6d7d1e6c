#!/usr/bin/env bash
# On a fresh TPU VM: installs once, then runs its arguments.  The same line on every worker of a slice:
#
#   gcloud compute tpus tpu-vm ssh NAME --zone ZONE --worker=all --command \
#     'cd grpojax && ./tpu_setup.sh python -m grpojax.main --config=configs/gspo.py --workdir=/mnt/disk/run'
#
#   ./tpu_setup.sh --cpu python -m grpojax.main ...     # the same on a machine without a TPU
set -euo pipefail
cd "$(dirname "$0")"

extra="jax[tpu]"
if [[ "${1:-}" == "--cpu" ]]; then
  extra="jax"
  shift
fi

venv="${GRPOJAX_VENV:-.venv}"
if [[ ! -f "$venv/installed" ]]; then
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/pip" install --quiet "$extra" --editable .
  touch "$venv/installed" # only after an install that worked; delete it to install again
fi
export PATH="$(realpath "$venv")/bin:$PATH"
if [[ $# -gt 0 ]]; then
  exec "$@"
fi
python -c "import jax; print(jax.device_count(), 'devices,', jax.process_count(), 'process(es)')"
