// Files in memory, and the files of the call. The linker replaces the functions of WASI by these (--wrap), so everything
// above them works as with a disk: open, os, pathlib, tempfile, shutil, zipfile, imports. In memory are /tmp, the packed
// files in /tool, the time zones in /usr/share/zoneinfo, and /dev/urandom. What a program writes there lives until its
// call ends. The files of a call are in folders that the host has open, its mounts: a path that leads into one goes on to
// the host. Descriptors 0 to 2 are the host's.
#include "python.h"
#include <fcntl.h>
#include <wasi/api.h>

typedef struct Node Node;
struct Node {
	const char *name;
	Node *parent, *child, *last, *next; // the children of a folder in the order in which they were made
	char *data;
	size_t size, room;
	uint64_t modified;
	__wasi_fd_t host; // a mount: the host's descriptor of it; else 0
	int opened;
	bool folder, fixed, removed; // the content of a fixed file is part of the module
};

typedef struct {
	Node *node;       // a file in memory
	__wasi_fd_t host; // a file of the host: its descriptor there. With neither, the descriptor is closed
	uint64_t offset;
	__wasi_rights_t rights;
	__wasi_fdflags_t flags;
} Descriptor;

#define FIRST 3 // the root, which libc finds as a folder that is open from the start
#define MOST 1024 // as many as the host has
static Node root = {.name = "", .folder = true};
static Descriptor table[MOST];
static uint64_t ticks;

// Modifications are a second apart from 2000 on. So their order shows, and none needs the clock, which is an effect.
static uint64_t stamp(void) { return (946684800 + ticks++) * 1000000000ull; }

static Descriptor *file(__wasi_fd_t fd) { return fd >= FIRST && fd < MOST && table[fd].node ? &table[fd] : NULL; }

// outer returns the host's descriptor for one that is not of a file in memory. To the host the same number is another
// file, so a closed descriptor becomes a number that the host never has.
static __wasi_fd_t outer(__wasi_fd_t fd) { return fd < FIRST ? fd : fd < MOST && table[fd].host ? table[fd].host : INT32_MAX; }

static Node *find(Node *folder, const char *name, size_t n) {
	for (Node *node = folder->child; node; node = node->next)
		if (strlen(node->name) == n && !memcmp(node->name, name, n)) return node;
	return NULL;
}

static Node *add(Node *folder, const char *name, size_t n, bool is_folder) {
	Node *node = calloc(1, sizeof *node);
	char *copy = malloc(n + 1);
	if (!node || !copy) return NULL;
	memcpy(copy, name, n);
	copy[n] = 0;
	node->name = copy;
	node->folder = is_folder;
	node->parent = folder;
	node->modified = folder->modified = stamp();
	if (folder->last) folder->last->next = node;
	else folder->child = node;
	return folder->last = node;
}

static void release(Node *node) {
	if (!node->removed || node->opened > 0) return;
	if (!node->fixed) free(node->data);
	free((char *)node->name);
	free(node);
}

static void detach(Node *node) {
	Node *folder = node->parent, *before = NULL;
	for (Node *n = folder->child; n != node; n = n->next) before = n;
	if (before) before->next = node->next;
	else folder->child = node->next;
	if (folder->last == node) folder->last = before;
	folder->modified = stamp();
	node->next = NULL;
}

// Place is where a path leads: to a name in a folder in memory, or out to the host.
typedef struct {
	__wasi_fd_t host;    // 0: in memory; else the path goes on from this descriptor of the host
	const char *name;    // the last name of the path; of the host, the rest of the path
	size_t size;         // of the name; 0: the path is the folder itself
	Node *folder, *node; // the node is NULL if the folder has no such name
} Place;

// beyond returns the rest of a path behind the .. that leaves the folder where the path begins, or NULL. It counts names
// and looks nothing up.
static const char *beyond(const char *path) {
	for (size_t depth = 0; *path;) {
		size_t n = strcspn(path, "/");
		const char *rest = path + n + strspn(path + n, "/");
		if (n == 2 && !memcmp(path, "..", 2)) {
			if (depth-- == 0) return rest;
		} else if (n != 1 || *path != '.') {
			depth++;
		}
		path = rest;
	}
	return NULL;
}

