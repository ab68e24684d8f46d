# Triggers and weightings in compiled form. Third parties may cimport the two signatures.

ctypedef double (*weight_function)(double norm, double sigma, void* user) noexcept nogil
ctypedef int (*trigger_function)(double gain, double elapsed, void* user) noexcept nogil

cdef class Rule:
    cdef void* function
    cdef void* user
    cdef object source                # what `function` and `user` point into
    cdef bint gives_weight            # a weighting, else a trigger
    cdef readonly str name
    cdef readonly object error        # what a Python callable raised

    cdef _take(self, form, str expected)

cdef int gain_above(double gain, double elapsed, void* user) noexcept nogil
cdef int timed_gain_above(double gain, double elapsed, void* user) noexcept nogil
cdef int elapsed_at_least(double gain, double elapsed, void* user) noexcept nogil
cdef double unit(double norm, double sigma, void* user) noexcept nogil
cdef double capped(double norm, double sigma, void* user) noexcept nogil
cdef double inverse_variance(double norm, double sigma, void* user) noexcept nogil
