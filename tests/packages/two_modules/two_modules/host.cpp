// A host extension module: what a tool does with its results where Python is too slow.
#include <Python.h>

static PyObject *sum(PyObject *, PyObject *values) {
  PyObject *total = PyLong_FromLong(0), *iterator = PyObject_GetIter(values);
  if (!iterator)
    return nullptr;
  while (PyObject *item = PyIter_Next(iterator)) {
    PyObject *next = PyNumber_Add(total, item);
    Py_DECREF(total);
    Py_DECREF(item);
    total = next;
  }
  Py_DECREF(iterator);
  return total;
}

static PyMethodDef methods[] = {{"sum", sum, METH_O, "Adds up numbers."}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_host", nullptr, -1, methods};

PyMODINIT_FUNC PyInit__host() { return PyModule_Create(&definition); }