// walk finds the place of a path, except what is wrong with its last name.
static __wasi_errno_t walk(__wasi_fd_t fd, const char *path, Place *place) {
	*place = (Place){.name = path};
	Descriptor *d = file(fd);
	if (!d) return fd < MOST && (place->host = table[fd].host) ? 0 : __WASI_ERRNO_BADF;
	Node *at = d->node, *next;
	while (*path) {
		size_t n = strcspn(path, "/");
		const char *rest = path + n + strspn(path + n, "/");
		if (!at->folder) return __WASI_ERRNO_NOTDIR;
		if (n == 0 || (n == 1 && path[0] == '.')) {
		} else if (n == 2 && !memcmp(path, "..", 2)) {
			if (at->parent) at = at->parent;
		} else if ((next = find(at, path, n)) && next->host) {
			const char *outside = beyond(rest);
			if (!outside) {
				place->host = next->host;
				place->name = *rest ? rest : ".";
				return 0;
			}
			rest = outside;
		} else if (!*rest) {
			if (n > 255) return __WASI_ERRNO_NAMETOOLONG;
			place->name = path;
			place->size = n;
			place->folder = at;
			place->node = next;
			return 0;
		} else {
			at = next;
			if (!at) return __WASI_ERRNO_NOENT;
		}
		path = rest;
	}
	place->folder = place->node = at;
	return at->folder ? 0 : __WASI_ERRNO_NOTDIR;
}

// lookup finds the place of a path that has to be there if it is in memory.
static __wasi_errno_t lookup(__wasi_fd_t fd, const char *path, Place *place) {
	__wasi_errno_t error = walk(fd, path, place);
	if (error || place->host) return error;
	if (!place->node) return __WASI_ERRNO_NOENT;
	return place->size > 0 && place->name[place->size] == '/' && !place->node->folder ? __WASI_ERRNO_NOTDIR : 0;
}

static __wasi_errno_t resize(Node *node, uint64_t size) {
	if (node->fixed) return __WASI_ERRNO_ROFS;
	if (size > 1u << 30) return __WASI_ERRNO_FBIG;
	if (size > node->room) {
		size_t room = size < 128 ? 256 : size * 2;
		char *data = realloc(node->data, room);
		if (!data && !(data = realloc(node->data, room = size))) return __WASI_ERRNO_NOSPC;
		node->data = data;
		node->room = room;
	}
	if (size > node->size) memset(node->data + node->size, 0, size - node->size);
	node->size = size;
	node->modified = stamp();
	return 0;
}

static void stat_of(Node *node, __wasi_filestat_t *stat) {
	*stat = (__wasi_filestat_t){.dev = 1, .ino = (uintptr_t)node, .nlink = 1, .size = node->size,
		.filetype = node->folder ? __WASI_FILETYPE_DIRECTORY : __WASI_FILETYPE_REGULAR_FILE,
		.atim = node->modified, .mtim = node->modified, .ctim = node->modified};
}

// make_path returns the node of a path, which it makes with the folders that lead to it.
static Node *make_path(const char *path, bool is_folder) {
	Node *node = &root;
	while (*path) {
		size_t n = strcspn(path, "/");
		Node *next = find(node, path, n);
		if (!next) next = add(node, path, n, is_folder || path[n]);
		if (!next) abort();
		node = next;
		path += n + (path[n] == '/');
	}
	return node;
}

void add_folder(const char *path) { make_path(path, true); }

void add_file(const char *path, const void *data, size_t size) {
	Node *node = make_path(path, false);
	node->data = (char *)data;
	node->size = size;
	node->fixed = true;
}

static Node *urandom; // where SQLite takes the seed of its random numbers from

void add_urandom(void) {
	add_file("dev/urandom", NULL, 0);
	urandom = make_path("dev/urandom", false);
}

#define WRAP(name, ...) \
	__wasi_errno_t __real___wasi_##name(__VA_ARGS__); \
	__wasi_errno_t __wrap___wasi_##name(__VA_ARGS__)

