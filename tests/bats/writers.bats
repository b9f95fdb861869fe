#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Processes of several nodes write the same files at random; what all of them read, and what is drained, is compared with a model.
# CISTERN_SEED gives other writes, CISTERN_ROUNDS more phases, CISTERN_NODES other jobs, CISTERN_MOUNT other settings of them.

load "${top_srcdir:?}/tests/lib/load.bash"

rounds=${CISTERN_ROUNDS:-12}

@test "the test itself finds what cannot be" {
	writers --phases "$rounds" --kinds apart,overlap "$DIRECT" "$DIRECT"
	mkdir "$WORK/one" "$WORK/other"
	touch "$WORK/one/shared1" "$WORK/other/shared0"
	exits 1 writers "$WORK/one" "$WORK/other"
	says ", phase 1, "
}

@test "random writes of all nodes to the same files: as the model says, everywhere, and so they are drained" {
	only_gets
	start_job "$nodes" "${CISTERN_MOUNT:-}"
	writers --phases "$rounds" --processes $((2 * nodes)) --expect "$DIRECT" --listed "$WORK/listed" $(mounts)
	arrives
	[ "$(jq length "$WORK/listed")" -gt 0 ]
	writers --listed "$WORK/listed" --manifest "$WORK/s0/manifest.json"
}
