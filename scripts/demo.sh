#!/usr/bin/env bash
# The main job, end to end, on real data: lines go into a cluster of three nodes while the members of a
# consumer group share them. A second and a third consumer join while the first works; one is killed with
# SIGKILL, one leaves; in the middle of it all the node that leads the metadata is killed with SIGKILL, the
# others go on, it is started again and catches up, and then all three are killed at once and started again.
# Then the ledger is read: every acknowledged line came at least once, none twice but what the killed consumer
# had not stored, and the order in each partition was kept.
#
#   make demo                 the binaries of target/release
#   BIN=DIR scripts/demo.sh   those of another directory
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/target/release}
lines_wanted=${LINES_WANTED:-120000}
partitions=12
chunk=500
work=$(mktemp -d "${TMPDIR:-/tmp}/cohort-demo.XXXXXX")
nodes=(0 1 2)
declare -A node_pid=() client=() peer=()
send_pid=
feed_pid=
declare -A consumer_pid=()

say() { printf '%s\n' "demo: $*"; }
fail() {
  printf '%s\n' "demo: FAILED: $*" >&2
  for log in node-0 node-1 node-2 send one two three; do
    [ -s "$work/$log.log" ] || continue
    printf '%s\n' "--- the last lines of $log" >&2
    tail -n 8 "$work/$log.log" >&2
  done
  exit 1
}
clean_up() {
  for pid in $feed_pid $send_pid "${consumer_pid[@]}" "${node_pid[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT
# A moment; conditions are looked at again after it.
moment() { read -rt 0.02 < /dev/zero || true; }

# wait_for SECONDS WHAT COMMAND…: until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || fail "after a long wait still not: $what"
    for node in "${!node_pid[@]}"; do
      kill -0 "${node_pid[$node]}" 2>/dev/null || fail "node $node has ended"
    done
    moment
  done
}

# A port that the kernel has just given to somebody who is gone: a node must know the others' before it starts.
free_port() {
  : > "$work/ready"
  "$bin/cohort-server" --set node.address=127.0.0.1:0 --set node.data_directory="$work/port" \
    --set node.journal.file_size=16MiB --set node.journal.size_max=64MiB > "$work/ready" 2>> "$work/port.log" &
  local pid=$!
  until grep -q 'is ready on' "$work/ready" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null || fail "no port: $(tail -n 1 "$work/port.log")"
    moment
  done
  port=$(sed -n 's/.*is ready on .*:\([0-9]*\)$/\1/p' "$work/ready")
  disown "$pid"
  kill -KILL "$pid"
  while kill -0 "$pid" 2>/dev/null; do moment; done
}
# What makes a server one of the nodes.
of_node() { own=(--set cluster.nodes="$list" --set node.id="$1" --set node.data_directory="$work/node-$1"); }
# Starts nodes and waits until each says that it is ready.
start_nodes() {
  local node
  for node in "$@"; do
    : > "$work/ready-$node"
    of_node "$node"
    "$bin/cohort-server" "${own[@]}" > "$work/ready-$node" 2>> "$work/node-$node.log" &
    node_pid[$node]=$!
  done
  for node in "$@"; do
    wait_for 30 "node $node is ready" grep -q 'is ready on' "$work/ready-$node"
  done
}
kill_nodes() {
  local node
  for node in "$@"; do
    disown "${node_pid[$node]}"
    kill -KILL "${node_pid[$node]}"
  done
  for node in "$@"; do
    while kill -0 "${node_pid[$node]}" 2>/dev/null; do moment; done
    unset "node_pid[$node]"
  done
}

export COHORT__CLUSTER__ID=demo COHORT__CLUSTER__SECRET='of no use elsewhere'
export COHORT__NODE__ROOT_PASSWORD=demo-password
export COHORT_USER=root COHORT_PASSWORD=demo-password
cohort() { "$bin/cohort" --address "$address" "$@"; }

# Lines that the send's ledger says are acknowledged.
acknowledged() {
  awk '/"first_line"/ { match($0, /"first":[0-9]+/)
      first = substr($0, RSTART + 8, RLENGTH - 8)
      if (match($0, /"last":[0-9]+/)) count += substr($0, RSTART + 7, RLENGTH - 7) - first + 1 }
    END { print count + 0 }' "$work/ledger"
}
# Lines that consumers have written: all, or those of one.
consumed() { cat "$work"/${1:-*}.out 2>/dev/null | wc -l; }
has_consumed() { [ "$(consumed "$1")" -ge "$2" ]; }
sends() { kill -0 "$send_pid" 2>/dev/null && kill -0 "$feed_pid" 2>/dev/null; }

