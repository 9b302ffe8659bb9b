// JSON as the host takes it (spec/event.md, section 3): no NaN, no key twice, integers of at most 1024 digits, at most 64
// levels. Half of a surrogate pair becomes U+FFFD. An error names the place in the value: result["rows"][3].
#include "python.h"

#define LEVELS 62 // of a value: the document around it has one more, and the host's own one

typedef struct {
	char *text;
	size_t size, room;
	PyObject *convert;
	PyObject *path[LEVELS + 1]; // the key of each open level, borrowed; NULL for an array
	Py_ssize_t index[LEVELS + 1];
	int level;
} Writer;

static bool put(Writer *w, const char *bytes, size_t n) {
	if (w->size + n > w->room) {
		size_t room = (w->size + n) * 2;
		char *text = realloc(w->text, room);
		if (!text) {
			PyErr_NoMemory();
			return false;
		}
		w->text = text;
		w->room = room;
	}
	memcpy(w->text + w->size, bytes, n);
	w->size += n;
	return true;
}

static bool refuse(Writer *w, PyObject *type, const char *format, ...) {
	va_list values;
	va_start(values, format);
	PyObject *reason = PyUnicode_FromFormatV(format, values);
	va_end(values);
	PyObject *place = PyUnicode_FromString("result");
	for (int i = 0; i < w->level && place && i < 8; i++) {
		PyObject *next = w->path[i] ? PyUnicode_FromFormat("%U[%R]", place, w->path[i]) : PyUnicode_FromFormat("%U[%zd]", place, w->index[i]);
		Py_SETREF(place, next);
	}
	if (reason && place) PyErr_Format(type, "%U%s %U", place, w->level > 8 ? "..." : "", reason);
	Py_XDECREF(reason);
	Py_XDECREF(place);
	return false;
}

static bool write_string(Writer *w, PyObject *string) {
	static const char digits[] = "0123456789abcdef";
	int kind = PyUnicode_KIND(string);
	const void *data = PyUnicode_DATA(string);
	Py_ssize_t n = PyUnicode_GET_LENGTH(string);
	if (!put(w, "\"", 1)) return false;
	for (Py_ssize_t i = 0; i < n;) {
		Py_ssize_t from = i;
		if (PyUnicode_IS_ASCII(string)) { // what needs no escape in one piece
			const unsigned char *text = data;
			while (i < n && text[i] >= 0x20 && text[i] != '"' && text[i] != '\\') i++;
			if (i > from && !put(w, (const char *)text + from, i - from)) return false;
			if (i == n) break;
		}
		Py_UCS4 c = PyUnicode_READ(kind, data, i++);
		char out[6];
		int size = 1;
		if (c == '"' || c == '\\') {
			out[0] = '\\', out[1] = (char)c, size = 2;
		} else if (c < 0x20) {
			memcpy(out, "\\u00", 4);
			out[4] = digits[c >> 4], out[5] = digits[c & 15], size = 6;
		} else if (c < 0x80) {
			out[0] = (char)c;
		} else if (c < 0x800) {
			out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), size = 2;
		} else if (c < 0x10000) {
			if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
			out[0] = (char)(0xE0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 63)), out[2] = (char)(0x80 | (c & 63)), size = 3;
		} else {
			out[0] = (char)(0xF0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 63)), out[2] = (char)(0x80 | (c >> 6 & 63)), out[3] = (char)(0x80 | (c & 63)), size = 4;
		}
		if (!put(w, out, size)) return false;
	}
	return put(w, "\"", 1);
}

static bool write_number(Writer *w, PyObject *value) {
	if (PyFloat_Check(value)) {
		double number = PyFloat_AS_DOUBLE(value);
		if (!isfinite(number)) return refuse(w, PyExc_ValueError, "is %s, which JSON does not have: use None or a string", isnan(number) ? "nan" : "infinite");
		char *text = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
		bool done = text && put(w, text, strlen(text));
		PyMem_Free(text);
		return done;
	}
	int overflow;
	long long small = PyLong_AsLongLongAndOverflow(value, &overflow);
	if (!overflow) {
		char text[24];
		return put(w, text, snprintf(text, sizeof text, "%lld", small));
	}
	if (_PyLong_NumBits(value) > 3402) return refuse(w, PyExc_ValueError, "is an integer of more than 1024 digits: use a string");
	PyObject *digits = PyLong_Type.tp_repr(value);
	bool done = digits && put(w, (const char *)PyUnicode_DATA(digits), PyUnicode_GET_LENGTH(digits));
	Py_XDECREF(digits);
	return done;
}

static bool write_value(Writer *w, PyObject *value);

static bool write_list(Writer *w, PyObject *list) {
	PyObject *items = PySequence_Fast(list, "");
	if (!items) return false;
	bool done = put(w, "[", 1);
	int level = w->level++;
	w->path[level] = NULL;
	for (Py_ssize_t i = 0; done && i < PySequence_Fast_GET_SIZE(items); i++) {
		w->index[level] = i;
		PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, i)); // convert may change the list
		done = (i == 0 || put(w, ",", 1)) && write_value(w, item);
		Py_DECREF(item);
	}
	w->level = level;
	Py_DECREF(items);
	return done && put(w, "]", 1);
}

