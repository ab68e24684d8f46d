# Layers that can't have a wide arm, and the structs of one decision.

from fedsuplin_ext.gram cimport Pending, Snapshot, Work

cdef enum:
    FIRST_PATIENCE = 16

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
    double* estimate                 # lanes each
    double* width
    double* out                      # 0 for a column still kept, −∞ for one dropped and for padding
    double* columns                  # d × lanes: the contexts of the arms still kept, side by side
    int* arm                         # lanes: which arm a column is
    double* spike                    # lanes each: see quiet.pyx
    double* spikes
    int* calm                        # by layer: decisions without a wide arm since it was last examined
    int* patience                    # by layer: how many of them make an examination worth while
    Snapshot** server                # by layer: the server's newest snapshot
    int* source                      # lanes: where a column comes from when columns are moved side by side

cdef int none_wide(Work* w, Screen* s, const Numbers* numbers, const Snapshot* held, int q, const double* columns, int lanes) noexcept nogil
cdef void note_calm(Work* w, Screen* s, const Numbers* numbers, Snapshot* held, int q) noexcept nogil
