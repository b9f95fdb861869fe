#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Random work on all mounts of a job while it is drained without pause: what arrives is what a plain directory has in the end, and
# everybody sees the same all the while. By hand for longer: CISTERN_SEED gives other work, CISTERN_ROUNDS and CISTERN_SECONDS (of each) more
# of it, CISTERN_NODES and CISTERN_FLUSHERS (drains at a time) other jobs.

load "${top_srcdir:?}/tests/lib/load.bash"

seed=${CISTERN_SEED:-5}

@test "random work on all mounts while drains run: the backing directory becomes what a plain one is" {
	echo "seed $seed"
	start_job "${CISTERN_NODES:-3}" "${CISTERN_MOUNT:-}"
	nodes=$JOB_NODES program drained_trees.py --seed "$seed" --rounds "${CISTERN_ROUNDS:-3}" --flushers "${CISTERN_FLUSHERS:-2}" --seconds "${CISTERN_SECONDS:-2}" \
		--log "$WORK/calls.log" "$DIRECT" "$WORK/b" $(nodes=$JOB_NODES mounts)
	arrives
}
