#!/usr/bin/env bash
# From nothing to a finished run on a TPU VM or pod slice: `./tpu_setup.sh help` says how.
# This file runs on your machine and speaks to gcloud; what runs on the workers is launch/worker.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# What is asked for: by flags, else by the environment, else this.
name=${TPU_NAME:-grpojax} zone=${TPU_ZONE:-} project=${TPU_PROJECT:-} type=${TPU_TYPE:-}
runtime=${TPU_RUNTIME:-} spot=${TPU_SPOT:-} queued=${TPU_QUEUED:-} commit=${TPU_COMMIT:-HEAD}
logs=${TPU_LOGS:-logs} retries=${TPU_RETRIES:-10} poll=${TPU_POLL:-60} dry_run=${TPU_DRY_RUN:-}
main=()   # arguments of python -m grpojax.main
workers=0 # of the slice, once somebody has looked

LASTING=600 # seconds: the end of a run that took longer is no failure in a row
AGAIN="0|75|134|137|143|lost" # ends after which a run goes on: asked to stop (75), aborted, killed, terminated, rebooted
STOPPED=75 GONE=76 INTERRUPTED=77 # exit codes of `watch`, beside 0 (finished) and 1 (failed)

help() {
  cat <<'TEXT'
usage: ./tpu_setup.sh COMMAND [--option=value ...] [-- arguments of python -m grpojax.main]

  up        all of it: create, install, check, start, watch; after a preemption, again
  create    the slice, or find it, and wait until it is READY
  install   one commit of this repository, on every worker
  check     does every worker see all the devices that the accelerator type has?
  start     python -m grpojax.main on every worker; it needs neither this terminal nor this machine
  watch     the run until it ends; collects the logs
  status    a line from every worker
  logs      every worker's log so far -> LOGS/NAME/WORKER.log
  stop      the run, when its step is finished and saved
  delete    the slice, and its place in the queue
  here      no gcloud: installs on this machine, once, and runs a command:
              ./tpu_setup.sh here [--cpu] python -m grpojax.main --config=configs/gspo.py

  --name=grpojax    the slice (and its queued resource)
  --zone=           such as us-east5-b; default: gcloud's.  --project= likewise
  --type=           accelerator type: v4-16, v5litepod-16, v5p-32, v6e-8, ...
  --runtime=        image of the VMs; default: by type
  --spot            cheaper, and may be taken away at any time
  --queued          wait in the queue, where a full zone would refuse at once
  --commit=HEAD     what is installed
  --logs=logs       folder for the logs
  --retries=10      failures in a row, of creating or of runs that end early, until `up` gives up
  --poll=60         seconds between two looks; after failures in a row twice as long each time, up to 16 times
  --dry_run         print every command, run none

Each option may also stand in the environment: TPU_NAME, TPU_ZONE, ..., TPU_SPOT=1.  Whatever is there already is
found, not made again, so any command may be given twice.  A slice that was taken away comes back with empty
disks, therefore `up` wants a --workdir in a bucket:

  ./tpu_setup.sh up --type=v5litepod-16 --zone=us-west4-a --spot --queued -- \
      --config=configs/gspo.py --workdir=gs://BUCKET/runs/gspo

`up` ends with 0 when the run is finished, 75 when it was stopped, 1 when it failed or the slice cannot be had.
TEXT
}

say() { echo "[$(date +%H:%M:%S)] $*"; }
die() {
  echo "error: $*" >&2
  exit 1
}

wait_longer() { # after the N-th failure in a row
  local times=$((1 << ($1 < 5 ? $1 - 1 : 4)))
  [[ $dry_run ]] || sleep $((poll * times))
}

# ---- the slice ----

cloud() { # gcloud compute tpus ...; with --dry_run only said
  set -- gcloud compute tpus "$@" ${zone:+"--zone=$zone"} ${project:+"--project=$project"} --quiet
  if [[ ! $dry_run ]]; then
    "$@"
    return
  fi
  local word line=""
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,-]+$ ]] || word=${word@Q}
    line+="$word "
  done
  echo "${line% }" >&3
}

