# Declared here so that `from_cython` finds it: a cdef function without a .pxd is not visible
# outside its module.

cdef double estimated(
    double norm, double sigma, double residual, double* state, void* user
) noexcept nogil
