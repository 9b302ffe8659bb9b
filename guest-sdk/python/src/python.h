// What the C files of the module share.
#define Py_BUILD_CORE 1
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// json.c: encode(value, convert) returns the JSON of a value in UTF-8; convert makes a value that has JSON of one that has none.
PyObject *json_encode(PyObject *self, PyObject *args);
// json_failure returns the document of a failure with this message.
PyObject *json_failure(PyObject *message);

// files.c: puts an empty folder, or a file whose content is part of the module, into the file system.
void add_folder(const char *path);
void add_file(const char *path, const void *data, size_t size);
// add_urandom adds /dev/urandom.
void add_urandom(void);
// enter_mounts makes a folder of each mount that the host has for a call, and begins in /workspace if this is one. It
// returns a list of their paths. libc asks for mounts as well, but at start-up, which is before all calls.
PyObject *enter_mounts(void);
