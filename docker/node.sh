#!/bin/bash
# One node of the cluster of compose.yaml. An empty directory is formatted first. That is safe: a node that has lost
# its volume is refused by the others, which remember the disk of each.
set -eu
config=(--config /etc/cohort/cohort.toml)
if [ -z "$(ls -A /var/lib/cohort)" ]; then
  cohort-server format "${config[@]}"
fi
exec cohort-server "${config[@]}" "$@"
