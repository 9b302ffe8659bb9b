// Files in memory. The linker replaces the functions of WASI by these (--wrap), so everything above them works as with a
// disk: open, os, pathlib, tempfile, shutil, zipfile, imports. There are /tmp, the packed files in /tool, the time zones
// in /usr/share/zoneinfo, and /dev/urandom. What a program writes lives until its call ends. Descriptors 0 to 2 are the
// host's.
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
	int opened;
	bool folder, fixed, removed; // the content of a fixed file is part of the module
};

typedef struct {
	Node *node; // NULL: closed
	uint64_t offset;
	__wasi_rights_t rights;
	__wasi_fdflags_t flags;
} Descriptor;

#define FIRST 3 // the root, which libc finds as a folder that is open from the start
#define MOST 256
static Node root = {.name = "", .folder = true};
static Descriptor table[MOST];
static uint64_t ticks;

// Modifications are a second apart from 2000 on. So their order shows, and none needs the clock, which is an effect.
static uint64_t stamp(void) { return (946684800 + ticks++) * 1000000000ull; }

static Descriptor *file(__wasi_fd_t fd) { return fd >= FIRST && fd < MOST && table[fd].node ? &table[fd] : NULL; }

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

// walk finds the folder that a path ends in, and the last name of it; size is 0 if the path is the folder itself.
static __wasi_errno_t walk(__wasi_fd_t fd, const char *path, Node **folder, const char **name, size_t *size) {
	Descriptor *d = file(fd);
	if (!d) return __WASI_ERRNO_BADF;
	Node *at = d->node;
	*size = 0;
	while (*path) {
		size_t n = strcspn(path, "/");
		const char *rest = path + n + strspn(path + n, "/");
		if (!at->folder) return __WASI_ERRNO_NOTDIR;
		if (n == 0 || (n == 1 && path[0] == '.')) {
		} else if (n == 2 && !memcmp(path, "..", 2)) {
			if (at->parent) at = at->parent;
		} else if (!*rest) {
			if (n > 255) return __WASI_ERRNO_NAMETOOLONG;
			*name = path;
			*size = n;
			break;
		} else {
			at = find(at, path, n);
			if (!at) return __WASI_ERRNO_NOENT;
		}
		path = rest;
	}
	*folder = at;
	return at->folder ? 0 : __WASI_ERRNO_NOTDIR;
}

static __wasi_errno_t lookup(__wasi_fd_t fd, const char *path, Node **node) {
	const char *name;
	size_t size;
	__wasi_errno_t error = walk(fd, path, node, &name, &size);
	if (!error && size > 0) {
		bool slash = name[size] == '/';
		*node = find(*node, name, size);
		if (!*node) return __WASI_ERRNO_NOENT;
		if (slash && !(*node)->folder) return __WASI_ERRNO_NOTDIR;
	}
	return error;
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
	Node *node;
	const char *name;
	size_t size;
	__wasi_errno_t error = walk(fd, path, &node, &name, &size);
	if (error) return error;
	bool writes = rights & __WASI_RIGHTS_FD_WRITE;
	if (size > 0) {
		Node *folder = node;
		node = find(folder, name, size);
		if (!node && !(how & __WASI_OFLAGS_CREAT)) return __WASI_ERRNO_NOENT;
		if (node && how & __WASI_OFLAGS_CREAT && how & __WASI_OFLAGS_EXCL) return __WASI_ERRNO_EXIST;
		if (!node && !(node = add(folder, name, size, false))) return __WASI_ERRNO_NOSPC;
	}
	if (node->folder ? writes || how & __WASI_OFLAGS_TRUNC : how & __WASI_OFLAGS_DIRECTORY) return node->folder ? __WASI_ERRNO_ISDIR : __WASI_ERRNO_NOTDIR;
	if (node->fixed && writes) return __WASI_ERRNO_ROFS;
	__wasi_fd_t free_one = FIRST + 1;
	while (free_one < MOST && table[free_one].node) free_one++;
	if (free_one == MOST) return __WASI_ERRNO_MFILE;
	if (how & __WASI_OFLAGS_TRUNC && (error = resize(node, 0))) return error;
	node->opened++;
	table[free_one] = (Descriptor){.node = node, .rights = rights, .flags = flags};
	*opened = free_one;
	return 0;
}