WRAP(fd_prestat_get, __wasi_fd_t fd, __wasi_prestat_t *stat) {
	if (fd != FIRST) return __WASI_ERRNO_BADF;
	root.opened = 1;
	table[FIRST] = (Descriptor){.node = &root, .rights = ~0ull};
	*stat = (__wasi_prestat_t){.tag = __WASI_PREOPENTYPE_DIR, .u.dir.pr_name_len = 1};
	return 0;
}

WRAP(fd_prestat_dir_name, __wasi_fd_t fd, uint8_t *path, __wasi_size_t size) {
	if (fd != FIRST || size < 1) return __WASI_ERRNO_BADF;
	*path = '/';
	return 0;
}

WRAP(path_open, __wasi_fd_t fd, __wasi_lookupflags_t lookups, const char *path, __wasi_oflags_t how, __wasi_rights_t rights,
	__wasi_rights_t inherited, __wasi_fdflags_t flags, __wasi_fd_t *opened) {
	Place place;
	__wasi_errno_t error = walk(fd, path, &place);
	if (error) return error;
	__wasi_fd_t free_one = FIRST + 1;
	while (free_one < MOST && (table[free_one].node || table[free_one].host)) free_one++;
	if (place.host) {
		if (free_one == MOST) return __WASI_ERRNO_MFILE;
		error = __real___wasi_path_open(place.host, lookups, place.name, how, rights, inherited, flags, &place.host);
		if (!error) table[*opened = free_one] = (Descriptor){.host = place.host};
		return error;
	}
	Node *node = place.node;
	bool writes = rights & __WASI_RIGHTS_FD_WRITE;
	if (place.size > 0) {
		if (!node && !(how & __WASI_OFLAGS_CREAT)) return __WASI_ERRNO_NOENT;
		if (node && how & __WASI_OFLAGS_CREAT && how & __WASI_OFLAGS_EXCL) return __WASI_ERRNO_EXIST;
		if (!node && !(node = add(place.folder, place.name, place.size, false))) return __WASI_ERRNO_NOSPC;
	}
	if (node->folder ? writes || how & __WASI_OFLAGS_TRUNC : how & __WASI_OFLAGS_DIRECTORY) return node->folder ? __WASI_ERRNO_ISDIR : __WASI_ERRNO_NOTDIR;
	if (node->fixed && writes) return __WASI_ERRNO_ROFS;
	if (free_one == MOST) return __WASI_ERRNO_MFILE;
	if (how & __WASI_OFLAGS_TRUNC && (error = resize(node, 0))) return error;
	node->opened++;
	table[free_one] = (Descriptor){.node = node, .rights = rights, .flags = flags};
	*opened = free_one;
	return 0;
}

WRAP(fd_close, __wasi_fd_t fd) {
	Descriptor *d = file(fd);
	if (!d || fd == FIRST) {
		__wasi_fd_t host = outer(fd);
		if (fd > FIRST && fd < MOST) table[fd].host = 0;
		return __real___wasi_fd_close(host);
	}
	d->node->opened--;
	release(d->node);
	d->node = NULL;
	return 0;
}

static __wasi_errno_t read_at(Descriptor *d, const __wasi_iovec_t *areas, size_t n, uint64_t offset, __wasi_size_t *done) {
	if (d->node->folder) return __WASI_ERRNO_ISDIR;
	if (!(d->rights & __WASI_RIGHTS_FD_READ)) return __WASI_ERRNO_BADF;
	*done = 0;
	if (d->node == urandom && n > 0) {
		*done = areas[0].buf_len;
		return __wasi_random_get(areas[0].buf, areas[0].buf_len);
	}
	for (size_t i = 0; i < n && offset < d->node->size; i++) {
		size_t size = d->node->size - offset < areas[i].buf_len ? d->node->size - offset : areas[i].buf_len;
		memcpy(areas[i].buf, d->node->data + offset, size);
		offset += size;
		*done += size;
	}
	return 0;
}

