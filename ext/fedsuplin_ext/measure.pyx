"""Timings of single kernels, repeated in compiled code: a call from Python costs more than most.

Each function returns the seconds of one repetition. Data are random and warm in the cache, as those
of a client are in the loop.
"""

import time

import numpy as np

from fedsuplin_ext.norms import aligned_zeros

from fedsuplin_ext.loop cimport Engine
from fedsuplin_ext.norms cimport KernelSet, padded, pick


def fma_peak(double seconds=0.05, kernels=None):
    """The flops per second of this core in multiply-adds, with all operands in registers."""
    cdef const KernelSet* k = pick(kernels)
    cdef double sink = 0.0, flops
    cdef long n = 100_000
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or best == 0.0:
        before = time.perf_counter()
        with nogil:
            flops = k.peak(n, &sink)
        best = max(best, flops / (time.perf_counter() - before))
    return best


class Data:
    """A positive definite inverse, θ̂ and a round's contexts, in the engine's layout."""

    def __init__(self, d, n_arms, seed=0, kernels=None):
        rng = np.random.default_rng(seed)
        ld, lanes = padded(pick(kernels), d), padded(pick(kernels), n_arms)
        factor = rng.standard_normal((d, d)) / d
        self.d, self.n_arms, self.lanes, self.ld = d, n_arms, lanes, ld
        self.inverse = aligned_zeros(d, ld)
        self.inverse[:, :d] = np.linalg.inv(np.eye(d) + factor @ factor.T)
        self.inverse[:, :d] = (self.inverse[:, :d] + self.inverse[:, :d].T) / 2
        self.theta_hat = np.zeros(ld)
        self.theta_hat[:d] = rng.standard_normal(d)
        self.contexts = aligned_zeros(d, lanes)
        self.contexts[:, :n_arms] = rng.standard_normal((d, n_arms)) / np.sqrt(d)


def widths(data, long repeats, kernels=None):
    """Widths and estimates of all arms in one layer: d(d+1)K useful flops."""
    cdef const KernelSet* k = pick(kernels)
    cdef double[:, ::1] inverse = data.inverse, contexts = data.contexts
    cdef double[::1] theta = data.theta_hat
    cdef double[::1] width = np.empty(data.lanes), estimate = np.empty(data.lanes)
    cdef int d = data.d, lanes = data.lanes
    cdef ptrdiff_t ld = data.ld
    cdef long r
    before = time.perf_counter()
    with nogil:
        for r in range(repeats):
            k.norms(
                &inverse[0, 0], ld, &theta[0], &contexts[0, 0], lanes, d, lanes, 1.0,
                &width[0], &estimate[0],
            )
    return (time.perf_counter() - before) / repeats


def estimates(data, long repeats, kernels=None):
    """Estimates alone, as in the last layer and in layers with a certificate: 2dK flops."""
    cdef const KernelSet* k = pick(kernels)
    cdef double[:, ::1] contexts = data.contexts
    cdef double[::1] theta = data.theta_hat, estimate = np.empty(data.lanes)
    cdef int d = data.d, lanes = data.lanes
    cdef long r
    before = time.perf_counter()
    with nogil:
        for r in range(repeats):
            k.estimates(&theta[0], &contexts[0, 0], lanes, d, lanes, &estimate[0])
    return (time.perf_counter() - before) / repeats


def rank_one(data, long repeats, kernels=None):
    """One rank-one step of an inverse and of half a Gram matrix: y = P v, P − u uᵀ, A + v vᵀ."""
    cdef const KernelSet* k = pick(kernels)
    cdef double[:, ::1] inverse = data.inverse.copy(), gram = np.zeros((data.d, data.ld))
    cdef double[::1] v = data.theta_hat / 1e6, y = np.zeros(data.ld)
    cdef int d = data.d
    cdef ptrdiff_t ld = data.ld
    cdef long r
    before = time.perf_counter()
    with nogil:
        for r in range(repeats):
            k.matvec(&inverse[0, 0], ld, &v[0], d, &y[0])
            k.add_outer(&inverse[0, 0], &inverse[0, 0], ld, &y[0], -1.0, d)
            k.add_outer_upper(&gram[0, 0], &gram[0, 0], ld, &v[0], 1.0, d)
    return (time.perf_counter() - before) / repeats


def factorise(data, long repeats, kernels=None):
    """An inverse from scratch: about d³ multiply-adds on half a matrix."""
    cdef const KernelSet* k = pick(kernels)
    cdef double[:, ::1] source = np.ascontiguousarray(data.inverse), work = data.inverse.copy()
    cdef double[::1] u = np.zeros(data.ld)
    cdef double log_det
    cdef int d = data.d, info = 0
    cdef ptrdiff_t ld = data.ld, i
    cdef long r
    before = time.perf_counter()
    with nogil:
        for r in range(repeats):
            for i in range(d * ld):
                (&work[0, 0])[i] = (&source[0, 0])[i]
            info |= k.invert(&work[0, 0], ld, d, &u[0], &log_det)
    if info:
        raise ArithmeticError("the matrix to invert is not positive definite")
    return (time.perf_counter() - before) / repeats


# --- counting calls -------------------------------------------------------------------------------

cdef const KernelSet* counted = NULL  # the set whose calls are counted now
cdef long long width_calls, product_calls


cdef class CallCounter:
    """Count how often an engine computes widths, and products for several vectors.

    A context manager; one at a time. The shortcuts that spare widths are seen from here.
    """

    cdef Engine engine
    cdef KernelSet counting
    cdef readonly long long widths, products

    def __init__(self, Engine engine):
        self.engine = engine

    def __enter__(self):
        global counted, width_calls, product_calls
        if counted != NULL:
            raise RuntimeError("the calls of another engine are being counted")
        counted, width_calls, product_calls = self.engine.work.k, 0, 0
        self.counting = counted[0]
        self.counting.norms, self.counting.products = count_norms, count_products
        self.engine.work.k = &self.counting
        return self

    def __exit__(self, *error):
        global counted
        self.engine.work.k, counted = counted, NULL
        self.widths, self.products = width_calls, product_calls


cdef void count_norms(
    const double* P, ptrdiff_t ldp, const double* theta, const double* X, ptrdiff_t ldx, int d,
    int lanes, double radius, double* width, double* estimate,
) noexcept nogil:
    """`norms` of the counted set."""
    global width_calls
    width_calls += 1
    counted.norms(P, ldp, theta, X, ldx, d, lanes, radius, width, estimate)


cdef void count_products(
    const double* const* vectors, int n, const double* X, ptrdiff_t ldx, int d, int lanes,
    double* out,
) noexcept nogil:
    """`products` of the counted set."""
    global product_calls
    product_calls += 1
    counted.products(vectors, n, X, ldx, d, lanes, out)
