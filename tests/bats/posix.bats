#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What each call promises (docs/posix.md), one by one. Random sequences of them are parity.bats's.

load ../lib/mount

setup() {
	cistern_setup
	needs_fuse
	needs_program python3
	mount_cistern
}

# py CODE: runs Python in the mount.
py() {
	(cd "$MNT" && python3 -c "import os, sys, errno, fcntl, mmap, stat, ctypes, socket, time
def fails(code, call, *args, **named):
    try:
        call(*args, **named)
    except OSError as e:
        assert e.errno == code, 'errno %s, not %s' % (errno.errorcode[e.errno], errno.errorcode[code])
        return
    raise AssertionError('succeeded, but must fail with ' + errno.errorcode[code])
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    r = getattr(libc, name)(*args)
    if r < 0:
        raise OSError(ctypes.get_errno(), name)
    return r
L = ctypes.c_long
$1")
}

@test "two processes see each other's writes at once" {
	py "
a = os.open('f', os.O_RDWR | os.O_CREAT)
b = os.open('f', os.O_RDONLY)
for i in range(200):
    os.pwrite(a, b'%06d' % i, i * 6)
    if os.fork() == 0:
        os._exit(os.pread(b, 6, i * 6) != b'%06d' % i or os.fstat(b).st_size != i * 6 + 6)
    assert os.wait()[1] == 0, i"
}

@test "O_EXCL lets exactly one of many create a file" {
	py "
pids = []
for i in range(16):
    pid = os.fork()
    if pid == 0:
        won = 0
        for n in range(30):
            try:
                os.close(os.open('x%d' % n, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                won += 1
            except FileExistsError:
                pass
        os._exit(won)
    pids.append(pid)
assert sum(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids) == 30"
}

@test "appends of several processes never overwrite one another" {
	py "
for i in range(8):
    if os.fork() == 0:
        fd = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for n in range(200):
            os.write(fd, b'%d %04d....\n' % (i, n))
        os._exit(0)
for i in range(8):
    assert os.wait()[1] == 0
lines = open('log').read().splitlines()
assert sorted(lines) == ['%d %04d....' % (i, n) for i in range(8) for n in range(200)], len(lines)"
}

@test "a deleted file lives on while it is open" {
	py "
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'a' * 100000)
os.unlink('f')
fails(errno.ENOENT, os.stat, 'f')
os.pwrite(fd, b'b' * 10, 50)
assert os.pread(fd, 100000, 0) == b'a' * 50 + b'b' * 10 + b'a' * 99940
assert os.fstat(fd).st_nlink == 0
os.ftruncate(fd, 7)
assert os.fstat(fd).st_size == 7
os.close(fd)
assert os.listdir('.') == []"
	flush
	is "$(ls -A "$BACKING")" ""
}

@test "rename over an open file leaves the reader with the old one" {
	py "
open('old', 'w').write('old')
open('new', 'w').write('new')
fd = os.open('old', os.O_RDONLY)
os.rename('new', 'old')
assert os.read(fd, 10) == b'old' and open('old').read() == 'new'
assert os.fstat(fd).st_nlink == 0"
}

@test "a directory with files open can be renamed" {
	py "
os.makedirs('a/b')
fd = os.open('a/b/f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'one')
os.rename('a', 'z')
os.write(fd, b'two')
assert open('z/b/f').read() == 'onetwo'
fails(errno.EINVAL, os.rename, 'z', 'z/b/y')
os.mkdir('full')
open('full/x', 'w')
fails(errno.ENOTEMPTY, os.rename, 'z', 'full')
os.mkdir('empty')
os.rename('z', 'empty')
assert open('empty/b/f').read() == 'onetwo'"
}

@test "RENAME_NOREPLACE, RENAME_EXCHANGE; RENAME_WHITEOUT is refused" {
	py "
open('a', 'w').write('A')
open('b', 'w').write('B')
fails(errno.EEXIST, call, 'renameat2', -100, b'a', -100, b'b', 1)
call('renameat2', -100, b'a', -100, b'b', 2)
assert open('a').read() == 'B' and open('b').read() == 'A'
call('renameat2', -100, b'a', -100, b'c', 1)
assert sorted(os.listdir('.')) == ['b', 'c']
fails(errno.EINVAL, call, 'renameat2', -100, b'b', -100, b'd', 4)"
}

@test "hard links share one file" {
	py "
open('a', 'w').write('x')
os.link('a', 'b')
assert os.stat('a').st_ino == os.stat('b').st_ino and os.stat('b').st_nlink == 2
open('b', 'a').write('y')
assert open('a').read() == 'xy'
os.unlink('a')
assert os.stat('b').st_nlink == 1 and open('b').read() == 'xy'
os.mkdir('d')
fails(errno.EPERM, os.link, 'd', 'e')"
}

@test "symbolic links, also dangling and long" {
	py "
os.symlink('nowhere', 'a')
assert os.readlink('a') == 'nowhere' and os.lstat('a').st_size == 7
fails(errno.ENOENT, open, 'a')
os.symlink('x' * 4000, 'long')
assert os.readlink('long') == 'x' * 4000
os.symlink('b', 'b')
fails(errno.ELOOP, open, 'b')"
}

@test "holes read as zeros and are found by SEEK_DATA and SEEK_HOLE" {
	py "
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b'x' * 65536, 1 << 20)
os.ftruncate(fd, 4 << 20)
assert os.pread(fd, 1 << 20, 0) == bytes(1 << 20)
assert os.lseek(fd, 0, os.SEEK_DATA) == 1 << 20
assert os.lseek(fd, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 65536
fails(errno.ENXIO, os.lseek, fd, (1 << 20) + 65536, os.SEEK_DATA)
fails(errno.ENXIO, os.lseek, fd, 4 << 20, os.SEEK_HOLE)
assert os.stat('f').st_blocks * 512 < 1 << 20"
}

@test "fallocate: allocate, keep size, punch, zero; the rest is refused" {
	py "
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 100000)
call('fallocate', fd, 3, L(5000), L(20000))
assert os.pread(fd, 100000, 0) == b'x' * 5000 + bytes(20000) + b'x' * 75000
call('fallocate', fd, 16, L(90000), L(20000))
assert os.fstat(fd).st_size == 110000 and os.pread(fd, 30000, 80000) == b'x' * 10000 + bytes(20000)
call('fallocate', fd, 1, L(0), L(500000))
assert os.fstat(fd).st_size == 110000
call('fallocate', fd, 0, L(0), L(500000))
assert os.fstat(fd).st_size == 500000
fails(errno.EOPNOTSUPP, call, 'fallocate', fd, 8, L(0), L(4096))
fails(errno.EOPNOTSUPP, call, 'fallocate', fd, 32, L(0), L(4096))"
}

# Asks for nothing but these: the kernel may have them at hand when it has forgotten others.
times() {
	stat -c '%y %z' "$1"
}

# differs_from TEXT COMMAND...: in each word but dates.
differs_from() {
	local -a old new
	read -r -a old <<<"$1"
	read -r -a new <<<"$("${@:2}")"
	[ "${old[1]}" != "${new[1]}" ] && [ "${old[4]}" != "${new[4]}" ]
}

@test "stores into a shared mapping are seen by read, and writes by the mapping" {
	py "
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'a' * 20000)
m = mmap.mmap(fd, 20000)
m[5000:5005] = b'HELLO'
assert os.pread(fd, 5, 5000) == b'HELLO'
os.pwrite(fd, b'WORLD', 9000)
assert m[9000:9005] == b'WORLD'
m.flush()
del m
assert open('f').read()[4999:5006] == 'aHELLOa'"
	umount_wait
	is "$(dd if="$BACKING/f" bs=1 skip=5000 count=5 status=none)" HELLO
}

@test "a store into a mapping of a file that was opened again moves its times" {
	local before
	head -c 4096 /dev/zero >"$MNT/f"
	sleep 0.3 # it is released: the kernel keeps what the next look finds
	before=$(times "$MNT/f")
	py "
fd = os.open('f', os.O_RDWR)
m = mmap.mmap(fd, 4096)
assert len(m[:1]) == 1
m[:5] = b'HELLO'
del m
os.close(fd)"
	wait_until 5 differs_from "$before" times "$MNT/f"
}

@test "what is made between opendir and rewinddir, or the first read, is listed" {
	py "
libc = ctypes.CDLL(None, use_errno=True)
class dirent(ctypes.Structure):
    _fields_ = [('ino', ctypes.c_ulong), ('off', ctypes.c_long), ('len', ctypes.c_ushort), ('type', ctypes.c_ubyte), ('name', ctypes.c_char * 256)]
libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
def names(d):
    libc.rewinddir(ctypes.c_void_p(d))
    found = []
    while e := libc.readdir(ctypes.c_void_p(d)):
        found.append(ctypes.cast(e, ctypes.POINTER(dirent)).contents.name)
    return sorted(found)
os.mkdir('d')
d = libc.opendir(b'd')
open('d/one', 'w').close()
assert names(d) == [b'.', b'..', b'one'], names(d)
open('d/two', 'w').close()
os.unlink('d/one')
assert names(d) == [b'.', b'..', b'two']
libc.closedir(ctypes.c_void_p(d))"
}

@test "a program can be run from the mount, and not be written while it runs" {
	cp /bin/sleep "$MNT/sleep"
	"$MNT/sleep" 0
	"$MNT/sleep" infinity 3>&- &
	local pid=$!
	wait_until 60 leads_to "/proc/$pid/exe" "$MNT/sleep"
	exits 1 bash -c 'echo x >>"$1"' - "$MNT/sleep"
	says "busy"
	kill "$pid"
	wait "$pid" || true
}

@test "flock and fcntl locks hold between processes" {
	py "
fd = os.open('f', os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
fcntl.lockf(fd, fcntl.LOCK_EX, 10, 100)
if os.fork() == 0:
    other = os.open('f', os.O_RDWR)
    fails(errno.EAGAIN, fcntl.flock, other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fails(errno.EAGAIN, fcntl.lockf, other, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 105)
    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 110)
    os._exit(0)
assert os.wait()[1] == 0
r, w = os.pipe()
if os.fork() == 0:
    other = os.open('f', os.O_RDWR)
    os.write(w, b'.')
    fcntl.flock(other, fcntl.LOCK_EX)
    os._exit(0)
os.read(r, 1)
fcntl.flock(fd, fcntl.LOCK_UN)
assert os.wait()[1] == 0"
}

@test "xattrs: user. is kept, sizes and errors are as they should be" {
	py "
open('f', 'w')
os.setxattr('f', 'user.a', b'1234567')
os.setxattr('f', 'user.empty', b'')
assert os.getxattr('f', 'user.a') == b'1234567' and os.getxattr('f', 'user.empty') == b''
assert {'user.a', 'user.empty'} <= set(os.listxattr('f'))
fails(errno.EEXIST, os.setxattr, 'f', 'user.a', b'x', os.XATTR_CREATE)
fails(errno.ENODATA, os.setxattr, 'f', 'user.b', b'x', os.XATTR_REPLACE)
fails(errno.ENODATA, os.getxattr, 'f', 'user.b')
buf = ctypes.create_string_buffer(3)
fails(errno.ERANGE, call, 'getxattr', b'f', b'user.a', buf, ctypes.c_size_t(3))
os.removexattr('f', 'user.a')
fails(errno.ENODATA, os.removexattr, 'f', 'user.a')
import struct
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', t, 4, 0xffffffff) for t in (1, 4, 32))
fails(errno.EOPNOTSUPP, os.setxattr, 'f', 'system.posix_acl_access', acl)"
}

@test "FIFOs, sockets and device nodes work, are kept in the store alone, and do not keep it from being deleted" {
	needs_program jq
	py "
os.mknod('plain', stat.S_IFREG | 0o640)
assert stat.S_IMODE(os.stat('plain').st_mode) == 0o640
os.mkdir('d')
os.mkfifo('fifo', 0o600)
if os.fork() == 0:
    open('fifo', 'w').write('through')
    os._exit(0)
assert open('fifo').read() == 'through'
fails(errno.EEXIST, os.mkfifo, 'fifo')
os.chmod('fifo', 0o640)
os.rename('fifo', 'moved')
os.link('moved', 'd/link')
st = os.stat('d/link')
assert stat.S_ISFIFO(st.st_mode) and stat.S_IMODE(st.st_mode) == 0o640 and st.st_nlink == 2 and st.st_size == 0
server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
server.bind('sock'); server.listen(1)
client.connect('sock'); client.send(b'hello')
assert server.accept()[0].recv(9) == b'hello'
assert stat.S_ISSOCK(os.stat('sock').st_mode)
open('f', 'w').write('data')
os.mkfifo('f.new'); os.rename('f.new', 'f')
open('back', 'w').write('data')
os.rename('back', 'sock.gone'); os.mkfifo('gone'); os.unlink('gone')
assert sorted(os.listdir('.')) == ['d', 'f', 'moved', 'plain', 'sock', 'sock.gone'], os.listdir('.')
"
	if [ "$(id -u)" -eq 0 ]; then
		mknod "$MNT/null" c 1 3
		is "$(stat -c '%F %t:%T' "$MNT/null")" 'character special file 1:3'
	fi
	flush
	is "$(cd "$BACKING" && find . ! -type d | sort | tr '\n' ' ')" './plain ./sock.gone '
	is "$(jq -r '.files[] | select(.state == "special") | .path' "$STORE/manifest.json" | sort | grep -vx null | tr '\n' ' ')" 'd/link f moved sock '
	tree_of "$MNT" >"$WORK/before"
	kill_daemon
	mount_cistern
	tree_of "$MNT" | diff "$WORK/before" -
	run umount_wait
	says 'FIFOs, sockets and device nodes are kept in the store alone, and not drained: '
	says 'everything is on'
	is "$("$CISTERN" inspect --json "$STORE" | jq -r '[.files[] | select(.type == "fifo" or .type == "socket") | .path] | sort | join(" ")')" 'd/link f moved sock'
	"$CISTERN" fsck "$STORE"
	"$CISTERN" status --check "$STORE"
	mount_cistern
	rm -r "${MNT:?}"/*
	umount_wait
	is "$(ls -A "$BACKING")" ''
}

@test "O_TMPFILE makes a file without a name, which may get one" {
	py "
here = os.open('.', os.O_RDONLY)
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b'x')
assert os.listdir('.') == []
os.link('/proc/self/fd/%d' % fd, 'named', src_dir_fd=here, follow_symlinks=True)
assert open('named').read() == 'x'
fd = os.open('.', os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
try:
    os.link('/proc/self/fd/%d' % fd, 'never', src_dir_fd=here, follow_symlinks=True)
    assert False, 'O_EXCL'
except FileNotFoundError:
    pass
import tempfile
with tempfile.TemporaryFile(dir='.') as t:
    t.write(b'x' * 10000)
    t.seek(0)
    assert t.read() == b'x' * 10000"
}

@test "times are kept to the nanosecond, and change when they should" {
	py "
open('f', 'w').write('x')
os.utime('f', ns=(1000000000123456789, 1100000000987654321))
s = os.stat('f')
assert s.st_mtime_ns == 1100000000987654321 and s.st_atime_ns == 1000000000123456789
os.chmod('f', 0o600)
assert os.stat('f').st_mtime_ns == 1100000000987654321
assert open('f').read() == 'x'
open('f', 'a').write('y')
assert os.stat('f').st_mtime > time.time() - 60
os.mkdir('d')
os.utime('d', ns=(0, 5))
open('d/x', 'w').close()
assert os.stat('d').st_mtime > time.time() - 60"
	umount_wait
	[ "$(stat -c %Y "$BACKING/f")" -gt 1600000000 ]
}

@test "the set-group-id bit of a directory is inherited" {
	needs_root "chown"
	py "
os.mkdir('d')
os.chown('d', 0, 1234)
os.chmod('d', 0o2775)
open('d/f', 'w')
os.mkdir('d/e')
assert os.stat('d/f').st_gid == 1234 and os.stat('d/e').st_gid == 1234
assert os.stat('d/e').st_mode & stat.S_ISGID"
}

@test "names: as long as 255 bytes, any byte but slash and zero; longer ones are refused" {
	py "
for n in (b'x' * 255, b'\xff\xfe\n\t ', '日本'.encode(), b'-rf', b'a\\\\b'):
    open(n, 'w').write('1')
    assert n in os.listdir(b'.')
fails(errno.ENAMETOOLONG, open, b'x' * 256, 'w')
fails(errno.ENOENT, open, b'no/such', 'w')
fails(errno.ENOTDIR, open, b'-rf/f', 'w')"
	umount_wait
	is "$(find "$BACKING" -type f -print0 | tr -dc '\0' | wc -c)" 5
}

@test "the drain's own names cannot be made" {
	py "
fails(errno.EPERM, open, '.cistern-tmp-1', 'w')
fails(errno.EPERM, os.mkdir, '.cistern-park-1')
open('f', 'w')
fails(errno.EPERM, os.rename, 'f', '.cistern-tmp-2')
fails(errno.EPERM, os.link, 'f', '.cistern-tmp-2')
fails(errno.EPERM, os.symlink, 'f', '.cistern-tmp-2')"
}

@test "readdir of a thousand names, of a directory that changes, rewound and sought" {
	py "
os.mkdir('d')
for i in range(1000):
    open('d/%04d' % i, 'w').close()
assert len(os.listdir('d')) == 1000
with os.scandir('d') as it:
    for n, e in enumerate(it):
        assert e.is_file(follow_symlinks=False)
        os.unlink(e.path)
assert n == 999 and os.listdir('d') == []
os.rmdir('d')"
}

@test "new, changed and deleted files of the backing directory and of the store show together" {
	umount_wait
	mkdir -p "$BACKING/d"
	echo 1 >"$BACKING/d/kept"
	echo 2 >"$BACKING/d/changed"
	echo 3 >"$BACKING/d/deleted"
	mount_cistern
	echo 22 >"$MNT/d/changed"
	rm "$MNT/d/deleted"
	echo 4 >"$MNT/d/new"
	is "$(ls "$MNT/d" | tr '\n' ' ')" "changed kept new "
	is "$(cat "$MNT/d/changed")" 22
	is "$(cat "$BACKING/d/changed")" 2
	echo 5 >"$BACKING/d/beside"
	wait_until 60 test -e "$MNT/d/beside"
	is "$(cat "$MNT/d/beside")" 5
	exits 1 rmdir "$MNT/d"
	says "not empty"
}

@test "O_DIRECT reads and writes see the same bytes as others" {
	py "
fd = os.open('f', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
m = mmap.mmap(-1, 65536)
m[:] = b'd' * 65536
assert os.pwritev(fd, [m], 4096) == 65536
assert open('f', 'rb').read() == bytes(4096) + b'd' * 65536
open('f', 'r+b').write(b'e' * 5000)
assert os.preadv(fd, [m], 0) == 65536
assert bytes(m[:8192]) == b'e' * 5000 + b'd' * 3192"
}

@test "copy_file_range copies, also within one file and beyond its end" {
	py "
open('a', 'wb').write(os.urandom(300000))
data = open('a', 'rb').read()
a, b = os.open('a', os.O_RDWR), os.open('b', os.O_RDWR | os.O_CREAT)
done = 0
while done < 200000:
    n = os.copy_file_range(a, b, 200000 - done, 1000 + done, 50 + done)
    assert n > 0
    done += n
assert open('b', 'rb').read() == bytes(50) + data[1000:201000]
assert os.copy_file_range(a, b, 10, 300000, 0) == 0"
}

@test "fsync, fdatasync and directories' fsync succeed; so does syncfs, of which the daemon is not told" {
	py "
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x')
os.fsync(fd); os.fdatasync(fd)
d = os.open('.', os.O_RDONLY)
os.fsync(d)
call('syncfs', d)
os.open('g', os.O_WRONLY | os.O_CREAT | os.O_SYNC)"
}

@test "umask and open modes are those asked for" {
	py "
os.umask(0o027)
os.close(os.open('f', os.O_CREAT | os.O_WRONLY, 0o666))
os.mkdir('d', 0o777)
assert stat.S_IMODE(os.stat('f').st_mode) == 0o640 and stat.S_IMODE(os.stat('d').st_mode) == 0o750
fd = os.open('ro', os.O_CREAT | os.O_RDWR, 0o444)
os.write(fd, b'x')
assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o440"
}

# Daemon and kernel both give times: of names and attributes the one, of what is written in passthrough the other.
@test "what is done later never looks older: touch and write, chmod and write, in 1000 rounds" {
	py "
open('x', 'w').close()
y = os.open('y', os.O_CREAT | os.O_WRONLY, 0o644)
wrong = [0, 0, 0]
for i in range(1000):
    os.close(os.open('a', os.O_CREAT | os.O_WRONLY, 0o644))
    os.utime('a')
    with open('b', 'w') as f:
        f.write('x')
    wrong[0] += os.stat('a').st_mtime_ns > os.stat('b').st_mtime_ns
    os.chmod('x', 0o600 + i % 8)
    os.write(y, b'y')
    wrong[1] += os.stat('x').st_ctime_ns > os.stat('y').st_mtime_ns
    os.write(y, b'y')
    written = os.fstat(y).st_mtime_ns
    os.chmod('x', 0o600)
    wrong[2] += os.stat('x').st_ctime_ns < written
    if i % 10 == 0:
        os.unlink('b')
assert wrong == [0, 0, 0], wrong"
}

@test "make has nothing to do after make" {
	needs_program make
	cd "$MNT" || return
	printf 'out: mid\n\tcat mid >out\nmid: in\n\tcp in mid\n' >Makefile
	local i
	for i in {1..100}; do
		echo "$i" >in
		make -s
		make -q || { stat -c '%y %n' in mid out; return 1; }
	done
	cd / || return
}

@test "inode numbers fit a double, are each file's own, in stat and in listings, and stay so over drain and remount" {
	py "
for i in range(200):
    open('new%d' % i, 'w').write(str(i))
os.link('new0', 'hard')"
	(cd "$BACKING" && for i in {0..199}; do echo "$i" >"old$i"; done)
	mkdir "$BACKING/d" "$MNT/e"
	numbers >"$WORK/first"
	is "$(awk '{ printf "%.0f\n", $1 }' "$WORK/first" | sort -u | wc -l)" 402
	awk '{ if ($1 + 0 >= 2 ^ 53) exit 1 }' "$WORK/first"
	(cd "$BACKING" && stat -c '%i %n' old* d) >"$WORK/below"
	grep -E ' (old[0-9]+|d)$' "$WORK/first" | sort -k 2 | diff - <(sort -k 2 "$WORK/below")
	for f in new5 old5; do
		is "$(cd "$MNT" && python3 -c "import os; os.stat('$f'); os.truncate('$f', 1); print(os.stat('$f').st_ino, '$f')")" \
			"$(grep " $f$" "$WORK/first")"
	done
	flush
	numbers | diff "$WORK/first" -
	echo more >>"$MNT/old7"
	umount_wait
	mount_cistern
	numbers | diff "$WORK/first" -
}

# numbers: of all names in the mount, as stat and the listing have them.
numbers() {
	(cd "$MNT" && python3 -c "
import os
for e in sorted(os.scandir('.'), key=lambda e: e.name):
    assert e.inode() == os.lstat(e.name).st_ino, (e.name, e.inode(), os.lstat(e.name).st_ino)
    print(e.inode(), e.name)")
}

@test "jq and node see as many files as there are" {
	needs_program jq
	py "
for i in range(64):
    open('f%d' % i, 'w').close()"
	for i in {0..63}; do echo >"$BACKING/g$i"; done
	is "$(cd "$MNT" && stat -c %i -- * | jq -s 'map(. + 0) | unique | length')" 128
	local tar
	tar=$(npm root -g 2>/dev/null)/npm/node_modules/tar
	if command -v node >/dev/null && [ -d "$tar" ]; then
		(cd "$MNT" && for i in {0..63}; do echo "content $i" >"$BACKING/g$i"; echo "new $i" >"f$i"; done
			node -e "require('$tar').create({ sync: true, file: '$WORK/all.tar' }, require('fs').readdirSync('.'))")
		tar -C "$DIRECT" -xf "$WORK/all.tar"
		diff -r "$MNT" "$DIRECT"
	fi
	if command -v node >/dev/null; then
		is "$(cd "$MNT" && node -e 'const fs = require("fs"); console.log(new Set(fs.readdirSync(".").map(n => fs.statSync(n).ino)).size)')" 128
	fi
}