static __wasi_errno_t write_at(Descriptor *d, const __wasi_ciovec_t *areas, size_t n, uint64_t offset, __wasi_size_t *done) {
	if (!(d->rights & __WASI_RIGHTS_FD_WRITE)) return __WASI_ERRNO_BADF;
	*done = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t end = offset + areas[i].buf_len;
		__wasi_errno_t error = end > d->node->size ? resize(d->node, end) : 0;
		if (error) return *done > 0 ? 0 : error;
		memcpy(d->node->data + offset, areas[i].buf, areas[i].buf_len);
		offset = end;
		*done += areas[i].buf_len;
	}
	return 0;
}

WRAP(fd_read, __wasi_fd_t fd, const __wasi_iovec_t *areas, size_t n, __wasi_size_t *done) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_read(outer(fd), areas, n, done);
	__wasi_errno_t error = read_at(d, areas, n, d->offset, done);
	if (!error) d->offset += *done;
	return error;
}

WRAP(fd_pread, __wasi_fd_t fd, const __wasi_iovec_t *areas, size_t n, __wasi_filesize_t offset, __wasi_size_t *done) {
	Descriptor *d = file(fd);
	return d ? read_at(d, areas, n, offset, done) : __real___wasi_fd_pread(outer(fd), areas, n, offset, done);
}

WRAP(fd_write, __wasi_fd_t fd, const __wasi_ciovec_t *areas, size_t n, __wasi_size_t *done) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_write(outer(fd), areas, n, done);
	if (d->flags & __WASI_FDFLAGS_APPEND) d->offset = d->node->size;
	__wasi_errno_t error = write_at(d, areas, n, d->offset, done);
	if (!error) d->offset += *done;
	return error;
}

WRAP(fd_pwrite, __wasi_fd_t fd, const __wasi_ciovec_t *areas, size_t n, __wasi_filesize_t offset, __wasi_size_t *done) {
	Descriptor *d = file(fd);
	return d ? write_at(d, areas, n, offset, done) : __real___wasi_fd_pwrite(outer(fd), areas, n, offset, done);
}

WRAP(fd_seek, __wasi_fd_t fd, __wasi_filedelta_t offset, __wasi_whence_t whence, __wasi_filesize_t *at) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_seek(outer(fd), offset, whence, at);
	int64_t from = whence == __WASI_WHENCE_SET ? 0 : whence == __WASI_WHENCE_CUR ? (int64_t)d->offset : (int64_t)d->node->size;
	if (from + offset < 0) return __WASI_ERRNO_INVAL;
	*at = d->offset = from + offset;
	return 0;
}

WRAP(fd_advise, __wasi_fd_t fd, __wasi_filesize_t offset, __wasi_filesize_t size, __wasi_advice_t advice) {
	return __real___wasi_fd_advise(outer(fd), offset, size, advice);
}

WRAP(fd_tell, __wasi_fd_t fd, __wasi_filesize_t *at) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_tell(outer(fd), at);
	*at = d->offset;
	return 0;
}

WRAP(fd_sync, __wasi_fd_t fd) { return file(fd) ? 0 : __real___wasi_fd_sync(outer(fd)); }

WRAP(fd_datasync, __wasi_fd_t fd) { return file(fd) ? 0 : __real___wasi_fd_datasync(outer(fd)); }

WRAP(fd_fdstat_get, __wasi_fd_t fd, __wasi_fdstat_t *stat) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_fdstat_get(outer(fd), stat);
	*stat = (__wasi_fdstat_t){.fs_filetype = d->node->folder ? __WASI_FILETYPE_DIRECTORY : __WASI_FILETYPE_REGULAR_FILE,
		.fs_flags = d->flags, .fs_rights_base = d->rights, .fs_rights_inheriting = ~0ull};
	return 0;
}

WRAP(fd_fdstat_set_flags, __wasi_fd_t fd, __wasi_fdflags_t flags) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_fdstat_set_flags(outer(fd), flags);
	d->flags = flags;
	return 0;
}

