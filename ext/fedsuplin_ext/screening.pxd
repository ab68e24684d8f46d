# Decisions: the layered elimination, one-layer optimism, and the view that other policies get.

from fedsuplin_ext.structs cimport Layer, Numbers, Screen, Work

cdef int choose_layered(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X,
    const unsigned char* mask, int* layer,
) noexcept nogil
cdef int choose_optimistic(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X,
    const unsigned char* mask,
) noexcept nogil
cdef void survey(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X,
    const unsigned char* mask, double* estimates, double* widths,
) noexcept nogil
cdef const double* inverse_of(const Work* w, const Layer* layer) noexcept nogil
cdef const double* theta_of(const Work* w, const Layer* layer) noexcept nogil
