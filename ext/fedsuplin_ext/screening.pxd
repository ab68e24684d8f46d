# Decisions: the layered elimination and one-layer optimism.

from fedsuplin_ext.gram cimport Work
from fedsuplin_ext.quiet cimport Layer, Numbers, Screen

cdef int layered(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask, int* layer) noexcept nogil
cdef int optimism(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask) noexcept nogil
cdef const double* inverse_of(const Work* w, const Layer* layer) noexcept nogil
