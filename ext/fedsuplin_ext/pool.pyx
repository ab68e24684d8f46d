"""Memory for snapshots and for what clients have gathered.

It comes in blocks of a few sizes. The loop takes blocks and gives them back, and never allocates:
it stops when a size could run out, and `grow_where_short` is called outside the loop.

What a client has gathered is a Pending and a block of its own. Most clients of a large federation
have gathered one observation when they upload it, so the block begins with room for one vector,
and is exchanged for one of the next size when it is full. Matrices come last.

A and b of a snapshot are a block of their own, too. Only the server's newest snapshot needs them,
unless the policy is eager or the server pushes: the next snapshot takes them over, and a client
that must factorise on top of an old one inverts its P (gram.pyx).
"""

from fedsuplin_ext.norms import aligned_zeros

from libc.string cimport memcpy, memset

from fedsuplin_ext.structs cimport (
    MATRICES,
    PENDING,
    SNAPSHOT,
    SUMS,
    UNKNOWN,
    VECTORS,
    Size,
)

cdef Py_ssize_t LINE = 8             # doubles in a cache line
cdef Py_ssize_t HEADER = (sizeof(Snapshot) + 63) // 64 * LINE
cdef Py_ssize_t NODE = (sizeof(Pending) + sizeof(double) - 1) // sizeof(double)
cdef Py_ssize_t FIRST_ROOM = 1 << 16  # bytes of a first slab, about
cdef Py_ssize_t SHARE = 8            # a size grows by an eighth: room that is not needed yet counts


# --- blocks ---------------------------------------------------------------------------------------

cdef void* take(Store* store, int size) noexcept nogil:
    """Take a block of this size; its numbers are stale, its padding 0."""
    cdef Size* z = &store.sizes[size]
    cdef void* block = z.free
    if block != NULL:
        z.free = (<void**>block)[0]
    else:
        block = z.unused
        z.unused += z.doubles
    z.left -= 1
    if z.left == z.least - 1:
        store.n_short += 1
    return block


cdef void give(Store* store, int size, void* block) noexcept nogil:
    """Return a block of this size to the free ones."""
    cdef Size* z = &store.sizes[size]
    (<void**>block)[0] = z.free
    z.free = block
    z.left += 1
    if z.left == z.least:
        store.n_short -= 1


cdef void take_sums(Store* store, Snapshot* s) noexcept nogil:
    """Give a snapshot memory for A and b, unless it has some; the numbers are stale."""
    if s.gram == NULL:
        s.gram = <double*>take(store, SUMS)
        s.moment = s.gram + store.matrix


# --- what a client has gathered -------------------------------------------------------------------

cdef int list_capacity(const Store* store, int size) noexcept nogil:
    """How many observations a list in a block of this size has room for."""
    return store.keep if size == MATRICES else min(store.keep, 1 << (size - VECTORS))


cdef void set_block(Store* store, Pending* p, int size) noexcept nogil:
    """Take a block of this size for a Pending."""
    cdef ptrdiff_t rows
    p.size = size
    rows = store.matrix if size == MATRICES else list_capacity(store, size) * store.ld
    p.delta = <double*>take(store, size)
    p.inverse = p.delta + rows if size != VECTORS else NULL
    p.delta_moment = p.delta + (2 * rows if size != VECTORS else rows)
    p.theta = p.delta_moment + store.ld if size == MATRICES else NULL


cdef void place(Store* store, Pending* p, int size) noexcept nogil:
    """Move a list of vectors to a larger block. The memory of matrices begins with its vectors."""
    cdef Pending old = p[0]
    cdef size_t rows = p.n * store.ld * sizeof(double)
    cdef ptrdiff_t i, j
    set_block(store, p, size)
    memcpy(p.delta, old.delta, rows)
    if old.inverse != NULL and p.n > 1:
        memcpy(p.inverse, old.inverse, rows)
    if size != MATRICES:
        memcpy(p.delta_moment, old.delta_moment, p.n * sizeof(double))
    else:
        memset(p.delta_moment, 0, store.ld * sizeof(double))
        for j in range(p.n):
            for i in range(store.ld):
                p.delta_moment[i] += old.delta_moment[j] * old.delta[j * store.ld + i]
    give(store, old.size, old.delta)


# --- the pool -------------------------------------------------------------------------------------