// string_keys returns a dict with the same values, in which keys like 1, True and None are strings as in Python's json.
static PyObject *string_keys(Writer *w, PyObject *dict) {
	PyObject *result = PyDict_New(), *key, *value;
	Py_ssize_t at = 0;
	while (result && PyDict_Next(dict, &at, &key, &value)) {
		PyObject *name = PyUnicode_Check(key) ? Py_NewRef(key) : key == Py_None ? PyUnicode_FromString("null") : key == Py_True ? PyUnicode_FromString("true")
			: key == Py_False ? PyUnicode_FromString("false") : PyLong_Check(key) ? PyLong_Type.tp_repr(key) : PyFloat_Check(key) ? PyFloat_Type.tp_repr(key)
			: PyObject_CallOneArg(w->convert, key);
		bool done = name && PyUnicode_Check(name);
		if (name && !done) refuse(w, PyExc_TypeError, "has a key of type %s: use a string", Py_TYPE(key)->tp_name);
		if (done && PyDict_Contains(result, name)) done = refuse(w, PyExc_ValueError, "has two keys that are written %R", name);
		if (!done || PyDict_SetItem(result, name, value) < 0) Py_CLEAR(result);
		Py_XDECREF(name);
	}
	return result;
}

static bool write_dict(Writer *w, PyObject *dict) {
	PyObject *key, *value;
	Py_ssize_t at = 0;
	bool strings = true;
	while (strings && PyDict_Next(dict, &at, &key, &value)) strings = PyUnicode_Check(key);
	// convert may change the dict, so its items are kept
	PyObject *keyed = strings ? Py_NewRef(dict) : string_keys(w, dict);
	PyObject *items = keyed ? PyDict_Items(keyed) : NULL;
	Py_XDECREF(keyed);
	if (!items) return false;
	bool done = put(w, "{", 1);
	int level = w->level++;
	for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(items); i++) {
		PyObject *pair = PyList_GET_ITEM(items, i);
		w->path[level] = PyTuple_GET_ITEM(pair, 0);
		done = (i == 0 || put(w, ",", 1)) && write_string(w, PyTuple_GET_ITEM(pair, 0)) && put(w, ":", 1) && write_value(w, PyTuple_GET_ITEM(pair, 1));
	}
	w->level = level;
	Py_DECREF(items);
	return done && put(w, "}", 1);
}

static bool write_value(Writer *w, PyObject *value) {
	for (int conversions = 0; conversions < 8; conversions++) {
		if (value == Py_None) return put(w, "null", 4);
		if (value == Py_True) return put(w, "true", 4);
		if (value == Py_False) return put(w, "false", 5);
		if (PyUnicode_Check(value)) return write_string(w, value);
		if (PyLong_Check(value) || PyFloat_Check(value)) return write_number(w, value);
		bool dict = PyDict_Check(value);
		if (dict || PyList_Check(value) || PyTuple_Check(value)) {
			if (w->level >= LEVELS) {
				w->level = 0;
				return refuse(w, PyExc_ValueError, "is nested deeper than %d levels, or contains itself", LEVELS);
			}
			return dict ? write_dict(w, value) : write_list(w, value);
		}
		PyObject *converted = PyObject_CallOneArg(w->convert, value);
		if (!converted) return false;
		if (converted == Py_NotImplemented) {
			Py_DECREF(converted);
			return refuse(w, PyExc_TypeError, "is a %s, which has no JSON", Py_TYPE(value)->tp_name);
		}
		// what was converted lives as long as its text is written
		int level = w->level;
		bool scalar = PyUnicode_Check(converted) || PyLong_Check(converted) || PyFloat_Check(converted) || PyDict_Check(converted) || PyList_Check(converted)
			|| PyTuple_Check(converted) || converted == Py_None;
		if (scalar) {
			bool done = write_value(w, converted);
			Py_DECREF(converted);
			w->level = level;
			return done;
		}
		value = converted; // leaks until the call ends, when all memory goes
	}
	return refuse(w, PyExc_TypeError, "is a %s, which has no JSON", Py_TYPE(value)->tp_name);
}

PyObject *json_encode(PyObject *self, PyObject *args) {
	PyObject *value, *result = NULL;
	Writer w = {0};
	if (!PyArg_ParseTuple(args, "OO", &value, &w.convert)) return NULL;
	if (write_value(&w, value)) result = PyBytes_FromStringAndSize(w.text, w.size);
	free(w.text);
	return result;
}

PyObject *json_failure(PyObject *message) {
	static const char head[] = "{\"error\":{\"kind\":\"tool\",\"message\":";
	Writer w = {0};
	PyObject *result = NULL;
	if (put(&w, head, sizeof head - 1) && write_string(&w, message) && put(&w, "}}", 2)) result = PyBytes_FromStringAndSize(w.text, w.size);
	return result;
}
