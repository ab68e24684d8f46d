# Decisions: the layered elimination and one-layer optimism.

from fedsuplin_ext.gram cimport Pending, Snapshot, Work

cdef struct Layer:                   # a client's view of one layer
    Snapshot* held                   # its last download
    Pending* pending                 # what it has gathered since, NULL if nothing

cdef struct Numbers:                 # the algorithm's constants
    int n_layers
    const double* radii              # α_s
    const double* targets            # w̄_s
    double growth_scale              # the radius is α_s + scale·√(offset + ln det A/det λI)
    double growth_offset

cdef struct Screen:                  # workspace for one decision
    int n_arms
    int lanes                        # n_arms padded
    double* norm2                    # lanes each
    double* estimate
    double* width
    double* columns                  # d × lanes: the contexts of the arms still kept, side by side
    int* arm                         # lanes: which arm a column is
    unsigned char* kept              # lanes: is this column still kept

cdef int layered(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask, int* layer) noexcept nogil
cdef int optimism(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask) noexcept nogil
cdef const double* inverse_of(const Work* w, const Layer* layer) noexcept nogil
