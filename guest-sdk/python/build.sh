#!/bin/bash
# build.sh FOLDER OUT.wasm [PYTHON]
#
# Builds the module of Python: CPython 3.13 from Debian's source, with Debian's compiler, main.c, files.c and json.c in
# place of its own program, and the library inside. The same sources give the same bytes in any folder, which a test
# compares at night.
#
# It needs the sources of APT that .ci/setup adds at night, and the packages clang lld llvm wasi-libc
# libclang-rt-dev-wasm32 dpkg-dev patch gcc libc6-dev make tcl8.6 tzdata.
# Freezing the library needs a Python of the same version for this machine: PYTHON, or one that is built here in three
# minutes of a processor. FOLDER keeps what is built, so a second run takes seconds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
out=$(realpath -m "$2")
native=${3:-}

# fetch NAME VERSION [--tar-only] unpacks a source package into src/NAME, with Debian's patches or without them.
fetch() {
	[ ! -d "$work/src/$1" ] || return 0
	local folder=$work/src/$1.new
	mkdir -p "$folder" && cd "$folder"
	apt-get source -qq --download-only ${3:-} "$1=$2"
	if [ -z "${3:-}" ]; then
		dpkg-source --no-check -x ./*.dsc "$work/src/$1" >/dev/null
	else
		mkdir tree && tar -xf ./*.orig.tar.[gx]z -C tree
		mv tree/"$([ "$(ls tree | wc -l)" = 1 ] && ls tree)" "$work/src/$1"
	fi
}
fetch python3.13 3.13.5-2+deb13u5
fetch zlib "1:1.3.dfsg+really1.3.1-1+deb13u1" --tar-only
fetch pyyaml 6.0.2-1 --tar-only
fetch python-dateutil 2.9.0-4 --tar-only
fetch tzdata 2026b-0+deb12u1 --tar-only
fetch sqlite3 3.46.1-7+deb13u2

# The libraries in Python come as Debian has built them: their sources with Debian's patches.
libraries=$work/libraries
if [ ! -d "$libraries" ]; then
	mkdir -p "$libraries.new" && cd "$libraries.new"
	apt-get download -qq python3-requests=2.32.3+dfsg-5+deb13u1 python3-urllib3=2.3.0-3+deb13u2 python3-idna=3.10-1+deb13u1 \
		python3-charset-normalizer=3.4.2-1
	for package in *.deb; do dpkg-deb -x "$package" .; done
	mv "$libraries.new" "$libraries"
fi

python=$work/src/python3.13
[ -f "$python/.patched" ] || { patch -s -p1 -d "$python" <"$here/src/cpython.patch" && touch "$python/.patched"; }

if [ -z "$native" ]; then
	mkdir -p "$work/native"
	[ -x "$work/native/python" ] || (cd "$work/native" && ../src/python3.13/configure -q && make -s -j"$(nproc)" python)
	native=$work/native/python
fi

# The compiler's output has no path of this machine in it: neither __FILE__ nor the names of folders.
export CC="clang --target=wasm32-wasi -ffile-prefix-map=$work=. -ffile-prefix-map=$here=." CPP="clang --target=wasm32-wasi -E"
export AR=llvm-ar RANLIB=llvm-ranlib
export CFLAGS="-D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_PROCESS_CLOCKS"
export LIBS="-lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks"
export CONFIG_SITE=$python/Tools/wasm/config.site-wasm32-wasi PKG_CONFIG_PATH= PKG_CONFIG_LIBDIR=
z=$work/zlib
export ZLIB_CFLAGS="-I$z" ZLIB_LIBS="-L$z -lz"

if [ ! -f "$z/libz.a" ]; then
	mkdir -p "$z"
	cp "$work"/src/zlib/*.[ch] "$z"
	(cd "$z" && for f in adler32 compress crc32 deflate infback inffast inflate inftrees trees uncompr zutil; do
		$CC -O2 -DNDEBUG -c $f.c -o $f.o
	done && llvm-ar rcs libz.a ./*.o)
fi

# SQLite without threads, shared memory and extensions to load.
q=$work/sqlite
export LIBSQLITE3_CFLAGS="-I$q" LIBSQLITE3_LIBS="-L$q -lsqlite3"
if [ ! -f "$q/libsqlite3.a" ]; then
	mkdir -p "$q"
	(cd "$q" && env -u CFLAGS -u LIBS -u CONFIG_SITE CC=gcc ../src/sqlite3/configure -q --disable-tcl --disable-readline && make -s sqlite3.c &&
		$CC -O2 -DNDEBUG $CFLAGS -DSQLITE_THREADSAFE=0 -DSQLITE_DEFAULT_MEMSTATUS=0 -DSQLITE_MAX_MMAP_SIZE=0 -DSQLITE_TEMP_STORE=3 \
			-DSQLITE_ENABLE_MATH_FUNCTIONS -DSQLITE_LIKE_DOESNT_MATCH_BLOBS -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_WAL \
			-DSQLITE_OMIT_SHARED_CACHE -DSQLITE_OMIT_UTF16 -DSQLITE_OMIT_DEPRECATED -DSQLITE_OMIT_TCL_VARIABLE -DSQLITE_OMIT_GET_TABLE \
			-DSQLITE_OMIT_COMPILEOPTION_DIAGS -c sqlite3.c -o sqlite3.o && llvm-ar rcs libsqlite3.a sqlite3.o)
fi

[ -z "$(command -v wasm-opt)" ] || { echo "build.sh: take wasm-opt off the PATH: clang would run it, which spoils what configure tries" >&2; exit 1; }
if [ ! -f "$work/wasm/libpython3.13.a" ]; then
	mkdir -p "$work/wasm"
	cd "$work/wasm"
	../src/python3.13/configure -q --host=wasm32-unknown-wasi --build=x86_64-pc-linux-gnu --with-build-python="$native" \
		--disable-test-modules --with-pymalloc LDFLAGS="-Wl,--stack-first -Wl,-z,stack-size=1048576"
	sed -i 's/.*SIZEOF_PTHREAD_T$/#define SIZEOF_PTHREAD_T 4/;s/.*undef SIZEOF_PTHREAD_T .*/#define SIZEOF_PTHREAD_T 4/' pyconfig.h
	printf '%s\n' '*disabled*' _lzma _uuid _socket select xxsubtype _lsprof _ctypes _ssl _hashlib _bz2 _dbm _gdbm _curses _curses_panel \
		readline _tkinter _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _multibytecodec >Modules/Setup.local
	make -s -j"$(nproc)" libpython3.13.a Modules/_hacl/libHacl_Hash_SHA2.a Modules/expat/libexpat.a Modules/_decimal/libmpdec/libmpdec.a \
		OPT='-DNDEBUG -fwrapv' EXTRA_CFLAGS='-O3 -DDATE="\"Jan 01 2026\"" -DTIME="\"00:00:00\""' \
		MODULE_ZLIB_STATE=yes MODULE_ZLIB_CFLAGS="-I$z" MODULE_ZLIB_LDFLAGS= MODULE_BINASCII_CFLAGS= MODULE_BINASCII_LDFLAGS=
fi

zones=$work/zones
if [ ! -d "$zones" ]; then
	cd "$work/src/tzdata"
	/usr/sbin/zic -b fat -d "$zones.new" africa antarctica asia australasia europe northamerica southamerica etcetera factory backward
	mv "$zones.new" "$zones"
fi

link=$work/link
mkdir -p "$link"
cd "$link"
"$native" -X no_debug_ranges "$here/src/freeze.py" . "$zones" "$here/lib" "$python/Lib" "$work/src/pyyaml/lib" "$work/src/python-dateutil/src" \
	"$libraries/usr/lib/python3/dist-packages"
$CC -c "$here/src/data.s" -o data.o
for f in main json files; do
	$CC -O2 -DNDEBUG $CFLAGS -I. -I"$work/wasm" -I"$python/Include" -I"$q" -c "$here/src/$f.c" -o $f.o
done
wrapped=$(sed -n 's/^WRAP(\([a-z_]*\),.*/-Wl,--wrap=__wasi_\1/p' "$here/src/files.c")
$CC -mexec-model=reactor -o "$out" -Wl,--stack-first -Wl,-z,stack-size=2097152 -Wl,--export=starling_source -Wl,--gc-sections -Wl,-s \
	-Wl,--wrap=abort -Wl,--wrap=fcntl $wrapped main.o json.o files.o data.o "$work/wasm/libpython3.13.a" $LIBS -lm "$work/wasm/Modules/_hacl/libHacl_Hash_SHA2.a" \
	"$work/wasm/Modules/_decimal/libmpdec/libmpdec.a" "$z/libz.a" "$q/libsqlite3.a" "$work/wasm/Modules/expat/libexpat.a"
ls -l "$out"
