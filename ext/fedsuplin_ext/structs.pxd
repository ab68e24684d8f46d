# The structs, enums and constants that several modules share.
#
# Legend
#   d        dimension of a context
#   K        arms; `lanes` is K padded to whole SIMD vectors, since the arms are the lanes
#   ld       d padded to whole vectors: the length of a vector, and of a row of a matrix
#   s, q     a layer
#   x        the context of the arm played; X the contexts of a round, d rows of `lanes` arms
#   A, b     gram and moment: A = λI + Σ ω x xᵀ, b = Σ ω r x, for weights ω and rewards r
#   P, θ̂     P = A⁻¹, θ̂ = P b
#   ΔA, Δb   what a client has gathered since its last download
#   v        √ω x, one weighted observation: ΔA = Σ v vᵀ
#   u        (A+ΔA)⁻¹v / √(1 + vᵀ(A+ΔA)⁻¹v): one rank-one step of an inverse is P − u uᵀ
#   α, w, w̄  radius, width and target width: w = α √(xᵀP x)
#
# Matrices are d × ld. Inverses are full and symmetric; of A and ΔA only the upper triangle is kept.
# Padding is 0.

from fedsuplin_ext.norms cimport KernelSet

cdef enum:
    MOST_SPIKES = 6                  # directions kept with a certificate, at most: certificates.pyx
    FIRST_PATIENCE = 16              # decisions without a wide arm before a certificate is sought
    TOO_LARGE = -1                   # returned where sums or estimates are no longer finite
    BAD_ARM = -2                     # returned where a policy chose an arm that is not available

cdef enum Status:                    # how a pull ended; loop.STATUS has the words
    DONE
    NEEDS_ROOM
    BAD_WEIGHT
    BAD_TRIGGER
    BAD_CHOICE
    NOT_POSITIVE_DEFINITE
    NOT_FINITE
    BAD_CLIENT
    NOT_IN_ROUNDS
    PHASE_OVER

cdef enum Quiet:                     # can an arm of this layer be wider than its target?
    UNKNOWN                          # not examined yet
    LOUD                             # yes, or it could not be excluded
    QUIET                            # no, except along the few directions kept with the snapshot

# --- what has happened so far: the columns of a result --------------------------------------------
# The names are in loop.pyx (SUMS, COUNTS, BY_PULL), in this order; tests/ext/test_columns.py
# compares them. The enums have no names of their own: Cython indexes C arrays with plain integers
# only.

cdef enum:                           # SUMS
    REGRET
    UNIFORM_REGRET                   # what uniform random play loses in expectation on these rounds
    REWARD
    N_SUMS

cdef enum:                           # COUNTS
    COMMUNICATION                    # the paper's count
    MESSAGES_UP
    MESSAGES_DOWN
    BYTES_UP
    BYTES_DOWN
    N_COUNTS

cdef enum:                           # BY_PULL: recorded for every pull, where that is asked for
    ARMS
    LAYERS
    CLIENTS
    N_BY_PULL

cdef struct Totals:
    long long pulls
    double sums[N_SUMS]              # SUMS
    long long counts[N_COUNTS]       # COUNTS

# --- what is known of a layer ---------------------------------------------------------------------

cdef struct Snapshot:                # one layer of the server; immutable while a client holds it
    Snapshot* next                   # the free list
    int refs                         # holders: the server and the clients that downloaded it
    int age                          # rank-one steps since the inverse was last factorised
    int quiet                        # a Quiet; A only grows, so a quiet snapshot stays quiet
    int n_spikes                     # directions along which a quiet layer must be checked
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
    int own                          # `inverse` holds (A+ΔA)⁻¹, not vectors: for eager policies
                                     # from the first observation on
    int age                          # rank-one steps since the inverse was last factorised
    double gain                      # ln det(A+ΔA) − ln det A
    double* delta                    # rows v_j with ΔA = Σ v vᵀ, or ΔA itself
    double* inverse                  # rows u_j with (A+ΔA)⁻¹ = P − Σ u uᵀ, or (A+ΔA)⁻¹ itself
    double* delta_moment             # Δb
    double* theta                    # (A+ΔA)⁻¹(b+Δb), kept for eager policies only

cdef struct Layer:                   # one client's view of one layer
    Snapshot* held                   # its last download
    Pending* pending                 # what it has gathered since, NULL if nothing

# --- what the kernels work with -------------------------------------------------------------------

cdef struct Numbers:                 # the algorithm's constants
    int n_layers
    const double* radii              # α_s
    const double* targets            # w̄_s
    double growth_scale              # the radius is α_s + scale·√(offset + ln det A/det λI)
    double growth_offset

cdef struct Work:                    # sizes, kernels and scratch space; owned by the engine
    int d
    ptrdiff_t ld
    int keep                         # observations kept as vectors before ΔA is formed
    int refresh                      # rank-one steps after which an inverse is factorised anew
    int eager                        # decisions use (A+ΔA)⁻¹, not only the download's P
    double log_det_ridge             # ln det λI
    double drift                     # the largest difference between a fresh inverse and the one
                                     # it replaced, relative to its largest entry
    const KernelSet* k
    double* matrix                   # d × ld each
    double* second_matrix
    double* v                        # ld
    double* y                        # ld
    double* u                        # ld
    const double* zero               # ld

cdef struct Screen:                  # workspace for one decision
    int n_arms
    int lanes                        # n_arms padded
    double* estimate                 # lanes each
    double* width
    double* out                      # 0 for a kept column, −∞ for a dropped one and for padding
    double* columns                  # d × lanes: the contexts of the kept arms, side by side
    int* arm                         # lanes: which arm a column is
    double* spike                    # lanes each: uᵀx of one direction, and Σ (uᵀx)²
    double* spikes
    int* calm                        # by layer: decisions without a wide arm since it was examined
    int* patience                    # by layer: how many of them make an examination worthwhile
    Snapshot** server                # by layer: the server's newest snapshot
    int* source                      # lanes: where a column comes from when columns are moved
