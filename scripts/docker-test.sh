#!/usr/bin/env bash
# docker/: builds the image, starts the cluster of compose.yaml, cuts one node off the network, sees the others go
# on, and lets it back. Skipped with a notice where no container engine or no compose answers.
#
#   make docker-test
#
# It needs no registry: the images that the Dockerfile begins with are made here, of this host's own files, and in
# the one that would build the programs `cargo` hands out those of target/release.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
say() { printf '%s\n' "docker-test: $*"; }

if [ "${1:-}" = --probe ]; then
  # Whether there is anything to test with: says why not.
  timeout 10 docker version --format '{{.Server.Version}}' > /dev/null 2>&1 || { say "skipped: no container engine answers"; exit 1; }
  docker compose version > /dev/null 2>&1 || docker-compose version > /dev/null 2>&1 || { say "skipped: no docker compose"; exit 1; }
  exit 0
fi

"$0" --probe || exit 0
bin=${BIN:-$root/target/release}
work=$(mktemp -d "${TMPDIR:-/tmp}/cohort-docker.XXXXXX")
name=cohort-test-$$
compose=(docker-compose)
! docker compose version > /dev/null 2>&1 || compose=(docker compose)
compose+=(-p "$name" -f compose.yaml)
cd "$root/docker"

# Ports of this machine that nobody listens on.
free_port() {
  local port
  while port=$((20000 + RANDOM % 20000)); (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do :; done
  echo "$port"
}
export COHORT_IMAGE=$name COHORT_SECRET=of-no-use-elsewhere COHORT_ROOT_PASSWORD=correct-horse
export COHORT_PORT_0=$(free_port) COHORT_PORT_1=$(free_port) COHORT_PORT_2=$(free_port)
export COHORT_PASSWORD=$COHORT_ROOT_PASSWORD
export COHORT_ADDRESS=127.0.0.1:$COHORT_PORT_0,127.0.0.1:$COHORT_PORT_1,127.0.0.1:$COHORT_PORT_2
cohort() { "$bin/cohort" "$@"; }

clean() {
  "${compose[@]}" down --volumes --timeout 5 > /dev/null 2>&1 || true
  docker rm -f "$name-alone" > /dev/null 2>&1 || true
  docker rmi -f "$name" "$name-rust" "$name-base" > /dev/null 2>&1 || true
  # What the first stage of the Dockerfile leaves behind has no name.
  docker image prune -f --filter "label=cohort.test=$name" > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean EXIT
fail() {
  say "FAILED: $*" >&2
  "${compose[@]}" logs --tail 20 >&2 || true
  exit 1
}
# Tries a command until it succeeds.
wait_for() {
  local what=$1 deadline=$((SECONDS + 90))
  shift
  until "$@" > "$work/last" 2>&1; do
    [ $SECONDS -lt $deadline ] || { cat "$work/last" >&2; fail "waited in vain: $what"; }
    sleep 0.2
  done
  say "$what"
}

# A file system with these programs of the host and the libraries that they need.
file_system() {
  local at=$1 program library
  shift
  mkdir -p "$at"/{etc,tmp,usr/bin,usr/sbin,usr/local/bin,var/lib,var/log,proc,sys,dev}
  for link in bin sbin lib lib64; do mkdir -p "$at/usr/$link"; ln -s "usr/$link" "$at/$link"; done
  chmod 1777 "$at/tmp"
  printf 'root:x:0:0:root:/root:/bin/bash\n' > "$at/etc/passwd"
  printf 'root:x:0:\n' > "$at/etc/group"
  printf 'passwd: files\ngroup: files\nhosts: files dns\n' > "$at/etc/nsswitch.conf"
  for program in "$@"; do
    program=$(command -v "$program")
    install -D "$program" "$at$program"
    ldd "$program" 2> /dev/null | grep -o '/[^ ]*' | while read -r library; do
      [ -e "$at$library" ] || { mkdir -p "$at$(dirname "$library")"; cp -L "$library" "$at$library"; }
    done
  done
}

say "making the images"
base=$work/base
file_system "$base" bash sh ls install useradd groupadd id chown mkdir cat "$bin/cohort-server" "$bin/cohort"
rm "$base$bin/cohort-server" "$base$bin/cohort"
tar -C "$base" -c . | docker import --change "LABEL cohort.test=$name" - "$name-base" > /dev/null
install -D "$bin/cohort-server" "$base/built/cohort-server"
install -D "$bin/cohort" "$base/built/cohort"
cat > "$base/usr/bin/cargo" <<'END'
#!/bin/bash
[ -f Cargo.toml ] && [ -f core/server/Cargo.toml ] && [ -d configs ] || { echo "the sources are not here"; exit 1; }
mkdir -p target/release && install /built/cohort-server /built/cohort target/release
END
chmod +x "$base/usr/bin/cargo"
tar -C "$base" -c . | docker import --change "LABEL cohort.test=$name" - "$name-rust" > /dev/null
mkdir "$work/context"
tar -C "$root" -c Cargo.toml Cargo.lock configs core docker | tar -C "$work/context" -x
docker build -q -f "$work/context/docker/Dockerfile" -t "$name" \
  --build-arg "RUST=$name-rust" --build-arg "BASE=$name-base" "$work/context" > "$work/build" 2>&1 \
  || { cat "$work/build" >&2; fail "the image is not built"; }

say "starting three nodes"
"${compose[@]}" up -d > "$work/up" 2>&1 || { cat "$work/up" >&2; fail "the cluster does not start"; }
status_has() { cohort cluster status > "$work/status" && grep -q "$1" "$work/status"; }
wait_for "three nodes answer, and everything is led" status_has '3 of 3 answer: every'
for node in 0 1 2; do
  logs=$("${compose[@]}" logs "node-$node" 2>&1)
  grep -q 'driver="\?io_uring' <<< "$logs" || fail "node $node does not use io_uring though the profile allows it"
done

send() { seq "$1" "$2" | cohort send shop orders > "$work/sent" 2>&1; }
received() { cohort consume shop orders --from first --count "$1" > "$work/got" 2> "$work/consumed"; }
cohort stream create shop > /dev/null
cohort topic create shop orders --partitions 6 > /dev/null
send 1 500 || { cat "$work/sent" >&2; fail "nothing is sent"; }

# The node that leads the metadata: the hardest to do without.
victim=$(awk '$1 == "0" && $2 == "(metadata)" && !seen++ { print $4 }' "$work/status")
say "cutting node $victim off the network"
container=$("${compose[@]}" ps -q "node-$victim")
docker network disconnect "${name}_nodes" "$container"
wait_for "the others lead everything" status_has '2 of 3 answer: every'
send 501 1000 || { cat "$work/sent" >&2; fail "the others take nothing"; }
docker network connect --alias "node-$victim" "${name}_nodes" "$container"
equal() {
  status_has '3 of 3 answer: every' && cohort cluster status --digests -o json > "$work/json" || return 1
  # One digest for each of the consensus groups, three times.
  local digests
  digests=$(grep -o '"digest": "[0-9a-f]*"' "$work/json" | sort | uniq -c)
  ! grep -qv '^ *3 ' <<< "$digests"
}
wait_for "node $victim is back, and all three have the same states" equal
received 1000 || { cat "$work/consumed" >&2; fail "what was sent is not read"; }
[ "$(sort -n "$work/got" | uniq | wc -l)" = 1000 ] || fail "not all of the 1000 lines came back"

say "one node whose profile refuses io_uring, as that of most engines does"
sed 's/"acct",/"acct", "io_uring_setup", "io_uring_enter", "io_uring_register",/' seccomp.json > "$work/refused.json"
docker run -d --name "$name-alone" --security-opt "seccomp=$work/refused.json" "$name" > /dev/null
alone() { docker logs "$name-alone" > "$work/alone" 2>&1; grep -q 'driver=' "$work/alone"; }
wait_for "it serves" alone
grep -q 'io_uring is refused' "$work/alone" || { cat "$work/alone" >&2; fail "it does not say so"; }
grep -q 'driver="\?polling' "$work/alone" || { cat "$work/alone" >&2; fail "it does not poll"; }
say "passed"
