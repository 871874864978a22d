/* Attributes in the slots of Python classes, read and set as the interpreter's own specialised code does it: by the
   place that the class gave them, for as long as the class is what it was when that was looked up. Whatever is no such
   slot goes the interpreter's usual way, so that the answer is always the same. */
#ifndef KAFKALOG_KSLOT_H
#define KAFKALOG_KSLOT_H

#include <Python.h>
#include <structmember.h>

#ifdef Py_GIL_DISABLED
/* Another thread may replace the attribute at any time: only the interpreter's own way locks what that takes. */
typedef struct {
    const char *name;
    PyObject *interned;
} kl_slot;

static inline PyObject *kl_slot_name(kl_slot *slot) {
    PyObject *name = __atomic_load_n(&slot->interned, __ATOMIC_ACQUIRE);
    if (name == NULL) { /* two threads at once get the same string */
        name = PyUnicode_InternFromString(slot->name);
        __atomic_store_n(&slot->interned, name, __ATOMIC_RELEASE);
    }
    return name;
}

static inline PyObject *kl_slot_get(PyObject *owner, kl_slot *slot) {
    PyObject *name = kl_slot_name(slot);
    return name == NULL ? NULL : PyObject_GetAttr(owner, name);
}

static inline int kl_slot_set(PyObject *owner, kl_slot *slot, PyObject *value) {
    PyObject *name = kl_slot_name(slot);
    return name == NULL ? -1 : PyObject_SetAttr(owner, name, value);
}
#else
typedef struct {
    const char *name;
    PyObject *interned;
    unsigned int version; /* of the class whose slot it is; 0: none was found yet */
    Py_ssize_t offset;
} kl_slot;

static int kl_slot_find(PyObject *owner, kl_slot *slot) {
    PyTypeObject *type = Py_TYPE(owner);
    PyObject *found;
    if (slot->interned == NULL && (slot->interned = PyUnicode_InternFromString(slot->name)) == NULL)
        return -1;
    slot->version = 0;
    found = _PyType_Lookup(type, slot->interned); /* borrowed */
    if (found != NULL && Py_TYPE(found) == &PyMemberDescr_Type) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == T_OBJECT_EX && !(member->flags & READONLY)) {
            slot->offset = member->offset;
            slot->version = type->tp_version_tag; /* 0 where the class has none: then this is looked up each time */
        }
    }
    return 0;
}

static inline PyObject **kl_slot_place(PyObject *owner, kl_slot *slot) {
    if (slot->version == 0 || Py_TYPE(owner)->tp_version_tag != slot->version)
        return NULL;
    return (PyObject **)((char *)owner + slot->offset);
}

static inline PyObject *kl_slot_get(PyObject *owner, kl_slot *slot) {
    PyObject **place = kl_slot_place(owner, slot);
    if (place != NULL && *place != NULL) {
        Py_INCREF(*place);
        return *place;
    }
    return kl_slot_find(owner, slot) < 0 ? NULL : PyObject_GetAttr(owner, slot->interned);
}

static inline int kl_slot_set(PyObject *owner, kl_slot *slot, PyObject *value) {
    PyObject **place = kl_slot_place(owner, slot);
    if (place != NULL) {
        PyObject *before = *place;
        Py_INCREF(value);
        *place = value;
        Py_XDECREF(before);
        return 0;
    }
    return kl_slot_find(owner, slot) < 0 ? -1 : PyObject_SetAttr(owner, slot->interned, value);
}

#endif
#endif
