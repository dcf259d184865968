#!/usr/bin/env bash
# Three nodes on this machine, from configs/cluster, until Ctrl-C. Their data is in ./data, or DATA, and is
# found again the next time; the secret of the cluster and the password of root are made at the first start and
# kept beside it.
#
#   make cluster                  the binaries of target/release
#   BIN=DIR scripts/cluster.sh    those of another directory; arguments go to every node
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/target/release}
data=${DATA:-data}
nodes=(1 2 3)
declare -A pid=()

say() { printf '%s\n' "cluster: $*"; }
random() { head -c 18 /dev/urandom | base64 | tr '+/' 'xy'; }
stop() {
  trap '' INT TERM HUP
  for node in "${!pid[@]}"; do kill -TERM "${pid[$node]}" 2>/dev/null || true; done
  wait || true
}
trap 'say "stopping"; stop; exit 0' INT TERM HUP
trap stop EXIT

umask 077
mkdir -p "$data"
for secret in cluster-secret root-password; do
  [ -s "$data/$secret" ] || random > "$data/$secret"
done
export COHORT__CLUSTER__SECRET=${COHORT__CLUSTER__SECRET:-$(cat "$data/cluster-secret")}
export COHORT__NODE__ROOT_PASSWORD=${COHORT__NODE__ROOT_PASSWORD:-$(cat "$data/root-password")}

# Only a cluster that is new is formatted: a node that has lost its disk must not pass for a new one.
is_new=yes
for node in "${nodes[@]}"; do [ ! -e "$data/node-$node/node.toml" ] || is_new=; done
for node in "${nodes[@]}"; do
  of_node=(--config "$root/configs/cluster/node-$node.toml" --set "node.data_directory=$data/node-$node" "$@")
  [ -n "$is_new" ] || continue
  "$bin/cohort-server" format "${of_node[@]}" 2>> "$data/node-$node.log" || {
    say "node $((node - 1)) cannot be formatted; the last lines of $data/node-$node.log:"
    tail -n 3 "$data/node-$node.log"
    exit 1
  }
done

for node in "${nodes[@]}"; do
  of_node=(--config "$root/configs/cluster/node-$node.toml" --set "node.data_directory=$data/node-$node" "$@")
  # In a group of its own: Ctrl-C reaches it once, from here.
  : > "$data/node-$node.out"
  setsid "$bin/cohort-server" "${of_node[@]}" > "$data/node-$node.out" 2>> "$data/node-$node.log" &
  pid[$node]=$!
done
for node in "${nodes[@]}"; do
  until grep -q 'is ready on' "$data/node-$node.out"; do
    kill -0 "${pid[$node]}" 2>/dev/null || {
      say "node $((node - 1)) does not start; the last lines of $data/node-$node.log:"
      tail -n 3 "$data/node-$node.log"
      exit 1
    }
    # A moment; the condition is looked at again after it.
    read -rt 0.05 < /dev/zero || true
  done
  say "node $((node - 1)), process ${pid[$node]}, $(sed -n 's/^cohort-server //p' "$data/node-$node.out"), events in $data/node-$node.log"
done
say "user root, password in $data/root-password, unless COHORT__NODE__ROOT_PASSWORD was set at the first start"
say "try: cohort -a 127.0.0.1:5101,127.0.0.1:5102,127.0.0.1:5103 cluster status; Ctrl-C stops all three"
wait