cdef class Pool:
    """Slabs of blocks, and the lists of free ones.

    `keep` is the length of the longest list of vectors, and `pending` the number of Pendings
    without which no step begins.
    """

    def __cinit__(
        self, int d, ptrdiff_t ld, int keep, Py_ssize_t n_clients, Py_ssize_t n_layers,
        Py_ssize_t pending,
    ):
        cdef Py_ssize_t matrix = d * ld, spare = 2 * n_layers + 1, vectors = 1, size = VECTORS
        cdef Py_ssize_t all_layers = n_clients * n_layers
        self.slabs = []
        self.store.keep, self.store.ld, self.store.matrix = keep, ld, matrix
        self._define(SNAPSHOT, HEADER + matrix + ld, spare, all_layers + n_layers)
        self._define(SUMS, matrix + ld, spare, all_layers + n_layers)
        self._define(PENDING, NODE, pending, all_layers)
        self._define(MATRICES, 2 * matrix + 2 * ld, pending, all_layers)
        self._define(VECTORS, ld + 1, pending, all_layers)
        while vectors < keep:
            vectors, size = min(2 * vectors, <Py_ssize_t>keep), size + 1
            self._define(
                size, (vectors * (2 * ld + 1) + LINE - 1) // LINE * LINE, pending, all_layers
            )

    cdef _define(self, int size, Py_ssize_t doubles, Py_ssize_t least, Py_ssize_t most):
        """Define a size of blocks, of which there are none yet."""
        cdef Size* z = &self.store.sizes[size]
        z.doubles, z.least, z.most = doubles, least, most + least
        z.total, z.left, z.free, z.unused = 0, 0, NULL, NULL
        self.store.n_sizes = size + 1
        self.store.n_short += 1

    cdef int grow(self, int size, Py_ssize_t n) except -1:
        """Make room for n more blocks of this size. NumPy owns the memory.

        If there is no memory left, the pool stays as it was.
        """
        cdef Size* z = &self.store.sizes[size]
        cdef Py_ssize_t i
        if n == 0:
            return 0
        slab = aligned_zeros(n * z.doubles)
        cdef double[::1] view = slab
        cdef Py_ssize_t unused = z.left
        cdef void* block = z.free
        while block != NULL:
            block = (<void**>block)[0]
            unused -= 1
        for i in range(unused):  # the few that are left of the last slab
            (<void**>z.unused)[0] = z.free
            z.free = z.unused
            z.unused += z.doubles
        z.unused = &view[0]
        self.slabs.append(slab)
        self.bytes += slab.nbytes
        self.store.n_short -= z.left < z.least <= z.left + n
        z.left += n
        z.total += n
        return 0

    cdef int grow_where_short(self) except -1:
        """Make room for at least one more pull: an eighth more, but not more than all need."""
        cdef Size* z
        cdef Py_ssize_t n
        cdef int size
        for size in range(self.store.n_sizes):
            z = &self.store.sizes[size]
            if z.left < z.least:
                n = max(z.total // SHARE, FIRST_ROOM // (8 * z.doubles))
                self.grow(size, max(z.least - z.left, min(n, z.most - z.total)))
        return 0

    cdef Snapshot* take_snapshot(self) noexcept nogil:
        """Take a snapshot with one holder, without A and b; its numbers are stale."""
        cdef Snapshot* s = <Snapshot*>take(&self.store, SNAPSHOT)
        s.refs, s.age, s.fresh, s.quiet, s.panel = 1, 0, 0, UNKNOWN, UNKNOWN
        s.inverse = <double*>s + HEADER
        s.theta = s.inverse + self.store.matrix
        s.gram = s.moment = NULL
        return s

    cdef void release(self, Snapshot* s) noexcept nogil:
        """Drop one reference; the memory returns to the free list with the last one."""
        s.refs -= 1
        if s.refs == 0:
            if s.gram != NULL:
                give(&self.store, SUMS, s.gram)
            give(&self.store, SNAPSHOT, s)

    cdef Pending* take_pending(self, int size) noexcept nogil:
        """Take an empty Pending with a block of this size."""
        cdef Pending* p = <Pending*>take(&self.store, PENDING)
        p.n = p.age = 0
        p.dense = p.own = 0
        p.gain = 0.0
        set_block(&self.store, p, size)
        if size == MATRICES:
            memset(p.delta_moment, 0, self.store.ld * sizeof(double))
        return p

    cdef void give_back(self, Pending* p) noexcept nogil:
        """Return a Pending and its block to the free ones."""
        give(&self.store, p.size, p.delta)
        give(&self.store, PENDING, p)
