/* What the GIL does where there is one: a lock that is nothing there, and costs nothing; and reads and writes that other
   threads see whole and in order, in code that runs without the GIL too. */
#ifndef KAFKALOG_KMUTEX_H
#define KAFKALOG_KMUTEX_H

#include <Python.h>

#ifdef Py_GIL_DISABLED
typedef PyMutex kl_mutex;
#define kl_mutex_lock PyMutex_Lock
#define kl_mutex_unlock PyMutex_Unlock
#else
typedef char kl_mutex;
static inline void kl_mutex_lock(kl_mutex *mutex) { (void)mutex; }
static inline void kl_mutex_unlock(kl_mutex *mutex) { (void)mutex; }
#endif

/* A reader that sees what was published also sees all that was written before. */
#define kl_load(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#define kl_publish(place, value) __atomic_store_n(place, value, __ATOMIC_RELEASE)

#endif