start_consumer() {
  : > "$work/$1.out"
  "$bin/cohort" --address "$address" consume demo lines --group readers --follow \
    > "$work/$1.out" 2>> "$work/$1.log" &
  consumer_pid[$1]=$!
}
# phase WHAT: what is about to happen happens while lines are sent and read.
phase() {
  local before
  before=$(consumed)
  wait_for 60 "lines are read before: $1" has_consumed '*' $((before + 3 * chunk))
  sends || fail "nothing was in flight: $1"
  say "$1 ($(consumed) lines read so far)"
}
# The counters of a node, each with its value.
stats() {
  "$bin/cohort" --address "${client[$1]}" stats -o json | tr ',{}' '\n' | sed -n 's/^ *"\([a-z_]*\)": *\([0-9]*\)$/\1 \2/p'
}
# Adds the counters of nodes to the sums; they begin at 0 with every start.
declare -A counters=()
add_counters() {
  local node name value
  for node in "$@"; do
    while read -r name value; do counters[$name]=$((${counters[$name]:-0} + value)); done < <(stats "$node")
  done
}
nothing_moves() {
  local node
  for node in "${!node_pid[@]}"; do
    [ "$(stats "$node" | sed -n 's/^moving //p')" = 0 ] || return 1
  done
}
# The node that leads the metadata, and how many nodes are known to be as far as the others.
# The first such line is that of the group; the others are those of its replicas.
leader() { { cohort cluster status || true; } | awk '$1 == "0" && $2 == "(metadata)" && !seen++ { print $4 }'; }
all_caught_up() { [ "$({ cohort cluster status || true; } | awk '$6 == "answers" && $5 < 50' | wc -l)" = 3 ]; }

# Real lines: the sources of this repository, each line with its number in front, fed until the story is
# over and enough lines are sent.
while IFS= read -r file; do sources+=("$file"); done < <(find "$root/core" -name '*.rs' -not -path '*/target/*' | sort)
mkdir "$work/chunks"
cat "${sources[@]}" | awk '{ print NR "|" $0 }' > "$work/source"
source_lines=$(wc -l < "$work/source")
mkfifo "$work/input"
feed() {
  local fed=0
  until [ -e "$work/enough" ] && [ "$fed" -ge "$lines_wanted" ]; do
    # Numbers go on where the sources begin again.
    awk -v from="$fed" -v n="$chunk" -v total="$source_lines" '
      BEGIN { first = from % total + 1 }
      NR >= first { sub(/^[0-9]+/, ++number + from); print; if (number == n) exit }' "$work/source" |
      tee -a "$work/sent"
    fed=$(wc -l < "$work/sent")
  done
}

for node in "${nodes[@]}"; do
  free_port; client[$node]=127.0.0.1:$port
  free_port; peer[$node]=127.0.0.1:$port
done
list="0 ${client[0]} ${peer[0]}, 1 ${client[1]} ${peer[1]}, 2 ${client[2]} ${peer[2]}"
address=${client[0]},${client[1]},${client[2]}
for node in "${nodes[@]}"; do
  of_node "$node"
  "$bin/cohort-server" format "${own[@]}" 2>> "$work/node-$node.log" || fail "node $node is not formatted"
done
start_nodes "${nodes[@]}"
say "three nodes on $address, data in $work"
cohort stream create demo > /dev/null
cohort topic create demo lines --partitions "$partitions" > /dev/null
cohort group create demo lines readers --rebalance-timeout 10s > /dev/null
feed > "$work/input" &
feed_pid=$!
# Small batches, so that there are many moments at which a kill can hit.
: > "$work/ledger"
cohort send demo lines --batch-messages 100 --acknowledged -o json \
  < "$work/input" > "$work/ledger" 2> "$work/send.log" &
send_pid=$!

