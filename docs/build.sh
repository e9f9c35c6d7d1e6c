#!/usr/bin/env bash
# Builds the site into docs/_build/html: executes the tutorials and ends with an error on any warning.
#   pip install -e '.[docs]' && docs/build.sh
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf docs/_build runs/tutorials
XLA_FLAGS="--xla_cpu_parallel_codegen_split_count=1 ${XLA_FLAGS:-}" python -m sphinx -q -W --keep-going -b html docs docs/_build/html
