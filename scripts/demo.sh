#!/usr/bin/env bash
# The main job, end to end, on real data: lines go in, the server is killed with SIGKILL while they are
# in flight and started again, and every line that was acknowledged comes back once, in order.
#
#   make demo                 the binaries of target/release
#   BIN=DIR scripts/demo.sh   those of another directory
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/target/release}
lines_wanted=${LINES_WANTED:-120000}
partitions=6
work=$(mktemp -d "${TMPDIR:-/tmp}/cohort-demo.XXXXXX")
server_pid=
send_pid=

say() { printf '%s\n' "demo: $*"; }
fail() {
  printf '%s\n' "demo: FAILED: $*" >&2
  printf '%s\n' "--- the server's last lines" >&2
  tail -n 20 "$work/server.log" >&2 || true
  exit 1
}
clean_up() {
  for pid in $send_pid $server_pid; do kill -KILL "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT

# Starts the server on the address given and waits until it says that it is ready.
start_server() {
  : > "$work/ready"
  "$bin/cohort-server" --set node.address="$1" --set node.data_directory="$work/data" \
    > "$work/ready" 2>> "$work/server.log" &
  server_pid=$!
  local deadline=$((SECONDS + 30))
  until grep -q 'is ready on' "$work/ready"; do
    kill -0 "$server_pid" 2>/dev/null || fail "the server did not start"
    [ "$SECONDS" -lt "$deadline" ] || fail "the server is not ready after 30 s"
    read -rt 0.02 < /dev/zero || true
  done
  address=$(sed -n 's/.*is ready on //p' "$work/ready")
}

# Prints how many lines the ledger says are acknowledged.
acknowledged() {
  awk '/"first_line"/ { match($0, /"first":[0-9]+/)
      first = substr($0, RSTART + 8, RLENGTH - 8)
      if (match($0, /"last":[0-9]+/)) count += substr($0, RSTART + 7, RLENGTH - 7) - first + 1 }
    END { print count + 0 }' "$work/ledger"
}

export COHORT__NODE__ROOT_PASSWORD=demo-password
export COHORT_USER=root COHORT_PASSWORD=demo-password
cohort() { "$bin/cohort" --address "$address" "$@"; }

# Real lines: the sources of this repository, each line with its number in front, as often as needed.
while IFS= read -r file; do sources+=("$file"); done < <(find "$root/core" -name '*.rs' -not -path '*/target/*' | sort)
: > "$work/lines"
while [ "$(wc -l < "$work/lines")" -lt "$lines_wanted" ]; do cat "${sources[@]}" >> "$work/lines"; done
awk '{ print NR "|" $0 }' "$work/lines" > "$work/input"
total=$(wc -l < "$work/input")
say "$total lines of ${#sources[@]} source files"

start_server 127.0.0.1:0
say "server on $address, data in $work/data"
cohort stream create demo > /dev/null
cohort topic create demo lines --partitions "$partitions" > /dev/null

# Small batches, so that there are many moments at which the kill can hit.
: > "$work/ledger"
cohort send demo lines --file "$work/input" --batch-messages 200 --acknowledged -o json \
  > "$work/ledger" 2> "$work/send.log" &
send_pid=$!

# Kill it when a part is acknowledged and the rest is on its way.
deadline=$((SECONDS + 60))
until [ "$(acknowledged)" -ge $((total / 10)) ]; do
  kill -0 "$send_pid" 2>/dev/null || fail "sending ended before the kill: $(tail -n 3 "$work/send.log")"
  [ "$SECONDS" -lt "$deadline" ] || fail "a tenth of the lines is not acknowledged after 60 s"
done
disown "$server_pid"
kill -KILL "$server_pid"
while kill -0 "$server_pid" 2>/dev/null; do :; done
before=$(acknowledged)
kill -0 "$send_pid" 2>/dev/null || fail "the kill hit an idle server: sending had ended"
[ "$before" -lt "$total" ] || fail "the kill hit an idle server: everything was acknowledged"
say "killed with SIGKILL after $before of $total lines were acknowledged"

start_server "$address"
say "started again: $(grep -o 'elapsed=[^ ]*' "$work/server.log" | tail -n 1)"
grep -h 'it was never acknowledged' "$work/server.log" | sed 's/^/demo:   /' || true
wait "$send_pid" || fail "cohort send: $(tail -n 3 "$work/send.log")"
send_pid=
after=$(acknowledged)
[ "$after" -eq "$total" ] || fail "$after of $total lines are acknowledged"
say "the same cohort send went on: $after lines acknowledged"

cohort consume demo lines --from first --count "$total" > "$work/output" 2> "$work/consume.log" ||
  fail "cohort consume: $(tail -n 3 "$work/consume.log")"

# partition:offset <tab> key <tab> number|line: dense offsets, rising numbers in each partition, every
# number once, and what the ledger says is where it says.
awk -F'\t' -v total="$total" '
  FNR == NR { if (!/"first_line"/) next
    match($0, /"first":[0-9]+/);      first = substr($0, RSTART + 8, RLENGTH - 8) + 0
    match($0, /"last":[0-9]+/);       last = substr($0, RSTART + 7, RLENGTH - 7) + 0
    match($0, /"first_line":[0-9]+/); fl = substr($0, RSTART + 13, RLENGTH - 13) + 0
    match($0, /"last_line":[0-9]+/);  ll = substr($0, RSTART + 12, RLENGTH - 12) + 0
    match($0, /"partition":[0-9]+/);  p = substr($0, RSTART + 12, RLENGTH - 12) + 0
    claim[p ":" first] = fl; claim[p ":" last] = ll; ranges++
    next }
  { split($1, place, ":"); p = place[1]; o = place[2] + 0; n = $3 + 0
    if (o != next_offset[p] + 0) { print "partition " p ": offset " o " follows " next_offset[p] - 1; bad = 1 }
    next_offset[p] = o + 1
    if (n <= last_number[p] + 0) { print "partition " p ": line " n " follows line " last_number[p]; bad = 1 }
    last_number[p] = n
    if (seen[n]++) { print "line " n " came twice"; bad = 1 }
    if (($1 in claim) && claim[$1] != n) { print $1 " holds line " n ", acknowledged was " claim[$1]; bad = 1 }
    delete claim[$1]; count++ }
  END { for (c in claim) { print "acknowledged and not there: " c; bad = 1 }
    if (count != total) { print count " lines came back, " total " were sent"; bad = 1 }
    if (ranges < 10) { print "the ledger has " ranges + 0 " ranges only"; bad = 1 }
    exit bad }' "$work/ledger" "$work/output" > "$work/verdict" || fail "$(head -n 5 "$work/verdict")"

# The contents, too: what came back is what went in, line by line.
cohort consume demo lines --from first --count "$total" -o raw | LC_ALL=C sort -n -t'|' -k1,1 |
  cmp - "$work/input" || fail "the contents differ"

kill -TERM "$server_pid"
wait "$server_pid" || fail "the server did not stop cleanly"
server_pid=
say "OK: $total lines, each once and in order in $partitions partitions, through SIGKILL and restart"
