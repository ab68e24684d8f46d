"""Random contexts, drawn faster than by NumPy's generator, which would cost more than deciding.

The stream depends on the seed alone: the bits are the same on every instruction set, and however a
run is split into chunks.
"""

import numpy as np

__all__ = ["keyed_permutation"]  # public; ContextSource is not

from libc.stdint cimport uint64_t

from fedsuplin_ext.norms cimport check_aligned, padded

cdef extern from "draws_dispatch.h":
    enum:
        FSL_STREAMS
    int fsl_draws_wide() noexcept nogil
    void fsl_normals(int wide, uint64_t* state, double* out, ptrdiff_t n) noexcept nogil
    void fsl_scale_columns(
        int wide, const double* raw, const double* lengths, int d, int n_arms, int lanes,
        double* out,
    ) noexcept nogil
    uint64_t fsl_permuted(
        uint64_t x, uint64_t size, int left, int right, const uint64_t* keys, int n_keys
    ) noexcept nogil

STATE_WORDS = 4 * FSL_STREAMS
cdef long long MOST = 1 << 30  # numbers per round, which are counted in an int


cdef class ContextSource:
    """Contexts of random direction, round after round. `seed` is a NumPy SeedSequence."""

    cdef object _state, _raw
    cdef uint64_t[::1] state
    cdef double[::1] raw
    cdef int d, n_arms, lanes, wide
    cdef ptrdiff_t numbers           # drawn a round: d × n_arms, rounded up to whole steps

    def __init__(self, seed, int d, int n_arms, wide=None):
        if d < 1 or n_arms < 1 or <long long>d * padded(n_arms) > MOST:
            raise ValueError(
                f"{n_arms} arms in dimension {d}: both must be at least 1, "
                f"and together no more than {MOST} numbers"
            )
        self.d, self.n_arms, self.lanes = d, n_arms, <int>padded(n_arms)
        self.wide = fsl_draws_wide() and (wide is None or wide)
        self.numbers = (d * n_arms + 2 * FSL_STREAMS - 1) // (2 * FSL_STREAMS) * (2 * FSL_STREAMS)
        self._state, self._raw = seed.generate_state(STATE_WORDS, np.uint64), np.empty(self.numbers)
        self.state, self.raw = self._state, self._raw

    def fill(self, double[:, :, ::1] out, const double[:, ::1] lengths=None):
        """Write the next rounds into `out` (n × d × lanes).

        Every arm has length 1, or lengths[round, arm].
        """
        cdef ptrdiff_t t, n = out.shape[0]
        cdef const double* length
        if (
            out.shape[1] != self.d or out.shape[2] != self.lanes
            or (lengths is not None and (lengths.shape[0] < n or lengths.shape[1] != self.n_arms))
        ):
            raise ValueError(
                f"contexts of {n} rounds must have the shape ({n}, {self.d}, {self.lanes}) "
                f"and lengths ({n}, {self.n_arms})"
            )
        if n:
            check_aligned(&out[0, 0, 0], "contexts")
        if n and lengths is not None:
            check_aligned(&lengths[0, 0], "lengths")
        with nogil:
            for t in range(n):
                fsl_normals(self.wide, &self.state[0], &self.raw[0], self.numbers)
                length = &lengths[t, 0] if lengths is not None else NULL
                fsl_scale_columns(
                    self.wide, &self.raw[0], length, self.d, self.n_arms, self.lanes, &out[t, 0, 0]
                )

    @property
    def position(self):
        """Where the source is in its sequence; set it to continue from there."""
        return self._state.copy()

    @position.setter
    def position(self, words):
        if (
            words.shape != self._state.shape or words.dtype != np.uint64
            or not words.reshape(4, -1).any(axis=0).all()
        ):
            raise ValueError(
                f"the position of a source is {STATE_WORDS} unsigned 64-bit words, "
                "not all 0 for any of its generators"
            )
        self._state[:] = words

    def normals(self, Py_ssize_t n):
        """The next n standard normals of this source, from which contexts are made; for tests."""
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        out = np.empty((n + 2 * FSL_STREAMS - 1) // (2 * FSL_STREAMS) * (2 * FSL_STREAMS))
        cdef double[::1] view = out
        fsl_normals(self.wide, &self.state[0], &view[0], out.size)
        return out[:n]


def keyed_permutation(uint64_t start, uint64_t stop, uint64_t size, seed):
    """The images of start..stop-1 under a permutation of 0..size-1 chosen by the seed.

    No table is kept.
    """
    if not start <= stop <= size:
        raise ValueError(f"0 ≤ start ≤ stop ≤ size must hold, not {start}, {stop}, {size}")
    cdef int bits = max(2, int(size - 1).bit_length() if size else 0)
    cdef int right = bits // 2, left = bits - right
    cdef uint64_t x
    # An even number of turns, so that both halves end in their place.
    keys = np.random.SeedSequence(seed).generate_state(6, np.uint64)
    out = np.empty(stop - start, np.int64)
    cdef long long[::1] view = out
    cdef const uint64_t[::1] key_view = keys
    with nogil:
        for x in range(start, stop):
            view[x - start] = <long long>fsl_permuted(x, size, left, right, &key_view[0], 6)
    return out
