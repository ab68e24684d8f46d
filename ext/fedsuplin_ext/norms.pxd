# Widths and estimates for all arms of a layer: the kernels of kernels.h, picked for this CPU.

from libc.stdint cimport int32_t

cdef extern from "kernels.h":
    ctypedef struct ProofSet "fsl_proof_set":
        int lanes
        void (*quantise)(
            const double* X, ptrdiff_t ldx, int lanes, int d, int32_t* pairs, float* singles,
            int to,
        ) noexcept nogil
        void (*forms)(
            const int32_t* panel, const int32_t* pairs, const float* singles, int lanes, int d,
            float* form,
        ) noexcept nogil
        double (*largest_form)(const float* form, const double* out, int lanes) noexcept nogil
    ctypedef struct QuietLayer "fsl_quiet_layer":
        const double* estimates
        const double* spikes
        int n_spikes
        double room
        double within
    ctypedef struct KernelSet "fsl_kernel_set":
        const char* name
        int lanes
        const ProofSet* proofs
        void (*pad)(const double* X, int n_arms, int d, int lanes, double* to) noexcept nogil
        void (*norms)(
            const double* P, ptrdiff_t ldp, const double* theta, const double* X, ptrdiff_t ldx,
            int d, int lanes, double radius, double* width, double* estimate,
        ) noexcept nogil
        void (*products)(
            const double* const* vectors, int n, const double* X, ptrdiff_t ldx, int d, int lanes,
            double* out,
        ) noexcept nogil
        void (*estimates)(
            const double* theta, const double* X, ptrdiff_t ldx, int d, int lanes, double* estimate
        ) noexcept nogil
        double (*screen_first)(
            const double* estimate, const double* width, double target, double* out, int lanes,
            int* left,
        ) noexcept nogil
        int (*screen)(
            const QuietLayer* layers, int n, double* out, int lanes, int* left
        ) noexcept nogil
        int (*keep_near_best)(
            const double* estimate, double within, double* out, int lanes
        ) noexcept nogil
        int (*first_of_largest)(
            const double* value, double above, double tie, const double* out, int lanes
        ) noexcept nogil
        void (*move_together)(
            const double* X, ptrdiff_t ldx, int lanes, int d, const double* out,
            const int* source, int left, double* to, int to_lanes,
        ) noexcept nogil
        void (*matvec)(
            const double* P, ptrdiff_t ldp, const double* x, int d, double* y
        ) noexcept nogil
        void (*add_outer)(
            double* result, const double* source, ptrdiff_t ldp, const double* u, double sign, int d
        ) noexcept nogil
        void (*add_outer_upper)(
            double* result, const double* source, ptrdiff_t ldp, const double* u, double sign, int d
        ) noexcept nogil
        double (*dot)(const double* x, const double* y, ptrdiff_t n) noexcept nogil
        int (*invert)(
            double* A, ptrdiff_t ldp, int d, double* u, double* log_det
        ) noexcept nogil
        int (*below)(
            const double* P, ptrdiff_t ldp, int d, double bound, double* A, double* u
        ) noexcept nogil
        double (*peak)(long n, double* sink) noexcept nogil

cdef const KernelSet* pick(object name) except NULL
cdef ptrdiff_t padded(const KernelSet* k, ptrdiff_t n) noexcept nogil
cdef int check_aligned(const void* start, str name) except -1
