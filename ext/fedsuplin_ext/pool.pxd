# Memory for snapshots and for what clients have gathered.
# The loop takes it from free lists, which grow between rounds.

from fedsuplin_ext.structs cimport Pending, Snapshot

cdef class Pool:
    cdef int d
    cdef ptrdiff_t ld
    cdef Snapshot* free_snapshots
    cdef Pending* free_pending
    cdef readonly Py_ssize_t snapshots_left
    cdef readonly Py_ssize_t pending_left
    cdef readonly Py_ssize_t bytes
    cdef list slabs

    cdef int grow(self, Py_ssize_t snapshots, Py_ssize_t pending) except -1
    cdef Snapshot* take_snapshot(self) noexcept nogil
    cdef void release(self, Snapshot* s) noexcept nogil
    cdef Pending* take_pending(self) noexcept nogil
    cdef void give_back(self, Pending* p) noexcept nogil
