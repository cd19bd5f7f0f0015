#!/usr/bin/env bash
# The verdict on SmolLM2-135M-Instruct: fits maps at two splits on the bundled text, then runs the
# quick suite over exact, identity s=15, ridge s=15 and ridge s=20 at 2K and 4K tokens.
#
#   benchmarks/verdict.sh OUTPUT
#
# Interrupted, it goes on where it was. About six minutes of fitting and half an hour of suite on
# two cores.
set -euo pipefail

output=${1:?name an output directory}
mkdir -p "$output"

for split in 15 20; do
    if [ ! -d "$output/maps-$split" ]; then
        ridgefill fit smollm2-demo --bundled --max-tokens 90000 \
            --split "$split" --output "$output/maps-$split"
    fi
done

cat >"$output/plans.json" <<'PLANS'
[
  {"name": "exact", "fill": "exact"},
  {"name": "identity s=15", "split": 15, "tail": 256},
  {"name": "ridge s=15", "maps": "maps-15"},
  {"name": "ridge s=20", "maps": "maps-20"}
]
PLANS

time ridgefill eval smollm2-demo --plans "$output/plans.json" --suite quick \
    --lengths 2048,4096 --output "$output/eval"
