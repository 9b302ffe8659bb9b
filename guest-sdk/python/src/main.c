// The exports of spec/abi.md for CPython, in place of its own main program.
//
// Warm-up starts the interpreter, imports the library and loads the packed tool. The host keeps the memory after it
// and begins each call with it, so warm-up does everything that every call would repeat.
#include "python.h"
#include "internal/pycore_ast.h"
#include "internal/pycore_code.h"
#include "internal/pycore_compile.h"
#include "internal/pycore_parser.h"
#include "internal/pycore_pyarena.h"
#include "internal/pycore_typeobject.h"
#include <sqlite3.h>

#define EXPORT(name) __attribute__((export_name(name)))

__attribute__((import_module("starling:v1"), import_name("http"))) int64_t host_http(const void *, uint32_t, void *, uint32_t);
__attribute__((import_module("starling:v1"), import_name("now"))) int64_t host_now(void);
__attribute__((import_module("starling:v1"), import_name("random"))) int64_t host_random(void);

// The area that starling-host fills when it packs a tool into the module: the number of bytes that follow, then for
// each file the length of its name, its name, the length of its text and its text. A zero means that the module is run_py.
#define SOURCE_BYTES 1048576
__attribute__((used, visibility("default"), aligned(16))) unsigned char starling_source[SOURCE_BYTES];

__asm__(".section .custom_section.starling.interpreter,\"\",@\n"
	".ascii \"{\\\"language\\\":\\\"Python\\\",\\\"name\\\":\\\"CPython\\\",\\\"version\\\":\\\"" PY_VERSION
	"\\\",\\\"source_bytes\\\":1048576,\\\"depth\\\":1048576}\"\n");

extern const unsigned char frozen_data[]; // data.s
static const struct _frozen frozen_modules[] = {
#include "frozen.h"
	{0},
};

// http(request) returns (code, response): a code below zero says why there is no response, and the response is a text.
static PyObject *py_http(PyObject *self, PyObject *arg) {
	Py_buffer request;
	if (PyObject_GetBuffer(arg, &request, PyBUF_SIMPLE) < 0) return NULL;
	Py_ssize_t room = 16384;
	PyObject *buffer = PyBytes_FromStringAndSize(NULL, room);
	if (!buffer) {
		PyBuffer_Release(&request);
		return NULL;
	}
	int64_t n = host_http(request.buf, (uint32_t)request.len, PyBytes_AS_STRING(buffer), (uint32_t)room);
	PyBuffer_Release(&request);
	int code = n < 0 ? (int)n : 0;
	if (n < 0) n = host_http(0, 0, PyBytes_AS_STRING(buffer), (uint32_t)room);
	if (n > room) { // the host holds what did not fit
		Py_DECREF(buffer);
		buffer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
		if (!buffer) return NULL;
		n = host_http(0, 0, PyBytes_AS_STRING(buffer), (uint32_t)n);
	}
	if (_PyBytes_Resize(&buffer, n < 0 ? 0 : (Py_ssize_t)n) < 0) return NULL;
	return Py_BuildValue("iN", code, buffer);
}

static PyObject *py_now(PyObject *self, PyObject *none) { return PyLong_FromLongLong(host_now()); }

static PyObject *py_random(PyObject *self, PyObject *none) { return PyLong_FromUnsignedLongLong((uint64_t)host_random()); }

typedef struct {
	const char *name, *text;
	uint32_t name_size, text_size;
} Source;

// next_source reads the packed file at an offset of the area, and moves it on.
static bool next_source(uint32_t *at, Source *source) {
	uint32_t total;
	memcpy(&total, starling_source, 4);
	if (total > SOURCE_BYTES - 4 || *at >= total + 4) return false;
	const char *area = (const char *)starling_source;
	memcpy(&source->name_size, area + *at, 4);
	source->name = area + *at + 4;
	*at += 4 + source->name_size;
	memcpy(&source->text_size, area + *at, 4);
	source->text = area + *at + 4;
	*at += 4 + source->text_size;
	return true;
}

// sources() returns the packed files as (name, text).
static PyObject *py_sources(PyObject *self, PyObject *none) {
	PyObject *files = PyList_New(0);
	Source source;
	for (uint32_t at = 4; files && next_source(&at, &source);) {
		PyObject *file = Py_BuildValue("s#y#", source.name, (Py_ssize_t)source.name_size, source.text, (Py_ssize_t)source.text_size);
		if (!file || PyList_Append(files, file) < 0) Py_CLEAR(files);
		Py_XDECREF(file);
	}
	return files;
}

