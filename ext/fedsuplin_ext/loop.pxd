# The engine: the state of a server and its clients, and the loop over a chunk of rounds.

cimport cython

from fedsuplin_ext.pool cimport Pool
from fedsuplin_ext.rules cimport Rule
from fedsuplin_ext.structs cimport Layer, Numbers, Pending, Screen, Snapshot, Totals, Work

cdef struct ChunkPointers:           # a Python Chunk as the loop reads it; NULL for what it lacks
    Py_ssize_t n
    const double* contexts           # n × d × K
    const int* clients               # n
    const double* theta              # the hidden θ, d (padded), or NULL when there are rewards
    const double* rewards            # n × K
    const double* noise              # n
    const double* sigma              # n
    const double* corruption         # n × K
    const unsigned char* mask        # n × K

cdef class Engine:
    cdef Work work
    cdef Screen screen
    cdef Numbers numbers
    cdef Totals totals
    cdef Pool pool
    cdef int first_size              # of the block of a client that begins to gather
    cdef readonly Rule trigger, weighting
    cdef readonly Rule policy        # None where a compiled kernel decides
    cdef int live                    # one client of a network: it marks layers, and is synced from
                                     # outside
    cdef double last_weight          # of the last observation
    cdef int n_clients, is_layered, is_optimism, is_phased, sync_all, pushes
    cdef double push_threshold       # the server sends a client what it lacks if that raises its
                                     # ln det by more than this
    cdef unsigned long long key      # of the random numbers that a policy gets, one per pull
    cdef double* estimates           # n_layers × n_arms each, for a policy that is a plugin
    cdef double* all_widths
    cdef readonly int chosen         # the last answer of such a policy
    cdef double budget               # what the adversary may still add
    cdef long long payload           # bytes of one layer in a message: packed ΔA and Δb
    cdef Snapshot** server           # n_layers
    cdef Layer* layers               # n_clients × n_layers
    cdef long long* since            # by client: pulls since its last sync; where all clients sync
                                     # together, the last round it played
    cdef long long* last_sync        # by layer: the round of its last sync, where all sync together
    cdef unsigned char* marked       # by layer: asks for a sync at the end of this round
    cdef double* x                   # the arm played, ld
    cdef double* Px                  # ld
    cdef double* means               # lanes
    cdef double* round               # d × lanes: the contexts of the last rounds of a chunk
    # of a phased policy: how often each client plays each arm, and the rewards
    cdef int together                # the phase ends for all at once, else for each client alone
    cdef long long unfinished        # clients with pulls left in their plan
    cdef readonly object plan, counts, reward_sums, left, idle
    cdef long long[:, ::1] _plan, _counts
    cdef double[:, ::1] _reward_sums
    cdef long long[::1] _left, _idle

    cdef readonly object client_regret, client_pulls, layer_pulls
    cdef double[::1] _client_regret
    cdef long long[::1] _client_pulls, _layer_pulls
    cdef list memory                 # the NumPy arrays that own the memory of the pointers above

    # what is recorded, and where the next row goes
    cdef const long long[::1] record_at
    cdef double[:, ::1] record_sums
    cdef long long[:, ::1] record_counts
    cdef int[:, ::1] record_by_pull
    cdef readonly Py_ssize_t recorded

    cdef double* _doubles(self, Py_ssize_t n)
    cdef unsigned char* _bytes(self, Py_ssize_t n)
    cdef _make_work(self, int d, ptrdiff_t ld, bint eager, double ridge, kernels, int refresh)
    cdef _make_screen(self, int n_arms)
    cdef _make_numbers(self, algorithm)
    cdef _make_shortcuts(self, shortcuts, patience)
    cdef _make_rules(self, rules)
    cdef _make_state(self, double ridge)
    cdef Pool _new_pool(self)
    cdef _set_pool(self, Pool pool)
    cdef _describe(self, const Snapshot* s)
    cdef _matrix(self, const double* start, Py_ssize_t rows)

    @cython.final
    cdef const double* view_round(self, const ChunkPointers* c, Py_ssize_t t) noexcept nogil
    @cython.final
    cdef int play_one(self, const ChunkPointers* c, Py_ssize_t t) noexcept nogil
    cdef int decide(
        self, int client, const double* X, const unsigned char* mask, int* layer
    ) noexcept nogil
    cdef int learn(self, int client, int layer, double reward, double sigma) noexcept nogil
    cdef int sync_one(self, int client) noexcept nogil
    cdef int push(self, int client) noexcept nogil
    cdef int upload(self, int client, int s) noexcept nogil
    cdef int advance(self, Snapshot** holder, const Pending* p) noexcept nogil
    cdef int download(self, int client, int s) noexcept nogil
    @cython.final
    cdef int tally(self, int client, int arm, double reward) noexcept nogil
    cdef int sync_marked(self, long long round) noexcept nogil
    @cython.final
    cdef int next_planned(self, int client) noexcept nogil
    @cython.final
    cdef void record_pull(self, int arm, int layer, int client) noexcept nogil
    @cython.final
    cdef void record_row(self) noexcept nogil


cdef int status_of(int info) noexcept nogil
