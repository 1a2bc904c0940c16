#!/usr/bin/env bash
# Scores a corpus on a laptop that somebody works on: laptop.sh INPUT... OUTPUT. One CPU stays free, and whatever else runs goes first.
# The same command goes on after a sleep, a stop or a kill.
set -euo pipefail
cpus=$(getconf _NPROCESSORS_ONLN)
exec nice -n 15 "${PROGRAM:-turnscore}" corpus score "$@" --scorers engagement,quality,sentiment_stop --workers $((cpus > 1 ? cpus - 1 : 1))
