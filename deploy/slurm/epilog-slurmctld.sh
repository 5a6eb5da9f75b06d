#!/bin/sh
# EpilogSlurmctld: removes what prolog-slurmctld.sh left for a job.
set -u
# shellcheck source=cloudcoll.env
. "$(dirname "$0")/cloudcoll.env"

for kind in nodes log json order; do
  rm -f "$MAPS/$SLURM_JOB_ID.$kind"
done
