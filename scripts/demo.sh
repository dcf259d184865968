#!/usr/bin/env bash
# The main job, end to end, on real data: lines go in while the members of a consumer group share them.
# A second and a third consumer join while the first works; one is killed with SIGKILL, one leaves; the
# server is killed with SIGKILL in the middle of it all and started again. Then the ledger is read: every
# acknowledged line came at least once, none twice but what the killed consumer had not stored, and the
# order in each partition was kept.
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
server_pid=
send_pid=
feed_pid=
declare -A consumer_pid=()

say() { printf '%s\n' "demo: $*"; }
fail() {
  printf '%s\n' "demo: FAILED: $*" >&2
  for log in server send one two three; do
    [ -s "$work/$log.log" ] || continue
    printf '%s\n' "--- the last lines of $log" >&2
    tail -n 8 "$work/$log.log" >&2
  done
  exit 1
}
clean_up() {
  for pid in $feed_pid $send_pid "${consumer_pid[@]}" $server_pid; do kill -KILL "$pid" 2>/dev/null || true; done
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
    kill -0 "$server_pid" 2>/dev/null || fail "the server has ended"
    moment
  done
}

# Starts the server on the address given and waits until it says that it is ready.
start_server() {
  : > "$work/ready"
  "$bin/cohort-server" --set node.address="$1" --set node.data_directory="$work/data" \
    > "$work/ready" 2>> "$work/server.log" &
  server_pid=$!
  wait_for 30 "the server is ready" grep -q 'is ready on' "$work/ready"
  address=$(sed -n 's/.*is ready on //p' "$work/ready")
}

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
# Adds the server's counters to the sums; they begin at 0 with every start.
add_counters() {
  local name value
  while read -r name value; do counters[$name]=$((${counters[$name]:-0} + value)); done < <(
    cohort stats -o json | tr ',{}' '\n' | sed -n 's/^ *"\([a-z_]*\)": *\([0-9]*\)$/\1 \2/p')
}
declare -A counters=()
moves() { cohort stats -o json | tr ',{}' '\n' | sed -n 's/^ *"moving": *\([0-9]*\)$/\1/p'; }
nothing_moves() { [ "$(moves)" = 0 ]; }

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

start_server 127.0.0.1:0
say "server on $address, data in $work/data"
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
phase "the server is killed with SIGKILL"
add_counters
disown "$server_pid"
kill -KILL "$server_pid"
while kill -0 "$server_pid" 2>/dev/null; do moment; done
before=$(acknowledged)
sends || fail "the kill hit an idle server: sending had ended"
[ "$before" -lt "$(wc -l < "$work/sent")" ] || fail "the kill hit an idle server: everything was acknowledged"
start_server "$address"
say "started again: $(grep -o 'elapsed=[^ ]*' "$work/server.log" | tail -n 1)"
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
add_counters

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

kill -TERM "$server_pid"
wait "$server_pid" || fail "the server did not stop cleanly"
server_pid=
say "OK: $total lines, each at least once and in order; $(cat "$work/repeats") came again, all of them what the killed consumer had not stored"
