# What is known of a layer, and how it grows: snapshots, what a client has gathered since, updates and merges.
#
# Legend: A gram, b moment, P = A⁻¹, θ̂ = P b; ΔA, Δb what was gathered since the download; v = √ω x one weighted observation.
# Matrices are d × ld; inverses are full and symmetric, of A and ΔA only the upper triangle is kept; vectors have ld entries;
# padding is 0.

from fedsuplin_ext.norms cimport KernelSet

cdef enum:
    MOST_SPIKES = 6
    TOO_LARGE = -1                   # what a function returns when sums or estimates are no longer finite

cdef enum Quiet:                     # can an arm of this layer be wider than the target?
    UNKNOWN, LOUD                    # not known; yes, or it could not be excluded
    QUIET                            # no, or only along the few directions kept with the snapshot: see quiet.pyx

cdef struct Snapshot:                # one layer of the server at one moment; never changed while a client holds it
    Snapshot* next                   # the free list
    int refs                         # holders: the server and the clients that downloaded it
    int age                          # rank-one steps since the inverse was last factorised
    int quiet                        # see Quiet; A only grows, so what grows out of a quiet snapshot is quiet
    int n_spikes                     # directions along which a quiet layer has to be looked at
    double log_det                   # ln det A − ln det λI
    double* gram                     # A
    double* inverse                  # P
    double* moment                   # b
    double* theta                    # θ̂
    double* spikes                   # MOST_SPIKES vectors

cdef struct Pending:                 # what one client has gathered in one layer since its download
    Pending* next                    # the free list
    int n                            # observations kept as vectors
    int dense                        # `delta` holds ΔA, not vectors
    int own                          # `inverse` holds (A+ΔA)⁻¹, not vectors: from the first observation for eager policies
    int age                          # rank-one steps since the inverse was last factorised
    double gain                      # ln det(A+ΔA) − ln det A
    double* delta                    # rows v_j with ΔA = Σ v vᵀ, or ΔA itself
    double* inverse                  # rows u_j with (A+ΔA)⁻¹ = P − Σ u uᵀ, or (A+ΔA)⁻¹ itself
    double* delta_moment             # Δb
    double* theta                    # (A+ΔA)⁻¹(b+Δb), kept for eager policies only

cdef struct Work:                    # sizes, kernels and scratch space; owned by the engine
    int d
    ptrdiff_t ld
    int keep                         # observations kept as vectors before ΔA is formed
    int refresh                      # rank-one steps after which an inverse is factorised anew
    int eager
    double log_det_ridge             # ln det λI
    double drift                     # the most that a fresh inverse has differed from the one it replaced, relative to its largest entry
    const KernelSet* k
    double* matrix                   # d × ld each
    double* second_matrix
    double* v                        # ld
    double* y                        # ld
    double* u                        # ld
    const double* zero               # ld

cdef int observe(Work* w, const Snapshot* held, Pending* p, const double* x, const double* Px, double weight, double reward) noexcept nogil
cdef void outgrow(Work* w, Snapshot* into, const Snapshot* source) noexcept nogil
cdef int merge(Work* w, Snapshot* into, const Snapshot* server, const Pending* p) noexcept nogil
cdef void add_delta(Work* w, double* gram, const Pending* p) noexcept nogil
cdef void add_pending(Work* w, Snapshot* into, const Pending* p) noexcept nogil
cdef int settle(Work* w, Snapshot* s) noexcept nogil
cdef double growth(const Work* w, double after, double before) noexcept nogil
cdef int rebase(Work* w, const Snapshot* held, Pending* p) noexcept nogil
