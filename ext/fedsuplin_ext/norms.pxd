# Widths and estimates for all arms of a layer: the kernels of kernels.h, picked for this CPU.

cdef extern from "kernels.h":
    enum:
        FSL_LANES
    ctypedef struct KernelSet "fsl_kernel_set":
        const char* name
        void (*norms)(
            const double* P, ptrdiff_t ldp, const double* theta, const double* X, ptrdiff_t ldx,
            int d, int lanes, double radius, double* width, double* estimate,
        ) noexcept nogil
        void (*estimates)(
            const double* theta, const double* X, ptrdiff_t ldx, int d, int lanes, double* estimate
        ) noexcept nogil
        double (*largest)(
            const double* value, const double* width, double sign, const double* out, int lanes
        ) noexcept nogil
        int (*keep)(
            const double* value, const double* width, double sign, double threshold, double* out,
            int lanes,
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
cdef ptrdiff_t padded(ptrdiff_t n) noexcept nogil
cdef int check_aligned(const void* start, str name) except -1
