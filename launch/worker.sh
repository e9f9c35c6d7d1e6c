#!/usr/bin/env bash
# The half of tpu_setup.sh that runs on each worker, where it came with the package.
#
#   worker.sh here [--cpu] COMMAND ...   installs on this machine, once, and runs the command
#   worker.sh start ARGUMENTS ...        python -m grpojax.main, detached; not again while it runs
#   worker.sh status | log | stop        of that run: its pid, log and exit code are in ~/grpojax-run
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
run=~/grpojax-run
boot=/proc/sys/kernel/random/boot_id # another after a reboot, when a pid says nothing any more

here() {
  local accelerator=tpu venv=${GRPOJAX_VENV:-.venv}
  cd "$root"
  if [[ ${1:-} == --cpu ]]; then
    accelerator=""
    shift
  fi
  if [[ ! -f $venv/installed ]]; then
    environment "$venv"
    "$venv/bin/pip" install --quiet ${accelerator:+"jax[$accelerator]"} --editable ".${accelerator:+[gcs]}"
    touch "$venv/installed" # only after an install that worked; delete it to install again
  fi
  PATH=$(realpath "$venv")/bin:$PATH
  export PATH
  if (($#)); then exec "$@"; fi
  python -c "import jax; print(jax.device_count(), 'devices,', jax.process_count(), 'process(es)')"
}

environment() { # of a Python that the package runs with; images with an older one get it from uv
  local python
  for python in ${PYTHON:-python3.12 python3.11 python3}; do
    if "$python" -c "import sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))" 2>/dev/null; then
      "$python" -m venv "$1"
      return
    fi
  done
  python3 -m pip install --quiet --user uv
  python3 -m uv venv --quiet --seed --python 3.12 "$1"
}

status() { # the last line of the log, then "run" and: running, its exit code, stopped (by `stop`), or lost
  local code=lost
  if [[ -f $run/exit ]]; then
    code=$(cat "$run/exit")
    [[ ! -f $run/stopped ]] || code=stopped
  elif [[ $(cat "$run/boot") == $(cat "$boot") ]] && kill -0 "$(cat "$run/pid")" 2>/dev/null; then
    code=running
  fi
  tail -n 1 "$run/log"
  echo "run $code"
}

log() { cat "$run/log"; }

start() {
  mkdir -p "$run"
  if [[ -f $run/pid && $(status) == *"run running" ]]; then return; fi
  rm -f "$run"/{exit,stopped}
  cp "${BASH_SOURCE[0]}" "$run/worker.sh" # for status, log and stop, whichever commit comes after this one
  # shellcheck disable=SC2016  # expanded by the shell around the run, which a SIGTERM to both does not end
  local shell='trap : TERM; "$0" here python -m grpojax.main "$@"; echo $? >~/grpojax-run/exit'
  setsid nohup bash -c "$shell" "$root/launch/worker.sh" "$@" >>"$run/log" 2>&1 </dev/null &
  echo $! >"$run/pid"
  cat "$boot" >"$run/boot"
}

stop() {
  touch "$run/stopped"
  [[ -f $run/exit ]] || kill -TERM -- "-$(cat "$run/pid")"
}

"$@"
