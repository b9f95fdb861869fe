#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Everyday programs work in a mount as in a plain directory: the same output, the same status, and the same tree when it is
# drained. Each test runs one kind of program in both.

load "${top_srcdir:?}/tests/lib/mount.bash"

setup() {
	cistern_setup
	needs_fuse
	export HOME=$WORK/home GIT_CONFIG_NOSYSTEM=1 TZ=UTC LC_ALL=C
	mkdir "$HOME"
	make_source "$WORK/source"
	mount_cistern -o drain=idle,idle_interval=50ms,backing_timeout=100ms
}

# make_source DIR: files large and small, links of both kinds, xattrs, modes, holes, empty ones, odd names.
make_source() {
	local k
	mkdir -p "$1/deep/er/est" "$1/empty" "$1/many"
	for k in $(seq 60); do echo "file $k" >"$1/many/f$k"; done
	random_file "$1/large" 3000001
	ln "$1/large" "$1/deep/hard"
	ln "$1/many/f1" "$1/many/hard1"
	ln -s ../large "$1/deep/soft"
	ln -s nowhere "$1/dangling"
	truncate -s 5M "$1/sparse"
	printf end >>"$1/sparse"
	echo x >"$1/deep/er/est/ name with  spaces
and a line"
	: >"$1/nothing"
	chmod 640 "$1/large"
	chmod 1777 "$1/empty"
	setfattr -n user.note -v "kept" "$1/many/f2"
	touch -d '2001-02-03 04:05:06.789' "$1/many/f3" "$1/deep"
}

# in_both COMMAND...: in the mount and in the plain directory; they say and end alike.
in_both() {
	local where status=()
	for where in "$MNT" "$DIRECT"; do
		(cd "$where" && "$@") >"$WORK/said-${where##*/}" 2>&1 && status+=(0) || status+=($?)
	done
	is "$*: ${status[0]}" "$*: ${status[1]}" || { cat "$WORK/said-mnt"; return 1; }
	diff <(sed "s#$DIRECT#$MNT#g" "$WORK/said-direct") "$WORK/said-mnt"
}

arrives() {
	umount_wait
	no_leftovers "$BACKING"
	same_trees "$BACKING" "$DIRECT"
}

@test "tar: out and in, with hard links, holes, xattrs and times; what has changed since" {
	tar -C "$WORK" --xattrs --sparse -cf "$WORK/all.tar" source
	in_both tar --xattrs --sparse -xpf "$WORK/all.tar"
	in_both tar --compare --xattrs -f "$WORK/all.tar"
	in_both tar --sparse --sort=name -cf again.tar source
	in_both bash -c 'tar -tvf again.tar | sort'
	in_both tar --listed-incremental=state -cf one.tar source
	in_both bash -c 'echo new >>source/many/f7; mv source/many/f8 source/many/g8; rm source/many/f9'
	in_both bash -c 'tar --listed-incremental=state -cf two.tar source; tar -tf two.tar | grep many/ | sort'
	rm "$MNT"/*.tar "$DIRECT"/*.tar "$MNT/state" "$DIRECT/state" # times and numbers of inodes are in there
	arrives
}

@test "cpio passes a tree through, with its links" {
	needs_program cpio
	for dir in "$MNT" "$DIRECT"; do
		(cd "$WORK/source" && find . -depth -print0 | cpio -0 -pdm --quiet "$dir")
	done
	in_both bash -c 'find . -depth -print0 | cpio -0 -o -H newc --quiet | cpio -t --quiet | sort'
	in_both bash -c 'find . -type f -links +1 | sort'
	arrives
}

@test "rsync -aHAX copies, finds nothing to do then, and mends what differs" {
	needs_program rsync
	in_both rsync -aHAX "$WORK/source/" copy/
	in_both rsync -aHAXni --delete --checksum "$WORK/source/" copy/
	in_both rsync -aHAXni --delete "$WORK/source/" copy/
	in_both bash -c 'echo more >>copy/large; rm copy/many/f5; mv copy/many/f6 copy/new; ln -f copy/many/f10 copy/many/f11'
	in_both rsync -aHAXi --delete --inplace "$WORK/source/" copy/
	in_both rsync -aHAX copy/ second/
	in_both rsync -aHAXni --delete --checksum "$WORK/source/" second/
	arrives
}

@test "git: commits, branches, merges, a packed clone, and nothing is wrong or changed" {
	needs_program git
	in_both git init -q -b main repo
	for dir in "$MNT" "$DIRECT"; do
		git -C "$dir/repo" config user.email a@b && git -C "$dir/repo" config user.name n && git -C "$dir/repo" config gc.auto 0
		cp -a "$WORK/source/." "$dir/repo/"
	done
	export GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z'
	in_both git -C repo add -A
	in_both git -C repo commit -qm one
	in_both git -C repo status --porcelain
	in_both git -C repo checkout -qb side
	in_both bash -c 'cd repo && for k in $(seq 30); do echo more >>many/f$k; done && git commit -qam two'
	in_both git -C repo checkout -q main
	in_both bash -c 'cd repo && echo other >deep/other && git add -A && git commit -qm three && git merge -q --no-edit side'
	in_both git -C repo gc -q
	in_both git -C repo fsck --full --strict
	in_both git clone -q repo clone
	in_both git -C clone log --format=%H
	in_both git -C clone status --porcelain
	in_both bash -c 'cd clone && rm -r many && git checkout -q . && git status --porcelain && git rev-parse HEAD'
	rm -rf "$MNT/repo/.git" "$DIRECT/repo/.git" "$MNT/clone/.git" "$DIRECT/clone/.git" # its index has times and numbers
	arrives
}

@test "sqlite: a rollback journal, and a write-ahead log with several writers at once" {
	needs_program sqlite3
	for mode in delete wal; do
		in_both sqlite3 $mode.db "pragma journal_mode=$mode; create table t(k integer primary key, v); insert into t(v) values('first');"
		in_both bash -c "for w in 1 2 3; do (for k in \$(seq 40); do
			sqlite3 -cmd '.timeout 20000' $mode.db \"insert into t(v) values('w\$w-\$k');\" || exit 1; done) & done; wait"
		in_both sqlite3 $mode.db "select count(*), count(distinct v) from t; pragma integrity_check;"
		in_both sqlite3 $mode.db "begin; update t set v = v || '-x' where k % 2; commit; pragma wal_checkpoint(truncate); vacuum;"
		in_both sqlite3 $mode.db "select count(*) from t where v like '%-x'; pragma integrity_check;"
	done
	umount_wait
	for mode in delete wal; do # which rows are odd is chance
		is "$(sqlite3 "$BACKING/$mode.db" "select replace(v, '-x', '') as w from t order by w; pragma integrity_check;")" \
			"$(sqlite3 "$DIRECT/$mode.db" "select replace(v, '-x', '') as w from t order by w; pragma integrity_check;")"
	done
}

@test "make builds what is old, and only that, while drains run" {
	local k
	for dir in "$MNT" "$DIRECT"; do
		for k in $(seq 12); do echo "int f$k(void) { return $k; }" >"$dir/f$k.c"; done
		{ for k in $(seq 12); do echo "int f$k(void);"; done; echo "int main(void) { return f1() + f12() == 13 ? 0 : 1; }"; } >"$dir/main.c"
		printf '%s\n' 'objects = $(patsubst %.c,%.o,$(sort $(wildcard *.c)))' 'prog: $(objects)' \
			'	cc -o $@ $(objects)' '%.o: %.c' '	cc -c -o $@ $<' >"$dir/Makefile"
	done
	in_both make -s prog
	in_both ./prog
	for k in $(seq 12); do
		in_both make -q prog
		in_both bash -c "echo '/* $k */' >>f$k.c; make -q prog; echo \$?; make prog"
	done
	in_both make -q prog
	in_both ./prog
	arrives
}

