"""Widths and estimates for all arms, and the layout they need.

The contexts of a round are d rows of arms, padded to whole vectors.
"""

import os

import numpy as np

cdef extern from "kernels_dispatch.h":
    const KernelSet* fsl_kernels_named(const char* name) noexcept nogil

ORDER = ("avx512", "avx2", "generic")  # best first
SPLIT = "split512"  # the kernels of avx512 on AVX2: right, but slow, so only for tests


def available():
    """The kernel sets that this CPU runs, best first."""
    return [name for name in ORDER if fsl_kernels_named(name.encode()) != NULL]


def default():
    """The kernel set used by default: the best one, or the one named by FEDSUPLIN_KERNELS."""
    return os.environ.get("FEDSUPLIN_KERNELS") or available()[0]


cdef const KernelSet* pick(object name) except NULL:
    """The kernel set of that name, or the default one for None."""
    name = name or default()
    cdef const KernelSet* found = fsl_kernels_named(str(name).encode())
    if found == NULL:
        raise ValueError(
            f"no kernels named {name!r} on this machine; available: {', '.join(available())}"
        )
    return found


cdef ptrdiff_t padded(const KernelSet* k, ptrdiff_t n) noexcept nogil:
    """n rounded up to whole vectors of a kernel set."""
    return (n + k.lanes - 1) // k.lanes * k.lanes


cdef int check_aligned(const void* start, str name) except -1:
    """Refuse an array that begins in the middle of a number, which NumPy allows and C does not."""
    if <size_t>start % sizeof(double):
        raise ValueError(f"{name} must begin at a multiple of {sizeof(double)} bytes: pass a copy")
    return 0


def pad(n, kernels=None):
    """n rounded up to whole vectors of a kernel set."""
    return padded(pick(kernels), n)


def aligned_zeros(*shape):
    """An array of zeros that begins at a cache line; a vector across two lines costs two loads."""
    cdef Py_ssize_t size = 1
    for n in shape:
        size *= n
    room = np.zeros(size + 8)
    start = (-room.ctypes.data % 64) // 8
    return room[start : start + size].reshape(shape)


def norms_and_estimates(
    double[:, ::1] inverse, double[::1] theta_hat, double[:, ::1] contexts, kernels=None
):
    """√(xᵀPx) and θ̂ᵀx for each column of `contexts` (d × lanes); all rows are padded."""
    cdef int d = contexts.shape[0]
    cdef int lanes = contexts.shape[1]
    cdef const KernelSet* k = pick(kernels)
    if (
        lanes % k.lanes or inverse.shape[1] % k.lanes
        or inverse.shape[1] < d or inverse.shape[0] < d or theta_hat.shape[0] < d
    ):
        raise ValueError(
            f"inverse {inverse.shape[0]}×{inverse.shape[1]}, contexts {d}×{lanes}: "
            f"rows must be padded to a multiple of {k.lanes}"
        )
    if d == 0 or lanes == 0:
        raise ValueError(f"contexts are {d}×{lanes}: neither may be 0")
    check_aligned(&inverse[0, 0], "inverse")
    check_aligned(&theta_hat[0], "theta_hat")
    check_aligned(&contexts[0, 0], "contexts")
    norm, estimate = np.empty(lanes), np.empty(lanes)
    cdef double[::1] norm_view = norm, estimate_view = estimate
    with nogil:
        k.norms(
            &inverse[0, 0], inverse.shape[1], &theta_hat[0], &contexts[0, 0], lanes, d, lanes, 1.0,
            &norm_view[0], &estimate_view[0],
        )
    return norm, estimate


def mean_rewards(const double[:, :, ::1] contexts, const double[::1] theta, kernels=None):
    """θᵀx for every arm of a chunk (n × d × K), as n × K.

    The bits do not depend on how a run is split into chunks.
    """
    cdef ptrdiff_t t, a, n = contexts.shape[0], d = contexts.shape[1], K = contexts.shape[2]
    cdef const KernelSet* k = pick(kernels)
    cdef ptrdiff_t lanes = padded(k, K)
    if theta.shape[0] < d or d == 0 or K == 0:
        raise ValueError(
            f"contexts {n}×{d}×{K} need a theta of at least {d} numbers, and neither may be 0"
        )
    check_aligned(&theta[0], "theta")
    if n:
        check_aligned(&contexts[0, 0, 0], "contexts")
    means = np.empty((n, K))
    cdef double[:, ::1] view = means, X = aligned_zeros(d, lanes)
    cdef double[::1] estimate = aligned_zeros(lanes)
    with nogil:
        for t in range(n):
            k.pad(&contexts[t, 0, 0], <int>K, <int>d, <int>lanes, &X[0, 0])
            k.estimates(&theta[0], &X[0, 0], lanes, d, lanes, &estimate[0])
            for a in range(K):
                view[t, a] = estimate[a]
    return means


def pack(
    const double[:, :, :] contexts, const unsigned char[:, :] mask, double scale,
    double[:, :, ::1] out,
):
    """Copy a chunk from the users' layout (n × K × d) into that of a Chunk (n × d × K), scaled.

    Arms that are masked out become 0.
    """
    cdef ptrdiff_t t, a, i, n = contexts.shape[0], K = contexts.shape[1], d = contexts.shape[2]
    if (
        out.shape[0] != n or out.shape[1] != d or out.shape[2] < K
        or (mask is not None and (mask.shape[0] != n or mask.shape[1] != K))
    ):
        raise ValueError(
            f"contexts of shape ({n}, {K}, {d}) need a mask of shape ({n}, {K}), "
            f"and an out of shape ({n}, {d}, {K} or more)"
        )
    if n and d and out.shape[2]:  # zeros are written even where there are no arms
        check_aligned(&out[0, 0, 0], "out")
    if n and K and d:
        check_aligned(&contexts[0, 0, 0], "contexts")
        if (
            contexts.strides[0] | contexts.strides[1] | contexts.strides[2]
        ) % <Py_ssize_t>sizeof(double):
            raise ValueError("contexts must lie at multiples of 8 bytes: pass a copy")
    with nogil:
        for t in range(n):
            for i in range(d):
                for a in range(K):
                    out[t, i, a] = scale * contexts[t, a, i] if mask is None or mask[t, a] else 0.0
                for a in range(K, out.shape[2]):
                    out[t, i, a] = 0.0

