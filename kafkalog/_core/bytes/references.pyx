"""Objects whose last reference must free them at once, in whichever thread it is dropped."""

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    /* No thread owns it from now on, so every count is atomic. Py_SET_REFCNT does the rest for a thread that is not the
       owner. */
    static void kl_own_by_none(PyObject *object) {
        Py_ssize_t count = Py_REFCNT(object);
        object->ob_tid = 0;
        Py_SET_REFCNT(object, count);
    }
    #else
    static inline void kl_own_by_none(PyObject *object) { (void)object; }
    #endif
    """
    void kl_own_by_none(object)


def free_at_once(new: object) -> None:
    """Free `new` as soon as its last reference goes, also in a thread that did not make it; with a GIL all objects are.

    Without the GIL, an object that another thread made stays until that thread next runs Python code, and a thread
    may wait for hours. The caller made `new` and has shown it to no other thread.
    """
    kl_own_by_none(new)
