"""Random contexts, drawn faster than by NumPy's generator, which would cost more than deciding.

The stream depends on the seed alone: the bits are the same on every instruction set, and however a
run is split into chunks.
"""

import os

import numpy as np

__all__ = ["keyed_permutation"]  # public; ContextSource is not

from libc.stdint cimport int64_t, uint64_t

from fedsuplin_ext.norms cimport check_aligned

cdef extern from "draws_dispatch.h":
    enum:
        FSL_STREAMS
    ctypedef struct DrawSet "fsl_draw_set":
        const char* name
        void (*normals)(uint64_t* state, double* out, ptrdiff_t n) noexcept nogil
        void (*scale_columns)(
            const double* raw, const double* lengths, int d, int n_arms, double* out
        ) noexcept nogil
    const DrawSet* fsl_draws_named(const char* name) noexcept nogil
    int FSL_TURNS
    void fsl_permute(
        uint64_t start, ptrdiff_t n, uint64_t size, int left, int right, const uint64_t* keys,
        int64_t* out,
    ) noexcept nogil

STATE_WORDS = 4 * FSL_STREAMS
ORDER = ("avx512", "avx2", "generic")  # best first; "split512" is for tests
cdef long long MOST = 1 << 30  # numbers per round, which are counted in an int


def available():
    """The sets of drawing functions that this CPU runs, best first; all draw the same bits."""
    return [name for name in ORDER if fsl_draws_named(name.encode()) != NULL]


cdef const DrawSet* pick(object name) except NULL:
    """The set of that name. None is the best one, or the one named by FEDSUPLIN_KERNELS."""
    cdef const DrawSet* found
    if name is None:
        name = os.environ.get("FEDSUPLIN_KERNELS")
        if name not in available():  # a set of kernels that has no drawing of its own
            name = available()[0]
    found = fsl_draws_named(str(name).encode())
    if found == NULL:
        raise ValueError(
            f"no drawing of contexts named {name!r} on this machine; "
            f"available: {', '.join(available())}"
        )
    return found


cdef class ContextSource:
    """Contexts of random direction, round after round. `seed` is a NumPy SeedSequence."""

    cdef object _state, _raw
    cdef uint64_t[::1] state
    cdef double[::1] raw
    cdef int d, n_arms
    cdef const DrawSet* draws
    cdef ptrdiff_t numbers           # drawn a round: d × n_arms, rounded up to whole steps

    def __init__(self, seed, int d, int n_arms, kernels=None):
        if d < 1 or n_arms < 1 or <long long>d * n_arms > MOST:
            raise ValueError(
                f"{n_arms} arms in dimension {d}: both must be at least 1, "
                f"and together no more than {MOST} numbers"
            )
        self.d, self.n_arms, self.draws = d, n_arms, pick(kernels)
        self.numbers = (d * n_arms + 2 * FSL_STREAMS - 1) // (2 * FSL_STREAMS) * (2 * FSL_STREAMS)
        self._state, self._raw = seed.generate_state(STATE_WORDS, np.uint64), np.empty(self.numbers)
        self.state, self.raw = self._state, self._raw

    def fill(self, double[:, :, ::1] out, const double[:, ::1] lengths=None):
        """Write the next rounds into `out` (n × d × n_arms).

        Every arm has length 1, or lengths[round, arm].
        """
        cdef ptrdiff_t t, n = out.shape[0], size = self.d * self.n_arms
        cdef const double* length
        cdef double* raw
        if (
            out.shape[1] != self.d or out.shape[2] != self.n_arms
            or (lengths is not None and (lengths.shape[0] < n or lengths.shape[1] != self.n_arms))
        ):
            raise ValueError(
                f"contexts of {n} rounds must have the shape ({n}, {self.d}, {self.n_arms}) "
                f"and lengths ({n}, {self.n_arms})"
            )
        if n:
            check_aligned(&out[0, 0, 0], "contexts")
        if n and lengths is not None:
            check_aligned(&lengths[0, 0], "lengths")
        with nogil:
            for t in range(n):
                # In place where the few numbers too many only reach rounds that follow.
                raw = &self.raw[0]
                if (n - 1 - t) * size >= self.numbers - size:
                    raw = &out[t, 0, 0]
                self.draws.normals(&self.state[0], raw, self.numbers)
                length = &lengths[t, 0] if lengths is not None else NULL
                self.draws.scale_columns(raw, length, self.d, self.n_arms, &out[t, 0, 0])

    @property
    def kernels(self):
        """The name of the set in use."""
        return self.draws.name.decode()

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
        self.draws.normals(&self.state[0], &view[0], out.size)
        return out[:n]


def keyed_permutation(uint64_t start, uint64_t stop, uint64_t size, seed):
    """The images of start..stop-1 under a permutation of 0..size-1 chosen by the seed.

    No table is kept.
    """
    if not start <= stop <= size:
        raise ValueError(f"0 ≤ start ≤ stop ≤ size must hold, not {start}, {stop}, {size}")
    cdef int bits = max(2, int(size - 1).bit_length() if size else 0)
    cdef int right = bits // 2, left = bits - right
    keys = np.random.SeedSequence(seed).generate_state(FSL_TURNS, np.uint64)
    out = np.empty(stop - start, np.int64)
    cdef int64_t[::1] view = out
    cdef const uint64_t[::1] key_view = keys
    if start < stop:
        with nogil:
            fsl_permute(start, stop - start, size, left, right, &key_view[0], &view[0])
    return out
