#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Random work on all mounts of a job while it is drained without pause: what arrives is what a plain directory has in the end, and
# everybody sees the same all the while. By hand ("make drains"), since not each run is clean yet (docs/design/many-nodes.md, 8). CISTERN_SEED repeats what a run has printed, CISTERN_ROUNDS, CISTERN_SECONDS (of each), CISTERN_NODES, CISTERN_FLUSHERS give others.

load "${top_srcdir:?}/tests/lib/load.bash"

seed=${CISTERN_SEED:-$RANDOM}

@test "random work on all mounts while drains run: the backing directory becomes what a plain one is" {
	echo "seed $seed" | tee /dev/fd/3
	start_job "${CISTERN_NODES:-3}" "${CISTERN_MOUNT:-}"
	nodes=$JOB_NODES program drained_trees.py --seed "$seed" --rounds "${CISTERN_ROUNDS:-2}" --flushers "${CISTERN_FLUSHERS:-1}" --seconds "${CISTERN_SECONDS:-4}" \
		--log "$WORK/calls.log" "$DIRECT" "$WORK/b" $(nodes=$JOB_NODES mounts)
	arrives
}
