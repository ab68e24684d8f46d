"""One client, or the server, of a federation whose other parts are elsewhere: the state and the steps of the loop, one at a time."""

import numpy as np

from fedsuplin_ext.loop import STATUS

from libc.math cimport isfinite
from libc.string cimport memcpy, memset

from fedsuplin_ext.gram cimport add_delta, observe, outgrow, rebase, settle
from fedsuplin_ext.loop cimport Engine, status_of
from fedsuplin_ext.norms cimport check_aligned
from fedsuplin_ext.structs cimport (
    BAD_ARM,
    BAD_CHOICE,
    DONE,
    NOT_FINITE,
    REWARD,
    UNKNOWN,
    Layer,
    Pending,
    Snapshot,
)

__all__ = ["Live"]


cdef class Live(Engine):
    """An engine for one client. As a server's, only what the server knows is used."""

    cdef Snapshot** staged  # by layer: what the server will know, while uploads are added up; NULL where nothing is new

    def __init__(self, algorithm, *, kernels=None, key=0):
        Engine.__init__(self, algorithm, kernels=kernels, key=key, n_clients=1)
        self.live = 1
        self.staged = <Snapshot**>self._doubles(self.numbers.n_layers)

    # --- a client -----------------------------------------------------------------------------------------------------------

    def select(self, const double[:, ::1] contexts, const unsigned char[::1] mask=None):
        """The arm and its layer for contexts of d × lanes, with a word of STATUS."""
        cdef int layer = 0, arm
        if contexts.shape[0] != self.work.d or contexts.shape[1] != self.screen.lanes or (mask is not None and mask.shape[0] < self.screen.lanes):
            raise ValueError(f"contexts must have the shape ({self.work.d}, {self.screen.lanes}), and mask that many lanes")
        check_aligned(&contexts[0, 0], "contexts")
        states = self._rule_states()
        with nogil:
            arm = self.decide(0, &contexts[0, 0], NULL if mask is None else &mask[0], &layer)
        if arm < 0:
            self._put_states_back(states)
            return STATUS[BAD_CHOICE if arm == BAD_ARM else NOT_FINITE], -1, -1
        return STATUS[DONE], arm, layer

    def learn_from(self, const double[::1] x, int layer, double reward, double sigma):
        """An observation of the arm x that this layer chose; then the trigger is asked. Returns a word of STATUS and the weight.
        Unless the word is "done", nothing has changed."""
        cdef int status
        self._check(layer, x.shape[0])
        if not (isfinite(reward) and isfinite(sigma)):
            raise ValueError(f"a reward and a noise level must be finite, not {reward} and {sigma}")
        self._take(x)
        self._room()
        cdef Pending* before = self._set_aside(layer)
        cdef long long since = self.since[0]
        cdef double drift = self.work.drift
        states = self._rule_states()
        with nogil:
            status = self.learn(0, layer, reward, sigma)
        if status == DONE:
            self.totals.pulls += 1
            self.totals.sums[REWARD] += reward
            self._layer_pulls[layer] += 1
            if before != NULL:
                self.pool.give_back(before)
        else:
            self._put_back(layer, before)
            self.since[0], self.work.drift = since, drift
            self._put_states_back(states)
        return STATUS[status], self.last_weight

    cdef Pending* _set_aside(self, int layer):
        """A copy of what was gathered in a layer, in case the next observation cannot be learnt; NULL if nothing was."""
        cdef Pending* p = self.layers[layer].pending
        cdef Pending* aside
        if p == NULL:
            return NULL
        cdef size_t matrix = self.work.d * self.work.ld * sizeof(double), vector = self.work.ld * sizeof(double)
        aside = self.pool.take_pending()
        aside.n, aside.dense, aside.own, aside.age, aside.gain = p.n, p.dense, p.own, p.age, p.gain
        memcpy(aside.delta, p.delta, matrix)
        memcpy(aside.inverse, p.inverse, matrix)
        memcpy(aside.delta_moment, p.delta_moment, vector)
        memcpy(aside.theta, p.theta, vector)
        return aside

    cdef _put_back(self, int layer, Pending* before):
        cdef Layer* at = self.layers + layer
        if at.pending != NULL:
            self.pool.give_back(at.pending)
        at.pending = before

    def _rule_states(self):
        """Copies of what the rules remember."""
        return {axis: rule.state.copy() for axis, rule in self.rules.items() if rule.state is not None}

    def _put_states_back(self, states):
        for axis, state in states.items():
            self.rules[axis].state[:] = state

    def learn_again(self, const double[::1] x, int layer, double weight, double reward):
        """An observation whose weight is known, on top of a new download; no trigger is asked."""
        cdef Layer* at
        cdef int status
        self._check(layer, x.shape[0])
        if not (weight >= 0 and isfinite(weight) and isfinite(reward)):
            raise ValueError(f"a weight of at least 0 and a finite reward, not {weight} and {reward}")
        self._take(x)
        self._room()
        at = self.layers + layer
        self.work.k.matvec(self._inverse(at), self.work.ld, self.x, self.work.d, self.Px)
        if at.pending == NULL:
            at.pending = self.pool.take_pending()
        status = observe(&self.work, at.held, at.pending, self.x, self.Px, weight, reward)
        return STATUS[status_of(status)]

    cdef const double* _inverse(self, const Layer* at):
        return at.pending.inverse if self.work.eager and at.pending != NULL and at.pending.own else at.held.inverse

    cdef _take(self, const double[::1] x):
        cdef Py_ssize_t i
        check_aligned(&x[0], "an arm")
        for i in range(self.work.d):
            self.x[i] = x[i]

    cdef _room(self):
        if self.pool.snapshots_left <= 2 * self.numbers.n_layers or self.pool.pending_left < 2:
            self._grow()

    def _check(self, int layer, Py_ssize_t d):
        if not 0 <= layer < self.numbers.n_layers or d != self.work.d:
            raise ValueError(f"layer {layer} of {self.numbers.n_layers}, an arm of {d} numbers in dimension {self.work.d}")

    @property
    def asking(self):
        """The layers whose trigger has fired since they were last received."""
        return [s for s in range(self.numbers.n_layers) if self.marked[s]]

    def gathered(self, int layer):
        """ΔA and Δb of a layer since its download; None if there is nothing."""
        self._check(layer, self.work.d)
        cdef Pending* p = self.layers[layer].pending
        if p == NULL:
            return None
        memset(self.work.matrix, 0, self.work.d * self.work.ld * sizeof(double))
        add_delta(&self.work, self.work.matrix, p)
        return self._matrix(self.work.matrix, self.work.d), self._matrix(p.delta_moment, 1)[0]

    def settles(self, const double[:, ::1] gram, const double[::1] moment):
        """Is A positive definite, and are its ln det and θ̂ finite? Nothing changes."""
        self._check_shapes_of(gram, moment)
        self._room()
        cdef Snapshot* s = self.pool.take_snapshot()
        self._fill(s.gram, s.moment, gram, moment)
        cdef bint well = self._settled(s)
        self.pool.release(s)
        return well

    cdef bint _settled(self, Snapshot* s):
        cdef Py_ssize_t i
        if settle(&self.work, s) != 0 or not isfinite(s.log_det):
            return False
        for i in range(self.work.d):
            if not isfinite(s.theta[i]):
                return False
        return True

    def receive(self, int layer, const double[:, ::1] gram, const double[::1] moment, bint keep):
        """A and b of a layer from the server, in place of the last download. What was gathered is forgotten, as the server has
        it now, unless `keep`. Returns whether A is positive definite, also with what was kept; if A alone is not, nothing has
        changed."""
        self._check(layer, self.work.d)
        self._check_shapes_of(gram, moment)
        self._room()
        cdef Layer* at = self.layers + layer
        cdef Snapshot* s = self.pool.take_snapshot()
        self._fill(s.gram, s.moment, gram, moment)
        if not self._settled(s):
            self.pool.release(s)
            return False
        s.quiet = UNKNOWN
        self.pool.release(self.server[layer])
        self.pool.release(at.held)
        self.server[layer] = at.held = s
        s.refs += 1
        if at.pending != NULL and not keep:
            self.pool.give_back(at.pending)
            at.pending = NULL
        self.marked[layer] = 0
        self.last_sync[layer] = self.totals.pulls
        if not self.sync_all:
            self.since[0] = 0
        return at.pending == NULL or rebase(&self.work, s, at.pending) == 0

    # --- a server -------------------------------------------------------------------------------------------------------------

    def add(self, uploads):
        """A ← A + ΔA, b ← b + Δb of every layer that an upload has something of, each factorised once. An upload is its layers,
        the upper triangles of ΔA (a row for each layer, packed) and Δb. Returns −1; or a layer that would not be positive
        definite any more, and then nothing has changed."""
        cdef int layer
        self._room()
        memset(self.staged, 0, self.numbers.n_layers * sizeof(Snapshot*))
        try:
            for layers, grams, moments in uploads:
                self._stage(layers, grams, moments)
        except BaseException:
            self._give_up()
            raise
        for layer in range(self.numbers.n_layers):
            if self.staged[layer] != NULL and not self._settled(self.staged[layer]):
                self._give_up()
                return layer
        self._put_in_place()
        return -1

    cdef int _stage(self, const long long[::1] layers, const double[:, ::1] grams, const double[:, ::1] moments) except -1:
        """Add one upload to copies of the layers that it is about. From the checks on no Python runs that could change it."""
        cdef Py_ssize_t row, i, j, at, d = self.work.d, ld = self.work.ld
        cdef Snapshot* into
        self._check_upload(layers, grams, moments)
        for row in range(layers.shape[0]):
            into = self._copied(<int>layers[row])
            at = 0
            for i in range(d):
                into.moment[i] += moments[row, i]
                for j in range(i, d):
                    into.gram[i * ld + j] += grams[row, at]
                    at += 1
        return 0

    cdef int _check_upload(self, const long long[::1] layers, const double[:, ::1] grams, const double[:, ::1] moments) except -1:
        cdef Py_ssize_t row, n = layers.shape[0], d = self.work.d
        if grams.shape[0] != n or grams.shape[1] != d * (d + 1) // 2 or moments.shape[0] != n or moments.shape[1] != d:
            raise ValueError(f"{n} layers need as many rows of {d * (d + 1) // 2} numbers of ΔA, and of {d} numbers of Δb")
        if n > 0:
            check_aligned(&layers[0], "layers")
            check_aligned(&grams[0, 0], "ΔA")
            check_aligned(&moments[0, 0], "Δb")
        for row in range(n):
            if not 0 <= layers[row] < self.numbers.n_layers:
                raise ValueError(f"layer {layers[row]} of {self.numbers.n_layers}")
        return 0

    cdef Snapshot* _copied(self, int layer):
        cdef Snapshot* into = self.staged[layer]
        cdef const Snapshot* source = self.server[layer]
        if into == NULL:
            into = self.staged[layer] = self.pool.take_snapshot()
            memcpy(into.gram, source.gram, self.work.d * self.work.ld * sizeof(double))
            memcpy(into.moment, source.moment, self.work.ld * sizeof(double))
            outgrow(&self.work, into, source)
        return into

    cdef _give_up(self):
        cdef int layer
        for layer in range(self.numbers.n_layers):
            if self.staged[layer] != NULL:
                self.pool.release(self.staged[layer])

    cdef _put_in_place(self):
        cdef int layer
        for layer in range(self.numbers.n_layers):
            if self.staged[layer] != NULL:
                self.pool.release(self.server[layer])
                self.pool.release(self.layers[layer].held)
                self.server[layer] = self.layers[layer].held = self.staged[layer]
                self.server[layer].refs += 1

    def sums(self):
        """The upper triangle of A, packed, and b: a row for each layer."""
        cdef Py_ssize_t s, i, j, at, n = self.numbers.n_layers, d = self.work.d
        grams, moments = np.empty((n, d * (d + 1) // 2)), np.empty((n, d))
        cdef double[:, ::1] A = grams, b = moments
        for s in range(n):
            at = 0
            for i in range(d):
                b[s, i] = self.server[s].moment[i]
                for j in range(i, d):
                    A[s, at] = self.server[s].gram[i * self.work.ld + j]
                    at += 1
        return grams, moments

    def _check_shapes_of(self, const double[:, ::1] gram, const double[::1] moment):
        """Before memory is taken from the pool, which nobody would give back."""
        if gram.shape[0] != self.work.d or gram.shape[1] != self.work.d or moment.shape[0] != self.work.d:
            raise ValueError(f"A must be {self.work.d} × {self.work.d} and b of {self.work.d} numbers")
        check_aligned(&gram[0, 0], "A")
        check_aligned(&moment[0], "b")

    cdef _fill(self, double* matrix, double* vector, const double[:, ::1] gram, const double[::1] moment):
        """The upper triangle, and 0 in what is padding or not kept."""
        cdef Py_ssize_t i, j, d = self.work.d, ld = self.work.ld
        memset(matrix, 0, d * ld * sizeof(double))
        memset(vector, 0, ld * sizeof(double))
        for i in range(d):
            vector[i] = moment[i]
            for j in range(i, d):
                matrix[i * ld + j] = gram[i, j]
