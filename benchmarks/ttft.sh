#!/usr/bin/env bash
# TTFT and fit cost of the README: maps as the demo fits them, then the interleaved benchmark.
#
#     benchmarks/ttft.sh FOLDER     # about 20 minutes on two idle cores; FOLDER must be new
#
# Then copy FOLDER/ttft to benchmarks/results/ttft and run benchmarks/readme.py.
set -euo pipefail

folder=${1:?name a new folder for the maps and results}
mkdir "$folder"
cd "$folder"
ridgefill demo --output demo
cp -r demo/maps ridge
ridgefill bench smollm2-demo --maps ridge --tail 256 --output ttft