start_consumer one
phase "a second consumer joins the first"
start_consumer two
wait_for 30 "the second consumer reads" has_consumed two "$chunk"
phase "a third consumer joins"
start_consumer three
wait_for 30 "the third consumer reads" has_consumed three "$chunk"
phase "the second consumer is killed with SIGKILL"
disown "${consumer_pid[two]}"
kill -KILL "${consumer_pid[two]}"
wait_for 30 "its partitions are with the others" nothing_moves
hit_at_work() {
  local before
  before=$(acknowledged)
  sends || fail "the kill hit idle nodes: sending had ended"
  [ "$before" -lt "$(wc -l < "$work/sent")" ] || fail "the kill hit idle nodes: everything was acknowledged"
}
has_acknowledged() { [ "$(acknowledged)" -ge "$1" ]; }
victim=$(leader)
phase "node $victim, which leads the metadata, is killed with SIGKILL"
add_counters "$victim"
kill_nodes "$victim"
hit_at_work
wait_for 30 "the others acknowledge lines" has_acknowledged $(($(acknowledged) + 3 * chunk))
phase "the others go on; node $victim is started again"
[ "$(leader)" != "$victim" ] || fail "node $victim is gone and leads"
start_nodes "$victim"
wait_for 60 "node $victim has caught up" all_caught_up
phase "all three nodes are killed with SIGKILL"
add_counters "${nodes[@]}"
kill_nodes "${nodes[@]}"
hit_at_work
start_nodes "${nodes[@]}"
say "started again: $(grep -ho 'elapsed=[^ ]*' "$work"/node-?.log | tail -n 3 | tr '\n' ' ')"
phase "the third consumer leaves"
kill -TERM "${consumer_pid[three]}"
wait "${consumer_pid[three]}" || fail "the third consumer did not leave cleanly"
unset 'consumer_pid[three]'
phase "the rest is sent and read"

: > "$work/enough"
wait "$feed_pid" || fail "the lines could not be fed"
feed_pid=
wait "$send_pid" || fail "cohort send: $(tail -n 3 "$work/send.log")"
send_pid=
total=$(wc -l < "$work/sent")
after=$(acknowledged)
[ "$after" -eq "$total" ] || fail "$after of $total lines are acknowledged"
# What the killed consumer wrote last may be half a line.
[ -z "$(tail -c 1 "$work/two.out")" ] || sed -i '$d' "$work/two.out"
everything_read() { [ "$(cut -f 3 "$work"/*.out | cut -d '|' -f 1 | sort -u | wc -l)" -ge "$total" ]; }
wait_for 60 "all $total lines are read" everything_read
kill -TERM "${consumer_pid[one]}"
wait "${consumer_pid[one]}" || fail "the first consumer did not leave cleanly"
unset 'consumer_pid[one]'
add_counters "${nodes[@]}"

# partition:offset <tab> key <tab> number|line, the killed consumer's first. Repeated is only what it wrote
# last in a partition: it stores in order, so what it had not stored is the end of what it wrote.
awk -F'\t' -v total="$total" '
  FNR == 1 { file++ }
  { split($1, place, ":"); p = place[1]; o = place[2] + 0; n = $3 + 0; key = p ":" o
    if ((file, p) in last && o <= last[file, p]) { print FILENAME ": " $1 " follows offset " last[file, p]; bad = 1 }
    last[file, p] = o
    if ((n in where) && where[n] != key) { print "line " n " is at " where[n] " and at " key; bad = 1 }
    if (!(n in where)) { where[n] = key; count++ }
    if (file == 1) { killed[key] = 1; next }
    if (seen[key]++) { print $1 " came twice to living consumers"; bad = 1 }
    if (key in killed) { repeated[key] = 1; repeats++; if (!(p in low) || o < low[p]) low[p] = o } }
  END { for (key in killed) { split(key, place, ":"); p = place[1]
      if ((p in low) && place[2] + 0 >= low[p] && !(key in repeated)) { print key " did not come again, but one before it did"; bad = 1 } }
    if (count != total) { print count " lines came, " total " were acknowledged"; bad = 1 }
    print repeats + 0 > "/dev/stderr"
    exit bad }' "$work/two.out" "$work/one.out" "$work/three.out" > "$work/verdict" 2> "$work/repeats" ||
  fail "$(head -n 5 "$work/verdict")"
finished=$((${counters[moves_released]:-0} + ${counters[moves_drained]:-0}))
[ "$finished" -gt 0 ] || fail "no partition was handed over by a member that had finished"
[ "${counters[moves_from_nobody]:-0}" -gt 0 ] || fail "no partition of the killed consumer went on elsewhere"
say "handed over: ${counters[moves_released]:-0} released, ${counters[moves_drained]:-0} drained, ${counters[moves_from_nobody]} of a consumer that was gone"

# What is stored, line by line, and once: a reader of its own sees everything from the beginning.
cohort consume demo lines --from first --count "$total" -o raw | LC_ALL=C sort -n -t'|' -k1,1 |
  cmp - "$work/sent" || fail "the contents differ"

for node in "${nodes[@]}"; do
  kill -TERM "${node_pid[$node]}"
  wait "${node_pid[$node]}" || fail "node $node did not stop cleanly"
  unset "node_pid[$node]"
done
say "OK: $total lines, each at least once and in order; $(cat "$work/repeats") came again, all of them what the killed consumer had not stored"