describe() { # KIND FIELD -> its value; "" if there is none of the name
  local try
  for try in 1 2 3; do
    if cloud "$1" describe "$name" --format="value($2)" 2>"$scratch/error"; then return; fi
    if grep -qiE 'NOT_FOUND|not found' "$scratch/error"; then return; fi
    wait_longer "$try"
  done
  die "gcloud cannot tell about $name: $(cat "$scratch/error")"
}

state() { # READY, NONE, GONE (taken away, or refused by the queue), or what it is waiting for
  local node queue
  queue=$(describe queued-resources state.state) || exit 1 # before the node, which may come between two looks
  node=$(describe tpu-vm state) || exit 1
  case $node/$queue in
    READY/*) echo READY ;;
    PREEMPTED/* | TERMINATED/* | */FAILED | */SUSPENDED | /ACTIVE) echo GONE ;;
    /) echo NONE ;;
    *) echo "${node:-$queue}" ;;
  esac
}

order() { # asks for the slice; 1: not to be had now
  local error what=(--accelerator-type="$type" ${spot:+--spot})
  if [[ $queued ]]; then
    what=(queued-resources create "$name" --node-id="$name" --runtime-version="$runtime" "${what[@]}")
  else
    what=(tpu-vm create "$name" --version="$runtime" "${what[@]}")
  fi
  say "asking for $name: $type${spot:+, spot}${queued:+, in the queue}"
  if error=$(cloud "${what[@]}" 2>&1); then return; fi
  case ${error,,} in
    *already*exists*) ;; # another terminal was faster
    *quota*) die "no quota for $type here; ask for some, or take another zone: $error" ;;
    *capacity* | *exhausted* | *stockout* | *unavailable* | *internal*)
      say "not to be had now: ${error##*$'\n'}"
      return 1
      ;;
    *) die "$error" ;;
  esac
}

