"""The engine: the state of a server and its clients, and the loop over a chunk of rounds.

The loop runs without the GIL; Python runs between chunks only. One pull is: decide (screening),
draw the reward, learn (gram), ask the trigger, sync. The symbols are explained in structs.pxd.
"""

import numpy as np

from fedsuplin_ext.norms import aligned_zeros

cimport cython
from libc.math cimport INFINITY, NAN, fabs, isfinite, log, sqrt
from libc.stdint cimport int32_t

from fedsuplin_ext.certificates cimport panel_size, spikes_of, threshold
from fedsuplin_ext.gram cimport (
    add_pending,
    copy_gram,
    delta_moment_of,
    growth,
    hand_over,
    merge,
    observe,
    outgrow,
    rebase,
    settle,
)
from fedsuplin_ext.norms cimport QuietLayer, padded, pick
from fedsuplin_ext.pool cimport take_sums
from fedsuplin_ext.screening cimport (
    choose_layered,
    choose_optimistic,
    inverse_of,
    survey,
    theta_of,
)
from fedsuplin_ext.structs cimport (
    ARMS,
    BAD_ARM,
    BAD_CHOICE,
    BAD_CLIENT,
    BAD_TRIGGER,
    BAD_WEIGHT,
    BYTES_DOWN,
    BYTES_UP,
    CLIENTS,
    COMMUNICATION,
    DONE,
    KEPT,
    LAYERS,
    MATRICES,
    MESSAGES_DOWN,
    MESSAGES_UP,
    MOST_SPIKES,
    N_BY_PULL,
    N_COUNTS,
    N_SUMS,
    NEEDS_ROOM,
    NOT_FINITE,
    NOT_IN_ROUNDS,
    NOT_POSITIVE_DEFINITE,
    PHASE_OVER,
    REGRET,
    REWARD,
    TOO_LARGE,
    UNIFORM_REGRET,
    UNKNOWN,
    VECTORS,
    Certificates,
    Pending,
    Screen,
    Spikes,
)

SHORTCUTS = ("fresh", "spikes", "proofs", "fused")  # which change no decision: screening.pyx
cdef int FIRST_PATIENCE = 16  # decisions without a wide arm before a certificate is sought
cdef int FIRST_PANEL_PATIENCE = 8
cdef int MOST_PATIENCE = 4096
cdef int NEVER = 1 << 30
REFRESH = 256  # rank-one steps between factorisations: few enough to bound the drift, and cheap

# The columns of a result, in the order of their enums in structs.pxd.
SUMS = ("regret", "uniform_regret", "reward")
COUNTS = ("communication", "messages_up", "messages_down", "bytes_up", "bytes_down")
BY_PULL = ("arms", "layers", "clients")

# The words for each Status of structs.pxd, in its order.
STATUS = (
    "done", "needs room", "bad weight", "bad trigger", "bad choice", "not positive definite",
    "not finite", "bad client", "not in rounds", "phase over",
)


