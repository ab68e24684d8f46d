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

from libc.stdint cimport int32_t

from fedsuplin_ext.norms cimport KernelSet, QuietLayer

cdef enum:
    MOST_SPIKES = 6                  # directions kept with a certificate, at most: certificates.pyx
    KEPT = 4                         # certificates of each kind that a layer keeps
    UNKNOWN = 0                      # no certificate has this number
    LOUD = -1                        # examined, and no certificate was found
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
    int refs                         # holders: the server and the clients that downloaded it
    int age                          # rank-one steps since the inverse was last factorised
    int fresh                        # A = λI and b = 0
    long long quiet                  # the number of its certificate with spikes, UNKNOWN or LOUD
    long long panel                  # the number of its certificate in fixed point, or UNKNOWN
    double log_det                   # ln det A − ln det λI
    double* inverse                  # P
    double* theta                    # θ̂
    double* gram                     # A, or NULL where the server's next snapshot took it over
    double* moment                   # b, in the same block as A

cdef struct Pending:                 # what one client has gathered in one layer since its download
    double gain                      # ln det(A+ΔA) − ln det A
    int n                            # observations kept as vectors
    int age                          # rank-one steps since the inverse was last factorised
    signed char size                 # of its block: MATRICES, or VECTORS and above for a list
    char dense                       # `delta` holds ΔA, not vectors
    char own                         # `inverse` holds (A+ΔA)⁻¹, not vectors: for eager policies
                                     # from the first observation on
    double* delta                    # rows v_j with ΔA = Σ v vᵀ, or ΔA itself
    double* inverse                  # rows u_j with (A+ΔA)⁻¹ = P − Σ u uᵀ, or (A+ΔA)⁻¹ itself;
                                     # the u of a single observation is not kept
    double* delta_moment             # Δb; of a list the c_j with Δb = Σ c_j v_j
    double* theta                    # (A+ΔA)⁻¹(b+Δb), kept for eager policies only

cdef struct Layer:                   # one client's view of one layer
    Snapshot* held                   # its last download
    Pending* pending                 # what it has gathered since, NULL if nothing

# --- where their memory comes from: pool.pyx ------------------------------------------------------

cdef enum:                           # the sizes of blocks
    SNAPSHOT                         # a Snapshot with P and θ̂
    SUMS                             # A and b of a snapshot
    PENDING                          # a Pending without its block
    MATRICES                         # ΔA, (A+ΔA)⁻¹, Δb, θ̂
    VECTORS                          # a list of 1 observation; each further size has room for twice
                                     # as many, up to `keep`
    MOST_SIZES = VECTORS + 32

cdef struct Size:                    # the blocks of one size
    Py_ssize_t doubles               # in one block
    Py_ssize_t least                 # free ones without which no pull begins
    Py_ssize_t most                  # that can ever be in use together with `least` free ones
    Py_ssize_t total
    Py_ssize_t left                  # free ones
    void* free                       # those that were in use before, each with the next in front
    double* unused                   # those that never were, side by side: untouched pages are free

cdef struct Store:
    int n_sizes
    int n_short                      # sizes with fewer than `least` free blocks
    int keep                         # observations in the longest list
    ptrdiff_t ld
    ptrdiff_t matrix                 # doubles of a matrix
    Size sizes[MOST_SIZES]

# --- what the kernels work with -------------------------------------------------------------------

cdef struct Numbers:                 # the algorithm's constants
    int n_layers
    const double* radii              # α_s
    const double* targets            # w̄_s
    double growth_scale              # the radius is α_s + scale·√(offset + ln det A/det λI)
    double growth_offset

cdef struct Spikes:                  # a certificate: xᵀPx ≤ τ where Σ (uᵀx)² is below `room`
    long long number
    int n
    double room
    double* directions               # MOST_SPIKES vectors u

cdef struct Panel:                   # a certificate: xᵀPx ≤ τ where the form is below `limit`
    long long number
    double limit
    int32_t* pairs                   # P in 16-bit fixed point: proofs.h

cdef struct Certificates:            # of one layer: the latest ones, and when to look for more
    double tau                       # no arm is wide if xᵀPx is below: (w̄/α)², or 0 if unknown
    Spikes spikes[KEPT]              # certificate number n is in place n % KEPT
    Panel panels[KEPT]
    int least                        # spikes that the next examination looks for, at least
    int calm                         # decisions without a wide arm since it was last examined
    int patience                     # how many of them make an examination worthwhile
    int unproved                     # decisions without a wide arm that no panel proved
    int panel_patience               # how many of them make another panel worthwhile
    int misses                       # how many decisions to wait after the next panel that fails
    int wait                         # decisions to wait before a panel is tried again

cdef struct Work:                    # sizes, kernels and scratch space; owned by the engine
    int d
    ptrdiff_t ld
    int keep                         # observations kept as vectors before ΔA is formed
    int refresh                      # rank-one steps after which an inverse is factorised anew
    int eager                        # decisions use (A+ΔA)⁻¹, not only the download's P
    int keeps_sums                   # old snapshots keep A and b, for eager clients and pushes
    Store* store                     # where blocks are taken from
    double ridge                     # λ
    double log_det_ridge             # ln det λI
    double drift                     # the largest difference between a fresh inverse and the one
                                     # it replaced, relative to its largest entry
    const KernelSet* k
    double* matrix                   # d × ld each
    double* second_matrix
    double* v                        # ld
    double* y                        # ld
    double* u                        # ld
    double* sum                      # ld: Δb of a list
    const double* zero               # ld

cdef struct Screen:                  # workspace for one decision
    int n_arms
    int lanes                        # n_arms padded
    ptrdiff_t round_stride           # doubles from a row of the round's contexts to the next
    ptrdiff_t stride                 # the same of the columns that are looked at
    double* estimate                 # lanes each
    double* width
    double* out                      # 0 for a kept column, −∞ for a dropped one and for padding
    double* everyone                 # `out` with every arm kept
    double* columns                  # d × lanes: the contexts of the kept arms, side by side
    int* arm                         # lanes: which arm a column is
    int moved                        # columns were moved, so that `arm` is no longer 0, 1, 2, …
    int fresh                        # shortcuts that are on: layers without observations are
    int fused                        # passed over; products of several layers in one pass;
    int proofs                       # certificates in fixed point
    Certificates* certificates       # by layer
    long long numbers                # certificates made so far
    int most_patience                # at most so many calm decisions between examinations
    const double** vectors           # for `products`: each θ̂ and spike, and the hidden θ
    double* products                 # as many rows of lanes
    QuietLayer* quiet                # layers screened by estimates, for the kernel `screen`
    int* layer_of                    # which layers these are
    const double* last_estimates     # of the last layer
    int reached                      # the layer that played last: products are made up to there
    const double* hidden             # the hidden θ, or NULL: its products are made on the way
    const double* means              # θᵀx of every arm, or NULL if they were not made
    int proof_lanes                  # n_arms padded to whole vectors of integers
    const double* quantised          # the columns that are there in fixed point, or NULL
    int32_t* pairs                   # d × proof_lanes 16-bit integers
    float* singles                   # d × proof_lanes
    float* form                      # proof_lanes
    Snapshot** server                # by layer: the server's newest snapshot
    int* source                      # lanes: where a column comes from when columns are moved
