"""Memory for snapshots and for what clients have gathered.

The loop takes it from free lists and never allocates. It stops when a list could run out, and
`grow` is called outside the loop.
"""

import numpy as np

from fedsuplin_ext.norms import aligned_zeros

from libc.string cimport memset

from fedsuplin_ext.structs cimport MOST_SPIKES, UNKNOWN


cdef class Pool:
    """Slabs of Snapshot and Pending structs with their matrices, and the lists of free ones."""

    def __cinit__(self, int d, ptrdiff_t ld):
        self.d, self.ld = d, ld
        self.free_snapshots, self.free_pending = NULL, NULL
        self.slabs = []

    cdef int grow(self, Py_ssize_t snapshots, Py_ssize_t pending) except -1:
        """Make room for so many more of each. NumPy owns the memory.

        If there is no memory left, the pool stays as it was.
        """
        cdef Py_ssize_t matrix = self.d * self.ld, i
        cdef Py_ssize_t size_of_snapshot = 2 * matrix + (2 + MOST_SPIKES) * self.ld
        cdef Py_ssize_t size_of_pending = 2 * matrix + 2 * self.ld
        structs = np.zeros(snapshots * sizeof(Snapshot) + pending * sizeof(Pending), np.uint8)
        numbers = aligned_zeros(snapshots * size_of_snapshot + pending * size_of_pending)
        cdef unsigned char[::1] struct_view = structs
        cdef double[::1] number_view = numbers
        cdef Snapshot* s = <Snapshot*>&struct_view[0]
        cdef Pending* p = <Pending*>(s + snapshots)
        cdef double* room = &number_view[0]
        for i in range(snapshots):
            s.gram, s.inverse = room, room + matrix
            s.moment, s.theta = room + 2 * matrix, room + 2 * matrix + self.ld
            s.spikes = room + 2 * matrix + 2 * self.ld
            s.next, self.free_snapshots = self.free_snapshots, s
            s, room = s + 1, room + size_of_snapshot
        for i in range(pending):
            p.delta, p.inverse = room, room + matrix
            p.delta_moment, p.theta = room + 2 * matrix, room + 2 * matrix + self.ld
            p.next, self.free_pending = self.free_pending, p
            p, room = p + 1, room + size_of_pending
        self.slabs.append((structs, numbers))
        self.snapshots_left += snapshots
        self.pending_left += pending
        self.bytes += structs.nbytes + numbers.nbytes
        return 0

    cdef Snapshot* take_snapshot(self) noexcept nogil:
        """Take a snapshot with one holder from the free list; its numbers are stale."""
        cdef Snapshot* s = self.free_snapshots
        self.free_snapshots = s.next
        self.snapshots_left -= 1
        s.refs, s.quiet = 1, UNKNOWN
        return s

    cdef void release(self, Snapshot* s) noexcept nogil:
        """Drop one reference; the memory returns to the free list with the last one."""
        s.refs -= 1
        if s.refs == 0:
            s.next, self.free_snapshots = self.free_snapshots, s
            self.snapshots_left += 1

    cdef Pending* take_pending(self) noexcept nogil:
        """Take an empty Pending from the free list."""
        cdef Pending* p = self.free_pending
        self.free_pending = p.next
        self.pending_left -= 1
        p.n = p.dense = p.own = p.age = 0
        p.gain = 0.0
        memset(p.delta_moment, 0, self.ld * sizeof(double))
        return p

    cdef void give_back(self, Pending* p) noexcept nogil:
        """Return a Pending to the free list."""
        p.next, self.free_pending = self.free_pending, p
        self.pending_left += 1
