# Memory for snapshots and for what clients have gathered.
# The loop takes it from free lists, which grow between rounds.

from fedsuplin_ext.structs cimport Pending, Snapshot, Store

cdef void* take(Store* store, int size) noexcept nogil
cdef void give(Store* store, int size, void* block) noexcept nogil
cdef void take_sums(Store* store, Snapshot* s) noexcept nogil
cdef int list_capacity(const Store* store, int size) noexcept nogil
cdef void place(Store* store, Pending* p, int size) noexcept nogil

cdef class Pool:
    cdef Store store
    cdef readonly Py_ssize_t bytes
    cdef list slabs

    cdef _define(self, int size, Py_ssize_t doubles, Py_ssize_t least, Py_ssize_t most)

    cdef int grow(self, int size, Py_ssize_t n) except -1
    cdef int grow_where_short(self) except -1
    cdef Snapshot* take_snapshot(self) noexcept nogil
    cdef void release(self, Snapshot* s) noexcept nogil
    cdef Pending* take_pending(self, int size) noexcept nogil
    cdef void give_back(self, Pending* p) noexcept nogil