WRAP(fd_close, __wasi_fd_t fd) {
	Descriptor *d = file(fd);
	if (!d || fd == FIRST) return __real___wasi_fd_close(fd);
	d->node->opened--;
	release(d->node);
	d->node = NULL;
	return 0;
}

WRAP(fd_renumber, __wasi_fd_t fd, __wasi_fd_t to) {
	if (!file(fd) || to <= FIRST || to >= MOST) return __WASI_ERRNO_BADF;
	if (fd == to) return 0;
	if (file(to)) (void)__wrap___wasi_fd_close(to);
	table[to] = table[fd];
	table[fd].node = NULL;
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
	if (!d) return __real___wasi_fd_read(fd, areas, n, done);
	__wasi_errno_t error = read_at(d, areas, n, d->offset, done);
	if (!error) d->offset += *done;
	return error;
}

WRAP(fd_pread, __wasi_fd_t fd, const __wasi_iovec_t *areas, size_t n, __wasi_filesize_t offset, __wasi_size_t *done) {
	Descriptor *d = file(fd);
	return d ? read_at(d, areas, n, offset, done) : __real___wasi_fd_pread(fd, areas, n, offset, done);
}

WRAP(fd_write, __wasi_fd_t fd, const __wasi_ciovec_t *areas, size_t n, __wasi_size_t *done) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_write(fd, areas, n, done);
	if (d->flags & __WASI_FDFLAGS_APPEND) d->offset = d->node->size;
	__wasi_errno_t error = write_at(d, areas, n, d->offset, done);
	if (!error) d->offset += *done;
	return error;
}

WRAP(fd_pwrite, __wasi_fd_t fd, const __wasi_ciovec_t *areas, size_t n, __wasi_filesize_t offset, __wasi_size_t *done) {
	Descriptor *d = file(fd);
	return d ? write_at(d, areas, n, offset, done) : __real___wasi_fd_pwrite(fd, areas, n, offset, done);
}

WRAP(fd_seek, __wasi_fd_t fd, __wasi_filedelta_t offset, __wasi_whence_t whence, __wasi_filesize_t *at) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_seek(fd, offset, whence, at);
	int64_t from = whence == __WASI_WHENCE_SET ? 0 : whence == __WASI_WHENCE_CUR ? (int64_t)d->offset : (int64_t)d->node->size;
	if (from + offset < 0) return __WASI_ERRNO_INVAL;
	*at = d->offset = from + offset;
	return 0;
}

WRAP(fd_tell, __wasi_fd_t fd, __wasi_filesize_t *at) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_tell(fd, at);
	*at = d->offset;
	return 0;
}

WRAP(fd_sync, __wasi_fd_t fd) { return file(fd) ? 0 : __real___wasi_fd_sync(fd); }

WRAP(fd_datasync, __wasi_fd_t fd) { return file(fd) ? 0 : __real___wasi_fd_datasync(fd); }

WRAP(fd_fdstat_get, __wasi_fd_t fd, __wasi_fdstat_t *stat) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_fdstat_get(fd, stat);
	*stat = (__wasi_fdstat_t){.fs_filetype = d->node->folder ? __WASI_FILETYPE_DIRECTORY : __WASI_FILETYPE_REGULAR_FILE,
		.fs_flags = d->flags, .fs_rights_base = d->rights, .fs_rights_inheriting = ~0ull};
	return 0;
}

WRAP(fd_fdstat_set_flags, __wasi_fd_t fd, __wasi_fdflags_t flags) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_fdstat_set_flags(fd, flags);
	d->flags = flags;
	return 0;
}

WRAP(fd_filestat_get, __wasi_fd_t fd, __wasi_filestat_t *stat) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_filestat_get(fd, stat);
	stat_of(d->node, stat);
	return 0;
}

