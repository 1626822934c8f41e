#!/bin/bash
# One training on several machines without Slurm: start this on each of them, in the project's folder, which all see at
# the same path, with the same execution settings (launcher local; here nodes 2, devices 8):
#
#   infra/torchrun/stage.sh 2 0 node-a:29400 8 -m lexmill.stages.train gpt       on node-a
#   infra/torchrun/stage.sh 2 1 node-a:29400 8 -m lexmill.stages.train gpt       on the other
#
# The arguments: how many machines; the rank of this one; where the first one listens, at a port that is free there; the
# processes of each; the stage. They wait for each other, and the first one writes the outputs. It ends as the stage
# does (docs/launchers.md). SIGTERM or Ctrl-C on any machine saves and ends all.
set -u
if [ $# -lt 6 ] || [ "${3%:*}" = "$3" ]; then
  echo "usage: $0 NODES NODE_RANK ADDRESS:PORT PROCESSES -m lexmill.stages.NAME KEY" >&2
  exit 2
fi
nodes=$1 rank=$2 address=${3%:*} port=${3##*:} processes=$4
shift 4
# By this the stage knows that it is started already; it leaves its end there.
export LEXMILL_JOB=$PWD/.lexmill/jobs/torchrun-$address-$port
mkdir -p "$LEXMILL_JOB"
exec "${LEXMILL_PYTHON:-$PWD/.venv/bin/python}" -m lexmill.compute.group --nnodes="$nodes" --node-rank="$rank" \
  --master-addr="$address" --master-port="$port" --nproc-per-node="$processes" "$@"