create() {
  local now last="" asked=0
  devices >/dev/null
  while now=$(state) || exit 1; [[ $now != READY ]]; do
    [[ $now == "$last" ]] || say "$name: $now"
    last=$now
    case $now in
      NONE)
        ((asked == 0)) || wait_longer "$asked"
        ((asked++ <= retries)) || die "$name could not be had; --retries=$retries"
        order || true
        ;;
      GONE) delete ;;
      STOP* | HID*) die "$name is $now: gcloud compute tpus tpu-vm start $name, or delete it" ;;
      *) sleep "$poll" ;;
    esac
    [[ ! $dry_run ]] || return 0
  done
  now=$(describe tpu-vm acceleratorType) || exit 1
  [[ ${now##*/} == "$type" ]] || die "$name is a ${now##*/}, not a $type; take another --name, or delete it"
  say "$name is READY"
}

delete() {
  local kind
  for kind in queued-resources tpu-vm; do # its place in the queue first: the slice goes with it
    [[ $(describe "$kind" name) || $dry_run ]] || continue
    if [[ $kind == tpu-vm ]]; then cloud tpu-vm delete "$name"; else cloud "$kind" delete "$name" --force; fi
  done
  say "$name is deleted"
}

# ---- its workers ----

on_all() { # COMMAND on every worker -> $scratch/WORKER.log.  1: it failed on some.  Exits where the slice is gone
  local try answered now
  for try in 1 2 3 4 5; do
    ((workers)) || workers=$(describe tpu-vm 'networkEndpoints[].ipAddress' | tr ';,' '\n' | grep -c . || true)
    rm -f "$scratch"/*.log
    cloud tpu-vm ssh "$name" --worker=all --output-directory="$scratch" --command="$1; echo @\$?" \
      >"$scratch/error" 2>&1 </dev/null || true # what the workers print at last says more than this status
    [[ ! $dry_run ]] || return 0
    answered=$(cat "$scratch"/*.log 2>/dev/null | grep -c '^@[0-9]' || true)
    if ((workers && answered == workers)); then
      [[ -z $(lack '^@0') ]] && return
      return 1
    fi
    now=$(state) || exit 1
    [[ $now == READY ]] || { say "there is no slice $name to speak to: $now" && exit $GONE; }
    say "$answered of $workers workers answered; asking again"
    wait_longer "$try"
  done
  die "not all workers of $name answer: $(tail -n 3 "$scratch/error")"
}

lack() { grep -LE "$1" "$scratch"/*.log 2>/dev/null || true; } # the workers' answers without such a line

words() { sed '/^@[0-9]/d; /^ *$/d; s/^/  /' "$1" | tail -n "${2:-20}"; } # the last ones of an answer or a log

blame() { # LOG, what: the end, with the worker's last words
  die "worker $(basename "$1" .log) $2"$'\n'"$(words "$1")"
}

package() { # where the commit lies on every worker
  echo "grpojax-$(git -C "$root" rev-parse --short=12 "$commit")"
}

install() {
  local there try
  there=$(package) || exit 1
  if on_all "test -f $there/.venv/installed" && [[ ! $dry_run ]]; then return; fi
  [[ -z $(git -C "$root" status --porcelain -uno) ]] || say "note: uncommitted changes are not installed"
  say "installing $there on every worker of $name"
  git -C "$root" archive --prefix="$there/" --output="$scratch/$there.tar.gz" "$commit"
  for try in 1 2 3; do
    cloud tpu-vm scp "$scratch/$there.tar.gz" "$name:" --worker=all >"$scratch/error" 2>&1 && break
    wait_longer "$try"
  done
  on_all "tar -xzf $there.tar.gz && $there/launch/worker.sh here true" ||
    blame "$(lack '^@0' | head -n 1)" "could not install:"
}

devices() { # JAX devices of an accelerator type: v4 and v5p count cores, two to a device
  case $type in
    v4-* | v5p-*) echo $((${type##*-} / 2)) ;;
    v2-* | v3-* | v5litepod-* | v6e-*) echo "${type##*-}" ;;
    "") die "which slice? set --type or TPU_TYPE, such as v5litepod-16" ;;
    *) die "--type=$type is of no known kind; types look like v2-8, v3-32, v4-16, v5litepod-16, v5p-32, v6e-8" ;;
  esac
}

check() { # on all workers at once: the devices of a slice come up together
  local expected log seen program="import jax; jax.distributed.initialize(); print('devices', jax.device_count())"
  expected=$(devices) || exit 1
  on_all "timeout 300 $(package)/launch/worker.sh here python -c \"$program\"" || true # it has seen none, then
  [[ ! $dry_run ]] || return 0
  for log in "$scratch"/*.log; do
    seen=$(sed -n 's/^devices //p' "$log")
    [[ $seen == "$expected" ]] || blame "$log" "sees ${seen:-no} devices, a $type has $expected; delete $name:"
  done
  say "every worker sees $expected devices"
}

# ---- the run ----

start() {
  ((${#main[@]})) || die "what shall run? end with: -- --config=configs/gspo.py --workdir=gs://BUCKET/RUN"
  on_all "$(package)/launch/worker.sh start$(printf ' %q' "${main[@]}")" ||
    blame "$(lack '^@0' | head -n 1)" "could not start the run:"
  say "started on every worker: python -m grpojax.main ${main[*]}"
}

of_run() { on_all "bash grpojax-run/worker.sh $1"; }

outcome() { # of the answers to `of_run status`: running, none, stopped, finished, failed or interrupted
  local codes
  [[ ! $dry_run ]] || { echo finished && return; }
  codes=$(sed -n 's/^run //p' "$scratch"/*.log)
  case $codes in
    *running*) echo running ;;
    *stopped*) echo stopped ;;
    *) if [[ $(lack '^run ') ]]; then
      echo none
    elif [[ -z $(lack '^run 0$') ]]; then
      echo finished
    elif [[ $(lack "^run ($AGAIN)$") ]]; then
      echo failed
    else
      echo interrupted
    fi ;;
  esac
}

status() {
  local log
  of_run status || true
  for log in "$scratch"/*.log; do
    [[ $dry_run ]] || echo "worker $(basename "$log" .log):$(words "$log" 2 | tr -d '\n')"
  done
}

logs() {
  local log
  of_run log || die "there is no run on $name"
  [[ ! $dry_run ]] || return 0
  mkdir -p "$logs/$name"
  for log in "$scratch"/*.log; do
    sed '/^@[0-9]*$/d' "$log" >"$logs/$name/$(basename "$log")"
  done
  say "logs of all workers: $logs/$name/"
}

watch() {
  local ended culprit seen last="" fetched=$SECONDS
  while of_run status || true; ended=$(outcome); [[ $ended == running ]]; do
    seen=$(words "$scratch/0.log" 2 | head -n 1)
    [[ $seen == "$last" ]] || say "$seen"
    last=$seen
    if ((SECONDS - fetched > 600)); then # a preemption would take them away
      (logs) || exit
      fetched=$SECONDS
    fi
    sleep "$poll"
  done
  culprit=$(lack "^run ($AGAIN)$" | head -n 1)
  [[ $ended == none ]] || logs
  say "the run on $name: $ended"
  case $ended in
    finished) exit 0 ;;
    stopped) exit $STOPPED ;;
    failed) blame "$logs/$name/$(basename "$culprit")" "failed:" ;;
    *) exit $INTERRUPTED ;;
  esac
}

once() { # a run that goes on already is left as it is
  of_run status || true
  if [[ $(outcome) != running ]]; then
    install
    check
    start
  fi
  watch
}

up() {
  local failures=0 began code
  [[ " ${main[*]-} " == *" --workdir="*://* ]] ||
    die "a slice that is taken away loses its disks: end with -- ... --workdir=gs://BUCKET/RUN"
  while true; do
    began=$SECONDS code=0
    create
    (once) || code=$?
    ((code == GONE || code == INTERRUPTED)) || exit $code
    ((SECONDS - began < LASTING)) || failures=0
    ((failures++ < retries)) || die "$failures runs in a row ended early; --retries=$retries"
    say "starting again ($failures of $retries)"
    wait_longer "$failures"
  done
}

stop() {
  of_run stop || die "there is no run on $name"
  say "the run ends when its step is finished and saved; 'status' says when"
}

# ---- what was said ----

command=${1:-help}
(($# == 0)) || shift
case $command in
  here) exec "$root/launch/worker.sh" here "$@" ;;
  help | create | install | check | start | watch | status | logs | stop | delete | up) ;;
  *) die "'$command' is no command; ./tpu_setup.sh help lists them" ;;
esac
while (($#)); do
  case $1 in
    --name=* | --zone=* | --project=* | --type=* | --runtime=* | --commit=* | --logs=* | --retries=* | --poll=*)
      option=${1%%=*}
      printf -v "${option#--}" %s "${1#*=}"
      ;;
    --spot | --queued | --dry_run) printf -v "${1#--}" 1 ;;
    --)
      main=("${@:2}")
      break
      ;;
    *) die "'$1' is no option; ./tpu_setup.sh help lists them" ;;
  esac
  shift
done
case $type in
  v5litepod-*) image=v2-alpha-tpuv5-lite ;;
  v5p-*) image=v2-alpha-tpuv5 ;;
  v6e-*) image=v2-alpha-tpuv6e ;;
  *) image=tpu-ubuntu2204-base ;;
esac
runtime=${runtime:-$image}
exec 3>&1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$command"
