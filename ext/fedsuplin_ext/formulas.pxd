# The built-in triggers, weightings and choices in compiled form.
# `user` points to the parameters, as doubles.

cdef int gain_above(double gain, double elapsed, void* user) noexcept nogil
cdef int timed_gain_above(double gain, double elapsed, void* user) noexcept nogil
cdef int elapsed_at_least(double gain, double elapsed, void* user) noexcept nogil
cdef double unit(double norm, double sigma, void* user) noexcept nogil
cdef double capped(double norm, double sigma, void* user) noexcept nogil
cdef double inverse_variance(double norm, double sigma, void* user) noexcept nogil
cdef int any_arm(
    double* estimates, double* widths, double* targets, int n_layers, int n_arms,
    double draw, void* user,
) noexcept nogil
