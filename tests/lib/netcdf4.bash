# SPDX-License-Identifier: GPL-3.0-or-later
#
# For bats files about netCDF-4 files that are made of classic ones; load tests/lib/mount.bash, too.

# All that a classic file can have: T stands before its coordinates, lev has two dimensions, odd only a dimension's name.
everything() {
	cat <<'END'
netcdf everything {
dimensions:
	time = UNLIMITED ; lat = 3 ; lon = 4 ; chars = 5 ; unused = 7 ; lev = 2 ; odd = 2 ; station = 3 ;
variables:
	float T(time, lev, lat, lon) ;
		T:_FillValue = -9.f ;
		T:vector = 1., 2.5, -3. ;
		T:coordinates = "lat lon" ;
	double time(time) ;
		time:units = "days since 2000-01-01" ;
	float lat(lat) ;
	short lev(lev, lat) ;
	int odd(lat, lon) ;
	char name(lat, chars) ;
		name:_FillValue = "*" ;
	char station(station) ;
	byte small(time) ;
	int scalar ;
		scalar:limits = -2147483648, 2147483647 ;
	double unwritten(lon) ;
	float ünïcode(lat) ;
		ünïcode:näme = "größe" ;
// global attributes:
	:title = "a\nb" ;
	:numbers = 1s, 2s ;
	:bytes = 1b, -1b ;
data:
	T = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, NaNf,
		Infinityf, -Infinityf, _, 1e-30, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48 ;
	time = 0.5, 1.5 ;
	lat = -10, 0, 10 ;
	lev = 1, 2, 3, 4, 5, 6 ;
	odd = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 ;
	name = "abc", "de", "fffff" ;
	station = "xyz" ;
	small = -128, 127 ;
	scalar = 42 ;
	ünïcode = 1, 2, 3 ;
}
END
}

# same_file CLASSIC NEW: netCDF-C sees the same in both, and makes the same classic file of both.
same_file() {
	local kind
	kind=$(ncdump -k "$1")
	same_word "$(ncdump -n x "$1")" "$(ncdump -n x "$2")" || return
	nccopy -k "$kind" "$1" "$WORK/from-classic" && nccopy -k "$kind" "$2" "$WORK/from-new" || return
	cmp "$WORK/from-classic" "$WORK/from-new"
}

is_new() {
	[[ $(ncdump -k "$1") == netCDF-4* ]] || { echo "$1 is of the kind $(ncdump -k "$1")"; return 1; }
}

# One of both, whole; nothing at all only before the drain has given it its name.
is_whole() {
	[ ! -e "$1" ] || same_word "$(ncdump -n x "$1")" "$(ncdump -n x "$DIRECT/c.nc")"
}

# A converter in the place of ours.
fake_converter() {
	mkdir -p "$WORK/libexec"
	ln -sf "${top_builddir:?}"/cistern-* "$WORK/libexec"
	rm "$WORK/libexec/cistern-nc4"
	cat >"$WORK/libexec/cistern-nc4"
	chmod +x "$WORK/libexec/cistern-nc4"
}

# waves FILE MEGABYTES: floats, smooth but for their last bits.
waves() {
	python3 - "$1" "$2" <<'END'
import array, math, random, struct, sys
num = int(sys.argv[2]) << 18
values = array.array("f", (math.sin(i / 500) + random.Random(i).random() * 1e-4 for i in range(1 << 16)))
values.byteswap()
head = b"CDF\5" + struct.pack(">q", 0) + struct.pack(">iq", 10, 2)
head += struct.pack(">q4sq", 1, b"y", num >> 16) + struct.pack(">q4sq", 1, b"x", 1 << 16) + struct.pack(">iqiq", 0, 0, 11, 1)
head += struct.pack(">q4sqqqiqiq", 1, b"v", 2, 0, 1, 0, 0, 5, num * 4)
with open(sys.argv[1], "wb") as out:
    out.write(head + struct.pack(">q", len(head) + 8))
    for _ in range(num >> 16):
        out.write(values.tobytes())
END
}

# told_of FILE FACT STORE
told_of() {
	jq -r ".files[] | select(.path == \"$1\" and .layout == \"netcdf4\") | .conversion.$2" "$3/manifest.json"
}