cdef class Engine:
    """A server and its clients. `play` plays a chunk of rounds; the rest reports the state."""

    def __init__(
        self, algorithm, *, budget=INFINITY, kernels=None, refresh=REFRESH, key=0, n_clients=None,
        shortcuts=SHORTCUTS, patience=None,
    ):
        cdef int d = algorithm.dim
        cdef ptrdiff_t ld = padded(pick(kernels), d)
        self.memory = []
        self.n_clients = algorithm.n_clients if n_clients is None else n_clients
        self.is_layered = algorithm.kernel == "layered"
        self.is_optimism = algorithm.kernel == "optimism"
        self.is_phased = algorithm.kernel == "phased"
        self.sync_all, self.pushes = algorithm.syncs == "all", algorithm.syncs == "push"
        self.push_threshold = algorithm.trigger.push_threshold if self.pushes else 0.0
        self.budget, self.key = budget, key
        self.payload = 8 * (d * (d + 1) // 2 + d)
        self._make_work(d, ld, not algorithm.lazy, algorithm.setting.ridge, kernels, refresh)
        self._make_screen(algorithm.n_arms)
        self._make_numbers(algorithm)
        self._make_shortcuts(shortcuts, patience)
        self._make_rules(algorithm.rules)
        self._make_state(algorithm.setting.ridge)
        self.record_into(None, None, None)

    # --- construction: every buffer that the loop needs -------------------------------------------

    cdef double* _doubles(self, Py_ssize_t n):
        """Zeros that live as long as the engine."""
        array = aligned_zeros(max(n, 1))
        self.memory.append(array)
        cdef double[::1] view = array
        return &view[0]

    cdef unsigned char* _bytes(self, Py_ssize_t n):
        """Zeros that live as long as the engine."""
        array = np.zeros(max(n, 1), np.uint8)
        self.memory.append(array)
        cdef unsigned char[::1] view = array
        return &view[0]

    cdef _make_work(self, int d, ptrdiff_t ld, bint eager, double ridge, kernels, int refresh):
        self.work.d, self.work.ld, self.work.eager, self.work.refresh = d, ld, eager, refresh
        self.work.keep = max(1, d // 2)
        self.work.keeps_sums = eager or self.pushes
        self.first_size = MATRICES if self.work.keeps_sums else VECTORS
        self.work.ridge, self.work.log_det_ridge = ridge, d * log(ridge)
        self.work.k = pick(kernels)
        self.work.matrix, self.work.second_matrix = self._doubles(d * ld), self._doubles(d * ld)
        self.work.v, self.work.y = self._doubles(ld), self._doubles(ld)
        self.work.u, self.work.sum = self._doubles(ld), self._doubles(ld)
        self.work.zero, self.work.drift = self._doubles(ld), 0.0
        self.x, self.Px = self._doubles(ld), self._doubles(ld)

    cdef _make_screen(self, int n_arms):
        cdef ptrdiff_t a, lanes = padded(self.work.k, n_arms)
        self.screen.n_arms, self.screen.lanes, self.screen.round_stride = n_arms, <int>lanes, lanes
        self.screen.estimate, self.screen.width = self._doubles(lanes), self._doubles(lanes)
        self.screen.out, self.screen.everyone = self._doubles(lanes), self._doubles(lanes)
        for a in range(n_arms, lanes):
            self.screen.everyone[a] = -INFINITY
        self.screen.moved = 1
        self.screen.columns = self._doubles(self.work.d * lanes)
        self.screen.arm, self.screen.source = <int*>self._doubles(lanes), <int*>self._doubles(lanes)
        self.means = self._doubles(lanes)
        self.round = self._doubles(self.work.d * lanes)

    cdef _make_numbers(self, algorithm):
        cdef int s, n = algorithm.n_layers
        cdef double* radii = self._doubles(n)
        cdef double* targets = self._doubles(n)
        for s in range(n):
            radii[s], targets[s] = algorithm.radii[s], algorithm.target_widths[s]
        self.numbers.n_layers, self.numbers.radii, self.numbers.targets = n, radii, targets
        self.numbers.growth_scale, self.numbers.growth_offset = algorithm.radius_growth

    cdef _make_shortcuts(self, shortcuts, patience):
        """Make room for certificates and for the products of several layers.

        `patience` is for tests: how many calm decisions lie between two examinations of a layer.
        """
        cdef int n = self.numbers.n_layers, s, i
        cdef Py_ssize_t d = self.work.d, lanes = self.screen.lanes
        cdef Py_ssize_t to = self.work.k.proofs.lanes, rows = n * (1 + MOST_SPIKES) + 1
        cdef Screen* screen = &self.screen
        cdef Certificates* c
        screen.fresh, screen.fused = "fresh" in shortcuts, "fused" in shortcuts
        screen.proofs = "proofs" in shortcuts
        screen.most_patience = patience or MOST_PATIENCE
        screen.reached = n - 1
        screen.vectors = <const double**>self._doubles(rows)
        screen.products = self._doubles(rows * lanes)
        screen.quiet = <QuietLayer*>self._bytes(n * sizeof(QuietLayer))
        screen.layer_of = <int*>self._doubles(n)
        to = (lanes + to - 1) // to * to
        screen.pairs = <int32_t*>self._doubles((d + 3) * to // 2)
        screen.singles = <float*>self._doubles((d + 3) * to // 2 + to)
        screen.form = <float*>self._doubles(to)
        screen.certificates = <Certificates*>self._bytes(n * sizeof(Certificates))
        for s in range(n):
            c = screen.certificates + s
            c.tau = threshold(&self.numbers, s)
            c.patience = patience or FIRST_PATIENCE if "spikes" in shortcuts else NEVER
            c.panel_patience = patience or FIRST_PANEL_PATIENCE
            for i in range(KEPT):
                c.spikes[i].directions = self._doubles(MOST_SPIKES * self.work.ld)
                c.panels[i].pairs = <int32_t*>self._doubles((panel_size(<int>d) + 1) // 2)

    cdef _make_rules(self, rules):
        """Take the algorithm's rules with fresh state, and make the arrays that a policy reads."""
        self.trigger = rules["trigger"].for_run(self.n_clients)
        self.weighting = rules["weighting"].for_run(self.n_clients)
        if "policy" not in rules:
            return
        shape = (self.numbers.n_layers, self.screen.n_arms)
        estimates, all_widths = np.zeros(shape), np.zeros(shape)
        targets = np.array([self.numbers.targets[s] for s in range(self.numbers.n_layers)])
        targets.setflags(write=False)
        self.estimates = <double*><size_t>estimates.ctypes.data
        self.all_widths = <double*><size_t>all_widths.ctypes.data
        self.memory += [estimates, all_widths]
        self.policy = rules["policy"].for_run(self.n_clients)
        self.policy.show(estimates, all_widths, targets)

    cdef _make_state(self, double ridge):
        """Start with A = λI, b = 0: one snapshot per layer, held by the server and every client."""
        cdef int n_layers = self.numbers.n_layers, d = self.work.d, s, i
        cdef Py_ssize_t client
        self.client_regret = np.zeros(self.n_clients)
        self.client_pulls = np.zeros(self.n_clients, np.int64)
        self.layer_pulls = np.zeros(n_layers, np.int64)
        self._client_regret, self._client_pulls = self.client_regret, self.client_pulls
        self._layer_pulls = self.layer_pulls
        self.server = self.screen.server = <Snapshot**>self._doubles(n_layers)
        self.layers = <Layer*>self._bytes(self.n_clients * n_layers * sizeof(Layer))
        self.since = <long long*>self._doubles(self.n_clients)
        self.last_sync = <long long*>self._doubles(n_layers)
        self.marked = self._bytes(n_layers)
        self._set_pool(self._new_pool())
        self.pool.grow_where_short()
        for s in range(n_layers):
            self.server[s] = self.pool.take_snapshot()
            self.server[s].fresh = 1
            take_sums(self.work.store, self.server[s])
            for i in range(d):
                self.server[s].gram[i * self.work.ld + i] = ridge
                self.server[s].inverse[i * self.work.ld + i] = 1 / ridge
            for client in range(self.n_clients):
                self.layers[client * n_layers + s].held = self.server[s]
            self.server[s].refs += self.n_clients

    cdef Pool _new_pool(self):
        """An empty pool for this engine.

        One pull needs two Pendings at most; a live client stages those of all layers at once.
        """
        cdef int n_layers = self.numbers.n_layers
        return Pool(
            self.work.d, self.work.ld, self.work.keep, self.n_clients, n_layers,
            n_layers + 2 if self.live else 2,
        )

    cdef _set_pool(self, Pool pool):
        """Take memory from this pool."""
        self.pool, self.work.store = pool, &pool.store

    # --- the loop ---------------------------------------------------------------------------------

    def record_into(self, record_at, sums, counts, by_pull=None):
        """Set where results are written.

        After each pull number in `record_at`, a row of `sums` (SUMS) and of `counts` (COUNTS). With
        `by_pull` (pulls × BY_PULL, int32), the arm, layer and client of every pull.
        """
        if by_pull is not None and by_pull.shape[1:] != (N_BY_PULL,):
            raise ValueError(f"by_pull needs {N_BY_PULL} columns: {', '.join(BY_PULL)}")
        if record_at is not None:
            n = len(record_at)
            if sums.shape != (n, N_SUMS) or counts.shape != (n, N_COUNTS):
                raise ValueError(
                    f"sums needs {N_SUMS} columns ({', '.join(SUMS)}), counts {N_COUNTS} "
                    f"({', '.join(COUNTS)}), and both a row for each recorded pull: {n}"
                )
        # All arrays are checked before any is taken: rows are written without bounds checks.
        cdef const long long[::1] at = record_at
        cdef double[:, ::1] to_sums = sums
        cdef long long[:, ::1] to_counts = counts
        cdef int[:, ::1] to_pulls = by_pull
        given = {"record_at": record_at, "sums": sums, "counts": counts, "by_pull": by_pull}
        for name, array in given.items():
            if array is not None and not array.flags.aligned:
                raise ValueError(
                    f"{name} must begin at a multiple of its numbers' size: pass a copy"
                )
        self.record_at, self.record_sums = at, to_sums
        self.record_counts, self.record_by_pull = to_counts, to_pulls

    def play(self, chunk, Py_ssize_t t=0):
        """Play a chunk of rounds from round t on.

        Returns a word of STATUS and the number of rounds of the chunk that are played now. After
        "phase over" the last round is played but not recorded: `begin_phase` records it, and `play`
        continues from there.
        """
        cdef ChunkPointers c
        cdef int status = NEEDS_ROOM
        cdef const double[:, :, ::1] contexts = chunk.contexts
        cdef const int[::1] clients = chunk.clients
        cdef const double[::1] theta = chunk.theta
        cdef const double[:, ::1] rewards = chunk.rewards
        cdef const double[::1] noise = chunk.noise
        cdef const double[::1] sigma = chunk.sigma
        cdef const double[:, ::1] corruption = chunk.corruption
        cdef const unsigned char[:, ::1] mask = chunk.mask
        c.n = contexts.shape[0]
        if c.n == 0:
            return STATUS[DONE], 0
        if t < 0:
            raise ValueError(f"a chunk is played from round 0 on or later, not from {t}")
        self._check_shapes(chunk)
        c.contexts, c.clients = &contexts[0, 0, 0], &clients[0]
        c.noise, c.sigma = &noise[0], &sigma[0]
        c.theta = &theta[0] if theta is not None else NULL
        c.rewards = &rewards[0, 0] if rewards is not None else NULL
        c.corruption = &corruption[0, 0] if corruption is not None else NULL
        c.mask = &mask[0, 0] if mask is not None else NULL
        while status == NEEDS_ROOM:
            with nogil:
                status = DONE
                while t < c.n:
                    if self.work.store.n_short > 0:
                        status = NEEDS_ROOM
                        break
                    status = self.play_one(&c, t)
                    t += status == DONE or status == PHASE_OVER
                    if status != DONE:
                        break
            if status == NEEDS_ROOM:
                self.pool.grow_where_short()
        return STATUS[status], t

    def _check_shapes(self, chunk):
        """Raise unless the arrays of a chunk fit the engine and each other."""
        n, d, n_arms = chunk.contexts.shape
        shapes = dict.fromkeys(("clients", "noise", "sigma"), (n,))
        shapes |= dict.fromkeys(("rewards", "corruption", "mask"), (n, n_arms))
        needed = ("clients", "noise", "sigma")
        arrays = {name: getattr(chunk, name) for name in shapes}
        wrong = [
            name
            for name, array in arrays.items()
            if (name in needed if array is None else array.shape != shapes[name])
        ]
        for name, array in {**arrays, "contexts": chunk.contexts, "theta": chunk.theta}.items():
            if array is not None and not array.flags.aligned:
                raise ValueError(
                    f"the chunk's {name} must begin at a multiple of its numbers' size: pass a copy"
                )
        if (d, n_arms) != (self.work.d, self.screen.n_arms):
            wrong.append("contexts")
        too_short = chunk.theta is not None and len(chunk.theta) < d
        if too_short or (chunk.theta is None) == (chunk.rewards is None):
            wrong.append("theta")
        if wrong:
            raise ValueError(
                f"the chunk's {', '.join(wrong)} do not fit {n} rounds of "
                f"{self.screen.n_arms} arms in dimension {self.work.d}"
            )

    @cython.final
    cdef const double* view_round(self, const ChunkPointers* c, Py_ssize_t t) noexcept nogil:
        """The contexts of round t, in rows that the kernels may read a whole vector at a time.

        A vector that ends behind the last arm has arms of the next row in it. Nothing reads these
        lanes: they are out, like padding. Behind the last rows of a chunk there is nothing, so
        these rounds are copied.
        """
        cdef ptrdiff_t K = self.screen.n_arms, lanes = self.screen.lanes, size = self.work.d * K
        cdef const double* X = c.contexts + t * size
        self.screen.round_stride = K
        if (c.n - 1 - t) * size >= lanes - K:
            return X
        self.screen.round_stride = lanes
        self.work.k.pad(X, <int>K, self.work.d, <int>lanes, self.round)
        return self.round

    @cython.final
    cdef int play_one(self, const ChunkPointers* c, Py_ssize_t t) noexcept nogil:
        """Play round t of a chunk; returns a Status."""
        cdef int client = c.clients[t], layer = 0, arm, i, status
        cdef Py_ssize_t n_arms = self.screen.n_arms
        cdef const double* X = self.view_round(c, t)
        cdef ptrdiff_t stride = self.screen.round_stride
        cdef const double* means = self.means
        cdef const unsigned char* mask = c.mask + t * n_arms if c.mask != NULL else NULL
        cdef double best, mean, reward, corruption
        if client < 0 or client >= self.n_clients:
            return BAD_CLIENT
        if self.sync_all and self.since[client] > self.totals.pulls // self.n_clients:
            return NOT_IN_ROUNDS

        self.screen.hidden, self.screen.means = c.theta, NULL
        arm = self.decide(client, X, mask, &layer)
        if arm < 0:
            return BAD_CHOICE if arm == BAD_ARM else NOT_FINITE

        # The reward, and the expected rewards of the best arm and of uniform random play.
        if self.screen.means != NULL:
            means = self.screen.means
        elif c.theta != NULL:
            self.work.k.estimates(
                c.theta, X, stride, self.work.d, self.screen.lanes, self.means
            )
        else:
            means = c.rewards + t * n_arms
        best_and_mean(means, mask, self.screen.n_arms, &best, &mean)
        corruption = 0.0
        if c.corruption != NULL:
            corruption = c.corruption[t * n_arms + arm]
            corruption = max(-self.budget, min(self.budget, corruption))
            self.budget -= fabs(corruption)
        reward = means[arm] + c.noise[t] + corruption
        if not isfinite(
            self.totals.sums[REWARD] + reward
            + (self.totals.sums[REGRET] + best - means[arm])
            + (self.totals.sums[UNIFORM_REGRET] + best - mean)
        ):
            return NOT_FINITE

        if self.is_phased:
            status = self.tally(client, arm, reward)
        else:
            for i in range(self.work.d):
                self.x[i] = X[i * stride + arm]
            status = self.learn(client, layer, reward, c.sigma[t])
        if status != DONE and status != PHASE_OVER:
            return status
        self.totals.pulls += 1
        self.totals.sums[REWARD] += reward
        self.totals.sums[REGRET] += best - means[arm]
        self.totals.sums[UNIFORM_REGRET] += best - mean
        self._client_regret[client] += best - means[arm]
        self._client_pulls[client] += 1
        self._layer_pulls[layer] += 1
        if self.sync_all and self.totals.pulls % self.n_clients == 0 and status == DONE:
            status = self.sync_marked(self.totals.pulls // self.n_clients)
        self.record_pull(arm, layer, client)
        if status != PHASE_OVER:
            self.record_row()
        return status

    cdef int decide(
        self, int client, const double* X, const unsigned char* mask, int* layer
    ) noexcept nogil:
        """Choose an arm, and write its layer.

        Returns -1 where estimates are not finite, BAD_ARM where the arm is not available.
        """
        cdef int n_layers = self.numbers.n_layers, n = self.screen.n_arms, arm
        cdef Layer* mine = self.layers + <Py_ssize_t>client * n_layers
        if self.is_layered:
            return choose_layered(
                &self.work, &self.screen, &self.numbers, mine, X, mask, layer
            )
        if self.is_optimism:
            return choose_optimistic(&self.work, &self.screen, &self.numbers, mine, X, mask)
        if self.is_phased:
            return self.next_planned(client)
        survey(
            &self.work, &self.screen, &self.numbers, mine, X, mask, self.estimates, self.all_widths
        )
        self.chosen = self.policy.choose(
            client, self.estimates, self.all_widths, <double*>self.numbers.targets, n_layers, n,
            uniform(self.key, self.totals.pulls),
        )
        if self.chosen < 0 or self.chosen >= n_layers * n:
            return BAD_ARM
        layer[0], arm = self.chosen // n, self.chosen % n
        if mask != NULL and not mask[arm]:
            return BAD_ARM
        return arm if isfinite(self.estimates[self.chosen]) else -1

    cdef int learn(self, int client, int layer, double reward, double sigma) noexcept nogil:
        """Add an observation (x in self.x) to the layer that chose it, ask the trigger, sync."""
        cdef Layer* at = self.layers + <Py_ssize_t>client * self.numbers.n_layers + layer
        cdef double norm2 = 0.0, norm = NAN, weight, elapsed, residual = 0.0
        cdef int asks, info
        # Px is read by a weighting, by an eager client, and while Δ is a list of vectors.
        if (
            self.weighting.reads_norm or self.work.eager
            or at.pending == NULL or not at.pending.own
        ):
            self.work.k.matvec(
                inverse_of(&self.work, at), self.work.ld, self.x, self.work.d, self.Px
            )
            norm2 = self.work.k.dot(self.x, self.Px, self.work.ld)
        if self.weighting.state_size > 0:
            residual = reward - self.work.k.dot(self.x, theta_of(&self.work, at), self.work.ld)
        if self.weighting.reads_norm:  # else NaN, always: no weight depends on what was computed
            norm = sqrt(0.0 if norm2 < 0 else norm2)
        weight = self.weighting.weight(client, norm, sigma, residual)
        if not (weight >= 0 and isfinite(weight)):
            return BAD_WEIGHT
        self.last_weight = weight
        if at.pending == NULL:
            at.pending = self.pool.take_pending(self.first_size)
        info = observe(&self.work, at.held, at.pending, self.x, self.Px, weight, reward)
        if info != 0:
            return status_of(info)
        if self.sync_all:
            self.since[client] = self.totals.pulls // self.n_clients + 1
            elapsed = self.since[client] - self.last_sync[layer]
        else:
            self.since[client] += 1
            elapsed = self.since[client]
        asks = self.trigger.fires(client, at.pending.gain, elapsed)
        if asks < 0:
            return BAD_TRIGGER
        if asks and (self.sync_all or self.live):
            self.marked[layer] = 1
        elif asks:
            return self.push(client) if self.pushes else self.sync_one(client)
        return DONE

    cdef int sync_one(self, int client) noexcept nogil:
        """Sync(s) for each layer s: the client uploads, then takes the server's newest snapshot."""
        cdef int s, status
        for s in range(self.numbers.n_layers):
            status = self.upload(client, s)
            if status == DONE:
                status = self.download(client, s)
            if status != DONE:
                return status
        self.since[client] = 0
        self.totals.counts[COMMUNICATION] += 1
        self.totals.counts[MESSAGES_UP] += 1
        self.totals.counts[MESSAGES_DOWN] += 1
        return DONE

    cdef int push(self, int client) noexcept nogil:
        """This client uploads; the server sends clients what they lack.

        A client gets a layer where that raises its ln det by more than the threshold.
        """
        cdef int s, j, status, sent
        cdef double gain
        cdef Layer* at
        for s in range(self.numbers.n_layers):
            status = self.upload(client, s)
            if status != DONE:
                return status
        self.since[client] = 0
        self.totals.counts[COMMUNICATION] += 1
        self.totals.counts[MESSAGES_UP] += 1
        for j in range(self.n_clients):
            sent = 0
            for s in range(self.numbers.n_layers):
                at = self.layers + <Py_ssize_t>j * self.numbers.n_layers + s
                if at.held == self.server[s]:
                    continue
                gain = growth(&self.work, self.server[s].log_det, at.held.log_det)
                if gain > self.push_threshold:
                    status = self.download(j, s)
                    if status != DONE:
                        return status
                    sent = 1
            self.totals.counts[COMMUNICATION] += sent
            self.totals.counts[MESSAGES_DOWN] += sent
        return DONE

    cdef int upload(self, int client, int s) noexcept nogil:
        """The server adds what a client has gathered in a layer.

        Where uploads are not followed by downloads (`pushes`), the client must not lose what it
        uploaded. If it lacks something of the server's, its own sum becomes a snapshot of its own;
        otherwise it holds the server's new one.
        """
        cdef Layer* at = self.layers + <Py_ssize_t>client * self.numbers.n_layers + s
        cdef Snapshot* into
        cdef int lacks_nothing = at.held == self.server[s], info
        if at.pending == NULL:
            return DONE
        if self.pushes and not lacks_nothing:
            info = self.advance(&at.held, at.pending)
            if info != 0:
                return status_of(info)
        info = self.advance(&self.server[s], at.pending)
        if info != 0:
            return status_of(info)
        into = self.server[s]
        if self.pushes and lacks_nothing:
            self.pool.release(at.held)
            at.held = into
            into.refs += 1
        self.pool.give_back(at.pending)
        at.pending = NULL
        self.totals.counts[BYTES_UP] += self.payload
        return DONE

    cdef int advance(self, Snapshot** holder, const Pending* p) noexcept nogil:
        """Add what was gathered to the snapshot of a holder, or to a new one if others hold it.

        If that fails, the holder keeps its snapshot, whose sums may have been changed.
        """
        cdef Snapshot* last = holder[0]
        cdef Snapshot* into = last if last.refs == 1 else self.pool.take_snapshot()
        cdef int info = merge(&self.work, into, last, p)
        if info != 0 and into != last and not self.work.keeps_sums:
            last.gram, last.moment = into.gram, into.moment
            into.gram = into.moment = NULL
        if into != last:
            self.pool.release(into if info != 0 else last)
        if info == 0:
            holder[0] = into
        return info

    cdef int download(self, int client, int s) noexcept nogil:
        """A client takes the server's newest snapshot of a layer.

        What it has gathered and not uploaded is put on top.
        """
        cdef Layer* at = self.layers + <Py_ssize_t>client * self.numbers.n_layers + s
        if at.held == self.server[s]:
            return DONE
        self.pool.release(at.held)
        at.held = self.server[s]
        at.held.refs += 1
        self.totals.counts[BYTES_DOWN] += self.payload
        return DONE if at.pending == NULL else status_of(rebase(&self.work, at.held, at.pending))

    cdef int sync_marked(self, long long round) noexcept nogil:
        """Sync(s) of all clients for the layers marked in this round; each is factorised once."""
        cdef int s, client, n_layers = self.numbers.n_layers, any_marked = 0, info
        cdef Layer* at
        cdef Snapshot* into
        for s in range(n_layers):
            if not self.marked[s]:
                continue
            self.marked[s], any_marked = 0, 1
            into = self.pool.take_snapshot()
            hand_over(&self.work, into, self.server[s])
            outgrow(&self.work, into, self.server[s])
            self.pool.release(self.server[s])
            self.server[s] = into
            for client in range(self.n_clients):
                at = self.layers + <Py_ssize_t>client * n_layers + s
                if at.pending != NULL:
                    add_pending(&self.work, into, at.pending)
                    self.pool.give_back(at.pending)
                    at.pending = NULL
                    self.totals.counts[BYTES_UP] += self.payload
                self.pool.release(at.held)
                at.held = into
                into.refs += 1
            info = settle(&self.work, into)
            if info != 0:
                return status_of(info)
            self.last_sync[s] = round
            self.totals.counts[COMMUNICATION] += self.n_clients
            self.totals.counts[BYTES_DOWN] += self.n_clients * self.payload
        if any_marked:
            self.totals.counts[MESSAGES_UP] += self.n_clients
            self.totals.counts[MESSAGES_DOWN] += self.n_clients
        return DONE

    # --- phases -----------------------------------------------------------------------------------

    def begin_phase(self, plan, idle, together, *, clients=None, traffic=None):
        """Begin the next phase: `plan` has the pulls of each arm (clients × arms).

        `idle` is by client the arm that it plays when its plan is done and the phase is not.
        `clients` are those for whom a phase begins, all of them by default. `traffic` is what the
        end of the last phase has cost, by name (COUNTS). The round that ended it is recorded now.
        """
        shape = (self.n_clients, self.screen.n_arms)
        if self.plan is None:
            self.plan, self.counts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
            self.reward_sums = np.zeros(shape)
            self.left = np.zeros(self.n_clients, np.int64)
            self.idle = np.zeros(self.n_clients, np.int64)
            self._plan, self._counts, self._reward_sums = self.plan, self.counts, self.reward_sums
            self._left, self._idle = self.left, self.idle
        who = slice(None) if clients is None else clients
        self.plan[who], self.idle[who] = plan[who], idle[who]
        too_few = self.plan.min() < 0 or self.plan[who].sum(axis=1).min() < 1
        if too_few or self.idle.min() < 0 or self.idle.max() >= shape[1]:
            raise ValueError(
                "a phase needs at least one pull for each client, none negative, "
                "and idle arms that exist"
            )
        self.counts[who], self.reward_sums[who] = 0, 0.0
        self.left[who] = self.plan[who].sum(axis=1)
        self.together, self.unfinished = together, int((self.left > 0).sum())
        self._charge(traffic or {})
        if self.totals.pulls:
            self.record_row()

    def _charge(self, traffic):
        """Add what the end of a phase has cost to the totals."""
        cdef int i
        if not set(traffic) <= set(COUNTS):
            raise ValueError(
                f"traffic is counted as {', '.join(COUNTS)}, not as {', '.join(traffic)}"
            )
        for i, name in enumerate(COUNTS):
            self.totals.counts[i] += traffic.get(name, 0)

    @cython.final
    cdef int next_planned(self, int client) noexcept nogil:
        """The lowest arm with pulls left in this client's plan, or its idle arm."""
        cdef int a
        if self._left[client] > 0:
            for a in range(self.screen.n_arms):
                if self._plan[client, a] > 0:
                    return a
        return <int>self._idle[client]

    @cython.final
    cdef int tally(self, int client, int arm, double reward) noexcept nogil:
        """Count a pull of this phase and add its reward; idle pulls do not count."""
        if self._left[client] == 0:
            return DONE
        self._counts[client, arm] += 1
        self._reward_sums[client, arm] += reward
        self._plan[client, arm] -= 1
        self._left[client] -= 1
        if self._left[client] > 0:
            return DONE
        self.unfinished -= 1
        return PHASE_OVER if not self.together or self.unfinished == 0 else DONE

    # --- recording --------------------------------------------------------------------------------

    @cython.final
    cdef void record_pull(self, int arm, int layer, int client) noexcept nogil:
        """Record the arm, layer and client of the last pull, where every pull is recorded."""
        if self.record_by_pull is not None and self.totals.pulls <= self.record_by_pull.shape[0]:
            self.record_by_pull[self.totals.pulls - 1, ARMS] = arm
            self.record_by_pull[self.totals.pulls - 1, LAYERS] = layer
            self.record_by_pull[self.totals.pulls - 1, CLIENTS] = client

    @cython.final
    cdef void record_row(self) noexcept nogil:
        """Record the totals, if this is a pull after which a row is due."""
        cdef Py_ssize_t row = self.recorded
        cdef int i
        if self.record_at is None or row >= self.record_at.shape[0]:
            return
        if self.record_at[row] != self.totals.pulls:
            return
        for i in range(N_SUMS):
            self.record_sums[row, i] = self.totals.sums[i]
        for i in range(N_COUNTS):
            self.record_counts[row, i] = self.totals.counts[i]
        self.recorded += 1

    # --- what has happened ------------------------------------------------------------------------

    @property
    def totals_now(self):
        """Pulls, regret, communication and the other totals so far, by name."""
        sums = zip(SUMS, self.totals.sums, strict=True)
        counts = zip(COUNTS, self.totals.counts, strict=True)
        return {"pulls": self.totals.pulls, **dict(sums), **dict(counts)}

    @property
    def kernels(self):
        """The name of the kernel set in use."""
        return self.work.k.name.decode()

    @property
    def drift(self):
        """The largest difference between an inverse kept by rank-one steps and a fresh one.

        It is relative to the largest entry.
        """
        return self.work.drift

    @property
    def memory_used(self):
        """Bytes held for the state: fixed buffers and the pool."""
        return sum(array.nbytes for array in self.memory) + self.pool.bytes

    @property
    def rules(self):
        """The rules of this run by axis: their state, and what a Python form raised."""
        found = {"policy": self.policy, "trigger": self.trigger, "weighting": self.weighting}
        return {axis: rule for axis, rule in found.items() if rule is not None}

    def server_layer(self, int layer):
        """A copy of the server's snapshot: gram, moment, inverse, theta_hat, log_det."""
        if not 0 <= layer < self.numbers.n_layers:
            raise IndexError(f"there is no layer {layer} of {self.numbers.n_layers}")
        return self._describe(self.server[layer])

    def certificate(self, int layer):
        """What proves that arms of a layer are not wide, for the server's snapshot.

        No context is wide where Σ (uᵀx)² over the rows u of "spikes" is below "room"; "spikes" is
        None without such a certificate, and has no rows where no context can be wide. "tau" is
        (w̄/α)², and "panel" is true if there is a certificate in fixed point.
        """
        if not 0 <= layer < self.numbers.n_layers:
            raise IndexError(f"there is no layer {layer} of {self.numbers.n_layers}")
        cdef const Snapshot* held = self.server[layer]
        cdef const Certificates* c = self.screen.certificates + layer
        cdef const Spikes* found = spikes_of(&self.screen, held, layer)
        return {
            "spikes": None if found == NULL else self._matrix(found.directions, found.n),
            "room": 0.0 if found == NULL else found.room,
            "tau": c.tau,
            "panel": held.panel != UNKNOWN and c.panels[held.panel % KEPT].number == held.panel,
        }

    def client_layer(self, int client, int layer):
        """A copy of a client's last download of a layer, with what it has gathered since.

        Where only the server's newest snapshot has A and b, those of an older one are P⁻¹ and
        P⁻¹θ̂, which are the same up to rounding.
        """
        if not (0 <= layer < self.numbers.n_layers and 0 <= client < self.n_clients):
            raise IndexError(
                f"there is no client {client} of {self.n_clients} "
                f"with a layer {layer} of {self.numbers.n_layers}"
            )
        cdef Layer* at = self.layers + <Py_ssize_t>client * self.numbers.n_layers + layer
        d = self.work.d
        nothing = {"gain": 0.0, "delta_gram": np.zeros((d, d)), "delta_moment": np.zeros(d)}
        known = self._describe(at.held) | nothing
        cdef Pending* p = at.pending
        if p == NULL:
            return known
        rows = self._matrix(p.delta, self.work.d if p.dense else p.n)
        gathered = whole(rows) if p.dense else rows.T @ rows
        delta_moment = self._matrix(delta_moment_of(&self.work, p), 1)[0]
        known |= {"gain": p.gain, "delta_gram": gathered, "delta_moment": delta_moment}
        if p.own:
            known["inverse_with_delta"] = self._matrix(p.inverse, self.work.d)
        if self.work.eager:
            known["theta_hat_with_delta"] = self._matrix(p.theta, 1)[0]
        return known

    cdef _describe(self, const Snapshot* s):
        """A copy of a snapshot, by name."""
        cdef double log_det
        d = self.work.d
        copy_gram(&self.work, s, self.work.matrix, &log_det)
        gram, theta_hat = whole(self._matrix(self.work.matrix, d)), self._matrix(s.theta, 1)[0]
        return {
            "gram": gram,
            "inverse": self._matrix(s.inverse, d),
            "moment": gram @ theta_hat if s.moment == NULL else self._matrix(s.moment, 1)[0],
            "theta_hat": theta_hat,
            "log_det": s.log_det,
        }

    cdef _matrix(self, const double* start, Py_ssize_t rows):
        """A copy of padded rows as an array, without the padding."""
        out = np.empty((rows, self.work.d))
        cdef double[:, ::1] view = out
        cdef Py_ssize_t i, j
        for i in range(rows):
            for j in range(self.work.d):
                view[i, j] = start[i * self.work.ld + j]
        return out


def whole(upper):
    """The symmetric matrix with this upper triangle."""
    return np.triu(upper) + np.triu(upper, 1).T


cdef int status_of(int info) noexcept nogil:
    """The Status for a return value of gram.pyx."""
    if info == 0:
        return DONE
    return NOT_FINITE if info == TOO_LARGE else NOT_POSITIVE_DEFINITE


cdef double uniform(unsigned long long key, long long pull) noexcept nogil:
    """A number in [0, 1) that depends on key and pull only: SplitMix64 at that position."""
    cdef unsigned long long z = key + <unsigned long long>(pull + 1) * 0x9E3779B97F4A7C15ULL
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL
    return <double>((z ^ (z >> 31)) >> 11) * (1.0 / 9007199254740992.0)  # 2⁻⁵³


cdef void best_and_mean(
    const double* means, const unsigned char* mask, int n, double* best, double* mean
) noexcept nogil:
    """Write the expected rewards of the best arm and of uniform random play."""
    cdef int a, there = 0
    cdef double total = 0.0
    best[0] = -INFINITY
    for a in range(n):
        if mask == NULL or mask[a]:
            best[0] = max(best[0], means[a])
            total += means[a]
            there += 1
    mean[0] = total / there
    if not isfinite(mean[0]):  # the sum overflows, but the sum of the shares may not
        mean[0] = 0.0
        for a in range(n):
            if mask == NULL or mask[a]:
                mean[0] += means[a] / there
