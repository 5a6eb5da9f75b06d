#!/bin/sh
# TaskProlog: puts the order in force for a job with CLOUDCOLL_MAP in its
# environment, where %j stands for the job's number. Slurm sets for the task what
# is printed here: `cloudcoll run` and `exec` read the map, and MPI programs get the
# library that reorders inside MPI. Only the job's environment decides, since all
# nodes see the same one. Where the files are not seen (yet), the library itself
# makes all ranks keep Slurm's order.
set -u
# shellcheck source=cloudcoll.env
. "$(dirname "$0")/cloudcoll.env"

[ -n "${CLOUDCOLL_MAP:-}" ] || exit 0
map=$(printf %s "$CLOUDCOLL_MAP" | sed "s/%j/$SLURM_JOB_ID/g")
echo "export CLOUDCOLL_MAP=$map"
echo "export CLOUDCOLL_SHIM_MAP=${map%.json}.order"
case ${LD_PRELOAD:-} in
*"$SHIM"*) ;;
*) echo "export LD_PRELOAD=$SHIM${LD_PRELOAD:+:$LD_PRELOAD}" ;;
esac