static const struct {
	const char *path;
	const unsigned char *data;
	uint32_t size;
} zones[] = {
#include "zones.h"
};

static void add_files(void) {
	add_folder("tmp");
	add_urandom();
	static const char authorities[] = "# The host checks certificates, with the authorities of its system.\n"; // see certifi.py
	add_file("usr/share/ca-certificates.crt", authorities, sizeof authorities - 1);
	for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) add_file(zones[i].path, zones[i].data, zones[i].size);
	Source source;
	for (uint32_t at = 4; next_source(&at, &source);) {
		char path[1024];
		snprintf(path, sizeof path, "tool/%.*s", (int)source.name_size, source.name);
		add_file(path, source.text, source.text_size);
	}
}

// compile(text, file) returns the code of a program: a module that may end with `return` and use `await`, and that
// returns the value of its last statement if this is an expression.
static PyObject *py_compile(PyObject *self, PyObject *args) {
	const char *text;
	PyObject *file;
	if (!PyArg_ParseTuple(args, "sU", &text, &file)) return NULL;
	PyArena *arena = _PyArena_New();
	if (!arena) return NULL;
	PyCompilerFlags flags = {PyCF_SOURCE_IS_UTF8 | PyCF_IGNORE_COOKIE | PyCF_ALLOW_TOP_LEVEL_AWAIT | PyCF_PROGRAM, PY_MINOR_VERSION};
	mod_ty program = _PyParser_ASTFromString(text, file, Py_file_input, &flags, arena);
	PyObject *code = NULL;
	if (program) {
		asdl_stmt_seq *body = program->v.Module.body;
		Py_ssize_t n = asdl_seq_LEN(body);
		stmt_ty last = n > 0 ? asdl_seq_GET(body, n - 1) : NULL;
		if (last && last->kind == Expr_kind) {
			expr_ty value = last->v.Expr.value;
			last->kind = Return_kind;
			last->v.Return.value = value;
		}
		code = (PyObject *)_PyAST_Compile(program, file, &flags, -1, arena);
	}
	_PyArena_Free(arena);
	return code;
}

static PyMethodDef methods[] = {
	{"http", py_http, METH_O},
	{"now", py_now, METH_NOARGS},
	{"random", py_random, METH_NOARGS},
	{"sources", py_sources, METH_NOARGS},
	{"compile", py_compile, METH_VARARGS},
	{"encode", json_encode, METH_VARARGS},
	{0},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_starling", NULL, -1, methods};
static PyObject *create_module(void) { return PyModule_Create(&definition); }

// Everything that is alive after warm-up stays alive, so it gets the reference count of an immortal object. A call then
// does not write to the objects that it merely uses, and the host has fewer pages to restore after it.
static PyObject **pending;
static size_t pending_count, pending_room;
static unsigned char *seen;

static int reach(PyObject *object, void *unused) {
	size_t at = (uintptr_t)object / 4;
	if (!object || seen[at / 8] & 1 << at % 8) return 0;
	seen[at / 8] |= 1 << at % 8;
	if (!_Py_IsImmortal(object)) object->ob_refcnt = _Py_IMMORTAL_REFCNT;
	if (pending_count == pending_room) {
		pending_room = pending_room ? pending_room * 2 : 65536;
		pending = realloc(pending, pending_room * sizeof *pending);
		if (!pending) abort();
	}
	pending[pending_count++] = object;
	return 0;
}

static int reach_next(PyObject *object, void *unused) { return reach(object, unused) == 0; }

static void make_immortal(void) {
	seen = calloc(__builtin_wasm_memory_size(0) * 65536 / 32 + 1024 * 1024, 1);
	if (!seen) abort();
	PyUnstable_GC_VisitObjects(reach_next, NULL);
	reach((PyObject *)&PyBaseObject_Type, NULL);
	while (pending_count > 0) {
		PyObject *object = pending[--pending_count];
		reach((PyObject *)Py_TYPE(object), NULL);
		if (PyCode_Check(object)) {
			PyCodeObject *code = (PyCodeObject *)object;
			PyObject *parts[] = {code->co_consts, code->co_names, code->co_exceptiontable, code->co_localsplusnames, code->co_localspluskinds,
				code->co_filename, code->co_name, code->co_qualname, code->co_linetable};
			for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) reach(parts[i], NULL);
		} else if (PyType_Check(object)) {
			PyTypeObject *type = (PyTypeObject *)object;
			reach(_PyType_GetDict(type), NULL);
			reach(_PyType_GetMRO(type), NULL);
			reach(_PyType_GetBases(type), NULL);
			PyObject *subclasses = _PyType_GetSubclasses(type);
			for (Py_ssize_t i = 0; subclasses && i < PyList_GET_SIZE(subclasses); i++) reach(PyList_GET_ITEM(subclasses, i), NULL);
			Py_XDECREF(subclasses);
		}
		if (PyObject_IS_GC(object) && Py_TYPE(object)->tp_traverse) Py_TYPE(object)->tp_traverse(object, reach, NULL);
	}
	free(pending);
	free(seen);
}