WRAP(fd_filestat_set_size, __wasi_fd_t fd, __wasi_filesize_t size) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_filestat_set_size(fd, size);
	return d->rights & __WASI_RIGHTS_FD_WRITE ? resize(d->node, size) : __WASI_ERRNO_BADF;
}

static void touch(Node *node, __wasi_timestamp_t modified, __wasi_fstflags_t flags) {
	if (flags & __WASI_FSTFLAGS_MTIM) node->modified = modified;
	else if (flags & __WASI_FSTFLAGS_MTIM_NOW) node->modified = stamp();
}

WRAP(fd_filestat_set_times, __wasi_fd_t fd, __wasi_timestamp_t accessed, __wasi_timestamp_t modified, __wasi_fstflags_t flags) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_filestat_set_times(fd, accessed, modified, flags);
	touch(d->node, modified, flags);
	return 0;
}

WRAP(path_filestat_set_times, __wasi_fd_t fd, __wasi_lookupflags_t lookups, const char *path, __wasi_timestamp_t accessed,
	__wasi_timestamp_t modified, __wasi_fstflags_t flags) {
	Node *node;
	__wasi_errno_t error = lookup(fd, path, &node);
	if (!error) touch(node, modified, flags);
	return error;
}

WRAP(path_filestat_get, __wasi_fd_t fd, __wasi_lookupflags_t lookups, const char *path, __wasi_filestat_t *stat) {
	Node *node;
	__wasi_errno_t error = lookup(fd, path, &node);
	if (!error) stat_of(node, stat);
	return error;
}

WRAP(fd_readdir, __wasi_fd_t fd, uint8_t *buffer, __wasi_size_t room, __wasi_dircookie_t cookie, __wasi_size_t *used) {
	Descriptor *d = file(fd);
	if (!d) return __real___wasi_fd_readdir(fd, buffer, room, cookie, used);
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
	Node *folder;
	const char *name;
	size_t size;
	__wasi_errno_t error = walk(fd, path, &folder, &name, &size);
	if (error) return error;
	if (size == 0 || find(folder, name, size)) return __WASI_ERRNO_EXIST;
	return add(folder, name, size, true) ? 0 : __WASI_ERRNO_NOSPC;
}

static __wasi_errno_t remove_node(__wasi_fd_t fd, const char *path, bool folder) {
	Node *node;
	__wasi_errno_t error = lookup(fd, path, &node);
	if (error) return error;
	if (node->folder != folder) return folder ? __WASI_ERRNO_NOTDIR : __WASI_ERRNO_ISDIR;
	if (node->child) return __WASI_ERRNO_NOTEMPTY;
	if (node == &root) return __WASI_ERRNO_BUSY;
	detach(node);
	node->removed = true;
	release(node);
	return 0;
}

WRAP(path_remove_directory, __wasi_fd_t fd, const char *path) { return remove_node(fd, path, true); }

WRAP(path_unlink_file, __wasi_fd_t fd, const char *path) { return remove_node(fd, path, false); }

WRAP(path_rename, __wasi_fd_t fd, const char *path, __wasi_fd_t to_fd, const char *to) {
	Node *node, *folder;
	const char *name;
	size_t size;
	__wasi_errno_t error = lookup(fd, path, &node);
	if (error || (error = walk(to_fd, to, &folder, &name, &size))) return error;
	if (size == 0 || node == &root) return __WASI_ERRNO_BUSY;
	for (Node *above = folder; above; above = above->parent)
		if (above == node) return __WASI_ERRNO_INVAL;
	Node *old = find(folder, name, size);
	if (old == node) return 0;
	if (old && (error = remove_node(to_fd, to, node->folder))) return error;
	char *copy = strndup(name, size);
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
	Node *node;
	__wasi_errno_t error = lookup(fd, path, &node);
	return error ? error : __WASI_ERRNO_INVAL;
}

WRAP(path_symlink, const char *path, __wasi_fd_t fd, const char *to) { return __WASI_ERRNO_NOTSUP; }

WRAP(path_link, __wasi_fd_t fd, __wasi_lookupflags_t lookups, const char *path, __wasi_fd_t to_fd, const char *to) { return __WASI_ERRNO_NOTSUP; }

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
