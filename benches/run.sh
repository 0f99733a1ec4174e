#!/bin/sh
# Builds everything with the profile dist, runs the load test with Transom and the bare handlers, then measures memory and
# start-up. Prints tables, and the number of cores, which driver and server share.
#
#   benches/run.sh            the load test: about two minutes, after the build
#   benches/run.sh --cluster  only the latency that the webhooks add to a create through a real API server (the programs of
#                             envtest in $KUBEBUILDER_ASSETS, else in /usr/local/kubebuilder/bin), then --cost: about
#                             seven minutes
#   benches/run.sh --cost     only the cost of Linux and Windows pods for the API server, in its own processor time: about
#                             four minutes
#   benches/run.sh --images   only the cost of pods without an operating system for the API server, without and with the entries
#                             for images of listed registries: about two minutes
#   benches/run.sh --storm    only the latency of reviews while labels of nodes are patched, with 5,000 Windows nodes: about
#                             four minutes
#   benches/run.sh --stored   only scans and reports with 100,000 stored pods (PODS): about ten minutes
#   benches/run.sh --all      the load test, --cluster, and the criterion benchmarks of benches/engine.rs and benches/check.rs
#
# ROUNDS (3), SECONDS_EACH (5) and CONNECTIONS (16) change the load. API_ROUNDS (20) and REQUESTS (100) change the requests
# to the API server. CARGO_TARGET_DIR is used if it is set. All servers use free ports of 127.0.0.1, and are stopped at the
# end.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-5} connections=${CONNECTIONS:-16}

cargo build --profile dist --locked
cargo build --profile dist --locked -p transom-load
load=$target/dist/transom-load transom=$target/dist/transom

echo "cores: $(nproc)"
sed -n 's/^model name[^:]*: /processor: /p' /proc/cpuinfo | head -n 1
"$transom" --version
echo
latency() {
    "$load" latency --transom "$transom" --rounds "${API_ROUNDS:-20}" --requests "${REQUESTS:-100}"
}
cost() {
    "$load" cost --transom "$transom" --rounds "${API_ROUNDS:-12}" --requests "${REQUESTS:-100}"
}
if [ "${1:-}" = --cluster ]; then
    latency
    echo
    cost
    exit
fi
if [ "${1:-}" = --images ]; then
    "$load" images --transom "$transom" --rounds "${API_ROUNDS:-12}" --requests "${REQUESTS:-100}"
    exit
fi
if [ "${1:-}" = --storm ]; then
    "$load" storm --transom "$transom"
    exit
fi
if [ "${1:-}" = --stored ]; then
    "$load" stored --transom "$transom" --pods "${PODS:-100000}" --serve=--reports
    exit
fi
if [ "${1:-}" = --cost ]; then
    cost
    exit
fi
"$load" compare --transom "$transom" --rounds "$rounds" --seconds "$seconds" --connections "$connections"
echo
"$load" memory --transom "$transom" --seconds "$seconds" --connections "$connections"
if [ "${1:-}" = --all ]; then
    echo
    latency
    echo
    cost
    cargo bench --locked --bench engine --bench check
fi
