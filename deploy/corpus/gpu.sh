#!/usr/bin/env bash
# Scores a corpus on one GPU: gpu.sh INPUT... OUTPUT, with DEVICE=cuda:0. One process feeds it; a run that was stopped (exit code 3) is begun again.
set -euo pipefail
run() { "${PROGRAM:-turnscore}" corpus score "$@" --device "${DEVICE:-cuda:0}" --workers 1; }
for _ in 1 2 3; do
    code=0
    run "$@" || code=$?
    [ "$code" -eq 3 ] || break
done
exit "$code"
