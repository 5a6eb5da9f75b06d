#!/bin/sh
# PrologSlurmctld: finds the order for the nodes of a job with --comment=cloudcoll
# before it starts. If anything goes wrong, the job keeps Slurm's order: any exit
# code but 0 would put it back into the queue.
set -u
trap 'exit 0' EXIT
# shellcheck source=cloudcoll.env
. "$(dirname "$0")/cloudcoll.env"

[ "${SLURM_JOB_COMMENT:-}" = cloudcoll ] || exit
map=$MAPS/$SLURM_JOB_ID
umask 022
echo "$SLURM_JOB_NODELIST" >"$map.nodes"
# shellcheck disable=SC2086 # SOLVE is several words
timeout 60 "$PREFIX/bin/cloudcoll" solve "$SNAPSHOT" --hostfile "$map.nodes" \
  $SOLVE --time 10 -o "$map.json" >"$map.log" 2>&1 &&
  "$PREFIX/bin/cloudcoll" export "$map.json" --format seq -o "$map.order"