@test "a python environment works where it was made" {
	python3 -m venv --help >/dev/null 2>&1 || skip "python3 has no venv"
	in_both python3 -m venv --without-pip env
	in_both env/bin/python -c 'import sys, json, os; print(os.path.basename(sys.prefix), sys.prefix != sys.base_prefix)'
	in_both bash -c 'mkdir env/pkg && echo "def f(): return 7" >env/pkg/m.py && : >env/pkg/__init__.py && cd env && PYTHONPATH=. bin/python -c "import pkg.m; print(pkg.m.f())"'
	in_both bash -c 'cd env && PYTHONPATH=. bin/python -c "import pkg.m; print(pkg.m.f())" && find pkg -name "*.pyc" | wc -l'
	umount_wait
	"$BACKING/env/bin/python" -c 'pass'
}

@test "farms of hard links, as package managers make them, keep their links and their bytes" {
	in_both cp -a "$WORK/source" store
	in_both bash -c 'for k in 1 2 3 4; do cp -al store farm$k; done'
	in_both bash -c 'stat -c %h store/many/f5 farm4/many/f5 store/large'
	in_both bash -c 'cd farm2 && cp many/f5 t && echo changed >>t && mv t many/f5 && cat ../farm1/many/f5 many/f5'
	in_both bash -c 'echo through >>farm3/many/f6 && cat farm1/many/f6'
	in_both rm -r farm1
	in_both bash -c 'stat -c %h store/many/f7 && cat store/many/f7'
	in_both bash -c 'find store -type f -printf "%n %s %P\n" | sort'
	arrives
	for dir in "$BACKING" "$DIRECT"; do (cd "$dir" && find . -type f -links +1 -printf '%n %P\n' | sort) >"$WORK/links-${dir##*/}"; done
	diff "$WORK/links-backing" "$WORK/links-direct"
}

@test "npm packs the files that are there, each with its own bytes" {
	needs_program npm node
	export npm_config_cache=$WORK/npm npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false npm_config_offline=true
	for dir in "$BACKING" "$DIRECT"; do
		mkdir -p "$dir/package"
		echo '{"name":"five","version":"1.0.0","files":["*"]}' >"$dir/package/package.json"
		mkdir "$dir/linked"
		for k in $(seq 8); do
			echo "module.exports = $k" >"$dir/package/m$k.js"
			ln "$dir/package/m$k.js" "$dir/linked/m$k.js" # npm looks at the numbers of files with links
		done
	done
	in_both bash -c 'cd package && npm pack --silent --pack-destination .. && cd .. && tar -xzf five-1.0.0.tgz --transform s,^package,unpacked, && cat unpacked/m*.js'
	in_both diff -r package unpacked
	in_both bash -c 'mkdir -p app && cd app && echo "{}" >package.json && npm install --silent ../five-1.0.0.tgz && cat node_modules/five/m*.js'
	in_both bash -c 'cd app && node -e "for (k = 1; k <= 8; k++) if (require(\"five/m\" + k) !== k) process.exit(1)"'
	umount_wait
	diff -r "$BACKING/unpacked" "$DIRECT/unpacked"
}