static PyObject *describe_function, *execute_function;

// refuse ends start-up. What the host shows as the reason is on descriptor 2.
static void refuse(const char *reason) {
	fprintf(stderr, "%s\n", reason);
	fflush(stderr);
	__builtin_trap();
}

static void check(PyStatus status) {
	if (PyStatus_Exception(status)) refuse(status.err_msg ? status.err_msg : "the interpreter does not start");
}

EXPORT("starling_warmup") void starling_warmup(void) {
	add_files();
	PyImport_FrozenModules = frozen_modules;
	PyImport_AppendInittab("_starling", create_module);

	PyPreConfig before;
	PyPreConfig_InitIsolatedConfig(&before);
	before.utf8_mode = 1;
	check(Py_PreInitialize(&before));
	PyConfig config;
	PyConfig_InitIsolatedConfig(&config);
	config.site_import = 0;
	config.use_hash_seed = 1; // zero: the order of a set is the same in every call
	config.write_bytecode = 0;
	config.install_signal_handlers = 0;
	config.pathconfig_warnings = 0;
	config.module_search_paths_set = 1;
	config.use_frozen_modules = 1;
	wchar_t **empty[] = {&config.executable, &config.base_executable, &config.prefix, &config.base_prefix, &config.exec_prefix,
		&config.base_exec_prefix, &config.stdlib_dir};
	for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) check(PyConfig_SetString(&config, empty[i], L""));
	check(PyConfig_SetString(&config, &config.program_name, L"python"));
	check(Py_InitializeFromConfig(&config));
	PyConfig_Clear(&config);

	PyObject *module = PyImport_ImportModule("_starling_main");
	PyObject *refusal = module ? PyObject_CallMethod(module, "start", NULL) : NULL;
	if (!refusal) {
		PyErr_Print();
		refuse("the library does not load");
	}
	if (refusal != Py_None) refuse(PyUnicode_AsUTF8(refusal));
	describe_function = PyObject_GetAttrString(module, "describe");
	execute_function = PyObject_GetAttrString(module, "execute");
	sqlite3_randomness(0, NULL); // the next random number takes a new seed
	make_immortal();
	PyObject *gc = PyImport_ImportModule("gc");
	if (!gc || !PyObject_CallMethod(gc, "freeze", NULL)) refuse("the library does not load");
}

EXPORT("starling_alloc") void *starling_alloc(uint32_t n) { return malloc(n); }

static uint64_t document(PyObject *bytes) {
	return (uint64_t)(uintptr_t)PyBytes_AS_STRING(bytes) << 32 | (uint32_t)PyBytes_GET_SIZE(bytes);
}

// broken returns the document of a call in which the runtime itself has failed, because the program has changed what it
// is made of. No Python of the runtime is used for it.
static uint64_t broken(void) {
	PyObject *error = PyErr_GetRaisedException();
	PyObject *text = error ? PyObject_Str(error) : NULL;
	PyErr_Clear();
	PyObject *message = PyUnicode_FromFormat("the program broke the Python runtime that it runs in: %s%s%V",
		error ? Py_TYPE(error)->tp_name : "no error", text ? ": " : "", text, "");
	PyObject *bytes = message ? json_failure(message) : NULL;
	if (!bytes) __builtin_trap();
	return document(bytes);
}

EXPORT("starling_describe") uint64_t starling_describe(void) {
	PyObject *bytes = PyObject_CallNoArgs(describe_function);
	return bytes && PyBytes_Check(bytes) ? document(bytes) : broken();
}

EXPORT("starling_execute") uint64_t starling_execute(const char *input, uint32_t length) {
	PyObject *text = PyBytes_FromStringAndSize(input, length), *mounts = enter_mounts();
	PyObject *bytes = text && mounts ? PyObject_CallFunctionObjArgs(execute_function, text, mounts, NULL) : NULL;
	return bytes && PyBytes_Check(bytes) ? document(bytes) : broken();
}

// A library that gives up calls abort. The text of a panic ends with what is on descriptor 2.
void __wrap_abort(void) {
	static const char text[] = "the Python interpreter has ended itself: the program called abort, or broke the interpreter\n";
	write(2, text, sizeof text - 1);
	__builtin_trap();
}