WRAP(fd_filestat_get, __wasi_fd_t fd, __wasi_filestat_t *stat) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_filestat_get(outer(fd), stat);
	stat_of(d->node, stat);
	return 0;
}

WRAP(fd_filestat_set_size, __wasi_fd_t fd, __wasi_filesize_t size) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_filestat_set_size(outer(fd), size);
	return d->rights & __WASI_RIGHTS_FD_WRITE ? resize(d->node, size) : __WASI_ERRNO_BADF;
}

static void touch(Node *node, __wasi_timestamp_t modified, __wasi_fstflags_t flags) {
	if (flags & __WASI_FSTFLAGS_MTIM) node->modified = modified;
	else if (flags & __WASI_FSTFLAGS_MTIM_NOW) node->modified = stamp();
}

WRAP(fd_filestat_set_times, __wasi_fd_t fd, __wasi_timestamp_t accessed, __wasi_timestamp_t modified, __wasi_fstflags_t flags) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_filestat_set_times(outer(fd), accessed, modified, flags);
	touch(d->node, modified, flags);
	return 0;
}

WRAP(path_filestat_set_times, __wasi_fd_t fd, __wasi_lookupflags_t lookups, const char *path, __wasi_timestamp_t accessed,
	__wasi_timestamp_t modified, __wasi_fstflags_t flags) {
	Place place;
	__wasi_errno_t error = lookup(fd, path, &place);
	if (place.host) return __real___wasi_path_filestat_set_times(place.host, lookups, place.name, accessed, modified, flags);
	if (!error) touch(place.node, modified, flags);
	return error;
}

WRAP(path_filestat_get, __wasi_fd_t fd, __wasi_lookupflags_t lookups, const char *path, __wasi_filestat_t *stat) {
	Place place;
	__wasi_errno_t error = lookup(fd, path, &place);
	if (place.host) return __real___wasi_path_filestat_get(place.host, lookups, place.name, stat);
	if (!error) stat_of(place.node, stat);
	return error;
}

WRAP(fd_readdir, __wasi_fd_t fd, uint8_t *buffer, __wasi_size_t room, __wasi_dircookie_t cookie, __wasi_size_t *used) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_readdir(outer(fd), buffer, room, cookie, used);
	if (!d->node->folder) return __WASI_ERRNO_NOTDIR;
	*used = 0;
	uint64_t at = 0;
	for (Node *node = d->node->child; node && *used < room; node = node->next) {
		if (at++ < cookie) continue;
		__wasi_dirent_t entry = {.d_next = at, .d_ino = (uintptr_t)node, .d_namlen = strlen(node->name),
			.d_type = node->folder ? __WASI_FILETYPE_DIRECTORY : __WASI_FILETYPE_REGULAR_FILE};
		const void *parts[] = {&entry, node->name};
		size_t sizes[] = {sizeof entry, entry.d_namlen};
		for (int i = 0; i < 2; i++) { // the last entry may be cut
			size_t n = sizes[i] < room - *used ? sizes[i] : room - *used;
			memcpy(buffer + *used, parts[i], n);
			*used += n;
		}
	}
	return 0;
}

WRAP(path_create_directory, __wasi_fd_t fd, const char *path) {
	Place place;
	__wasi_errno_t error = walk(fd, path, &place);
	if (error) return error;
	if (place.host) return __real___wasi_path_create_directory(place.host, place.name);
	if (place.node) return __WASI_ERRNO_EXIST;
	return add(place.folder, place.name, place.size, true) ? 0 : __WASI_ERRNO_NOSPC;
}

static __wasi_errno_t remove_node(Node *node, bool folder) {
	if (node->folder != folder) return folder ? __WASI_ERRNO_NOTDIR : __WASI_ERRNO_ISDIR;
	if (node->child) return __WASI_ERRNO_NOTEMPTY;
	if (node == &root) return __WASI_ERRNO_BUSY;
	detach(node);
	node->removed = true;
	release(node);
	return 0;
}

WRAP(path_remove_directory, __wasi_fd_t fd, const char *path) {
	Place place;
	__wasi_errno_t error = lookup(fd, path, &place);
	if (place.host) return __real___wasi_path_remove_directory(place.host, place.name);
	return error ? error : remove_node(place.node, true);
}

