/* A lock for what the GIL guards where there is one: there it is nothing, and costs nothing. */
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

#endif