WRAP(path_unlink_file, __wasi_fd_t fd, const char *path) {
	Place place;
	__wasi_errno_t error = lookup(fd, path, &place);
	if (place.host) return __real___wasi_path_unlink_file(place.host, place.name);
	return error ? error : remove_node(place.node, false);
}

WRAP(path_rename, __wasi_fd_t fd, const char *path, __wasi_fd_t to_fd, const char *to_path) {
	Place from, to;
	__wasi_errno_t error = lookup(fd, path, &from);
	if (error || (error = walk(to_fd, to_path, &to))) return error;
	if (from.host && to.host) return __real___wasi_path_rename(from.host, from.name, to.host, to.name);
	if (from.host || to.host) return __WASI_ERRNO_XDEV;
	Node *node = from.node, *folder = to.folder, *old = to.node;
	if (to.size == 0 || node == &root) return __WASI_ERRNO_BUSY;
	for (Node *above = folder; above; above = above->parent)
		if (above == node) return __WASI_ERRNO_INVAL;
	if (old == node) return 0;
	if (old && ((error = lookup(to_fd, to_path, &to)) || (error = remove_node(old, node->folder)))) return error;
	char *copy = strndup(to.name, to.size);
	if (!copy) return __WASI_ERRNO_NOSPC;
	detach(node);
	free((char *)node->name);
	node->name = copy;
	node->parent = folder;
	if (folder->last) folder->last->next = node;
	else folder->child = node;
	folder->last = node;
	return 0;
}

WRAP(path_readlink, __wasi_fd_t fd, const char *path, uint8_t *buffer, __wasi_size_t room, __wasi_size_t *used) {
	Place place;
	__wasi_errno_t error = lookup(fd, path, &place);
	if (place.host) return __real___wasi_path_readlink(place.host, place.name, buffer, room, used);
	return error ? error : __WASI_ERRNO_INVAL;
}

WRAP(path_symlink, const char *path, __wasi_fd_t fd, const char *to) {
	Place place;
	(void)walk(fd, to, &place);
	return place.host ? __real___wasi_path_symlink(path, place.host, place.name) : __WASI_ERRNO_NOTSUP;
}

WRAP(path_link, __wasi_fd_t fd, __wasi_lookupflags_t lookups, const char *path, __wasi_fd_t to_fd, const char *to_path) {
	Place from, to;
	(void)walk(fd, path, &from);
	(void)walk(to_fd, to_path, &to);
	if (from.host && to.host) return __real___wasi_path_link(from.host, lookups, from.name, to.host, to.name);
	return from.host || to.host ? __WASI_ERRNO_XDEV : __WASI_ERRNO_NOTSUP;
}

PyObject *enter_mounts(void) {
	PyObject *names = PyList_New(0);
	__wasi_prestat_t stat;
	for (__wasi_fd_t fd = 3; names && !__real___wasi_fd_prestat_get(fd, &stat); fd++) {
		char path[4097];
		__wasi_size_t size = stat.u.dir.pr_name_len;
		if (size >= sizeof path || __real___wasi_fd_prestat_dir_name(fd, (uint8_t *)path, size)) abort();
		path[size] = 0;
		make_path(path + strspn(path, "/"), true)->host = fd;
		if (!strcmp(path, "/workspace")) chdir(path);
		PyObject *name = PyUnicode_DecodeFSDefault(path);
		if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
		Py_XDECREF(name);
	}
	return names;
}

// wasi-libc has no locks of files, so SQLite numbers the commands itself. It counts the locks of its own connections, and
// asks here for those of other processes, of which there are none.
#define GETLK 5
#define SETLK 6
#define UNLCK 2
int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
	va_list values;
	va_start(values, command);
	void *value = va_arg(values, void *);
	va_end(values);
	if (command == GETLK) ((struct flock *)value)->l_type = UNLCK;
	return command == GETLK || command == SETLK ? 0 : __real_fcntl(fd, command, value);
}
