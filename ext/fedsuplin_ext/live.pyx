"""One client, or the server, of a federation over a network: the loop's steps one at a time."""

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
    """An engine for one client. A server uses only its server's part."""

    cdef Snapshot** staged           # by layer: the server's next snapshot while uploads are added,
                                     # or NULL

    def __init__(self, algorithm, *, kernels=None, key=0):
        Engine.__init__(self, algorithm, kernels=kernels, key=key, n_clients=1)
        self.live = 1
        self.staged = <Snapshot**>self._doubles(self.numbers.n_layers)

    # --- a client ---------------------------------------------------------------------------------

    def select(self, const double[:, ::1] contexts, const unsigned char[::1] mask=None):
        """Choose an arm for contexts of d × lanes; returns a word of STATUS, the arm, its layer."""
        cdef int layer = 0, arm, d = self.work.d, lanes = self.screen.lanes
        if (
            contexts.shape[0] != d or contexts.shape[1] != lanes
            or (mask is not None and mask.shape[0] < lanes)
        ):
            raise ValueError(
                f"contexts must have the shape ({d}, {lanes}), and mask at least {lanes} entries"
            )
        check_aligned(&contexts[0, 0], "contexts")
        states = self._rule_states()
        with nogil:
            arm = self.decide(0, &contexts[0, 0], NULL if mask is None else &mask[0], &layer)
        if arm < 0:
            self._put_states_back(states)
            return STATUS[BAD_CHOICE if arm == BAD_ARM else NOT_FINITE], -1, -1
        return STATUS[DONE], arm, layer

    def learn_from(self, const double[::1] x, int layer, double reward, double sigma):
        """Learn the reward of the arm x that this layer chose, and ask the trigger.

        Returns a word of STATUS and the weight. Unless the word is "done", nothing has changed.
        """
        cdef int status
        self._check(layer, x.shape[0])
        if not (isfinite(reward) and isfinite(sigma)):
            raise ValueError(f"reward and noise level must be finite, not {reward} and {sigma}")
        self._set_arm(x)
        self._make_room()
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
        """A copy of what was gathered in a layer, to be put back if learning fails, or NULL."""
        cdef Pending* p = self.layers[layer].pending
        cdef Pending* aside
        if p == NULL:
            return NULL
        cdef size_t vector = self.work.ld * sizeof(double), matrix = self.work.d * vector
        aside = self.pool.take_pending()
        aside.n, aside.dense, aside.own, aside.age, aside.gain = p.n, p.dense, p.own, p.age, p.gain
        memcpy(aside.delta, p.delta, matrix)
        memcpy(aside.inverse, p.inverse, matrix)
        memcpy(aside.delta_moment, p.delta_moment, vector)
        memcpy(aside.theta, p.theta, vector)
        return aside

    cdef _put_back(self, int layer, Pending* before):
        """Replace what was gathered in a layer by an earlier copy."""
        cdef Layer* at = self.layers + layer
        if at.pending != NULL:
            self.pool.give_back(at.pending)
        at.pending = before

    def _rule_states(self):
        """Copies of the state of the rules, by axis."""
        found = {axis: rule.state for axis, rule in self.rules.items()}
        return {axis: state.copy() for axis, state in found.items() if state is not None}

    def _put_states_back(self, states):
        """Replace the state of the rules by earlier copies."""
        for axis, state in states.items():
            self.rules[axis].state[:] = state

    def learn_again(self, const double[::1] x, int layer, double weight, double reward):
        """Learn an observation with a known weight again, on top of a new download.

        The trigger is not asked.
        """
        cdef Layer* at
        cdef int status
        self._check(layer, x.shape[0])
        if not (weight >= 0 and isfinite(weight) and isfinite(reward)):
            raise ValueError(
                "the weight must be at least 0 and finite, the reward finite, "
                f"not {weight} and {reward}"
            )
        self._set_arm(x)
        self._make_room()
        at = self.layers + layer
        self.work.k.matvec(self._inverse(at), self.work.ld, self.x, self.work.d, self.Px)
        if at.pending == NULL:
            at.pending = self.pool.take_pending()
        status = observe(&self.work, at.held, at.pending, self.x, self.Px, weight, reward)
        return STATUS[status_of(status)]

    cdef const double* _inverse(self, const Layer* at):
        """(A+ΔA)⁻¹ of an eager client that has it, else P of the download."""
        if self.work.eager and at.pending != NULL and at.pending.own:
            return at.pending.inverse
        return at.held.inverse

    cdef _set_arm(self, const double[::1] x):
        """Copy the arm played into padded memory."""
        cdef Py_ssize_t i
        check_aligned(&x[0], "an arm")
        for i in range(self.work.d):
            self.x[i] = x[i]

    cdef _make_room(self):
        """Make room for one step, where none is left."""
        if self.pool.snapshots_left <= 2 * self.numbers.n_layers or self.pool.pending_left < 2:
            self._grow()

    def _check(self, int layer, Py_ssize_t d):
        """Raise unless there is such a layer, and arms have d numbers."""
        if not 0 <= layer < self.numbers.n_layers:
            raise ValueError(f"there is no layer {layer} of {self.numbers.n_layers}")
        if d != self.work.d:
            raise ValueError(f"an arm has {self.work.d} numbers, not {d}")

    @property
    def asking(self):
        """The layers whose trigger has fired since their last download."""
        return [s for s in range(self.numbers.n_layers) if self.marked[s]]

    def gathered(self, int layer):
        """ΔA and Δb of a layer since its download, or None."""
        self._check(layer, self.work.d)
        cdef Pending* p = self.layers[layer].pending
        if p == NULL:
            return None
        memset(self.work.matrix, 0, self.work.d * self.work.ld * sizeof(double))
        add_delta(&self.work, self.work.matrix, p)
        return self._matrix(self.work.matrix, self.work.d), self._matrix(p.delta_moment, 1)[0]

    def settles(self, const double[:, ::1] gram, const double[::1] moment):
        """True if A is positive definite and its ln det and θ̂ are finite. Nothing changes."""
        self._check_gram(gram, moment)
        self._make_room()
        cdef Snapshot* s = self.pool.take_snapshot()
        self._fill(s.gram, s.moment, gram, moment)
        cdef bint well = self._settle(s)
        self.pool.release(s)
        return well

    cdef bint _settle(self, Snapshot* s):
        """Compute P, θ̂ and ln det of a snapshot; True if all are finite."""
        cdef Py_ssize_t i
        if settle(&self.work, s) != 0 or not isfinite(s.log_det):
            return False
        for i in range(self.work.d):
            if not isfinite(s.theta[i]):
                return False
        return True

    def receive(self, int layer, const double[:, ::1] gram, const double[::1] moment, bint keep):
        """Take A and b of a layer from the server, in place of the last download.

        What was gathered is dropped, since the server has it now, unless `keep`. Returns whether A
        is positive definite, also with what was kept; if A alone is not, nothing has changed.
        """
        self._check(layer, self.work.d)
        self._check_gram(gram, moment)
        self._make_room()
        cdef Layer* at = self.layers + layer
        cdef Snapshot* s = self.pool.take_snapshot()
        self._fill(s.gram, s.moment, gram, moment)
        if not self._settle(s):
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

    # --- a server ---------------------------------------------------------------------------------

    def add(self, uploads):
        """A ← A + ΔA, b ← b + Δb for every layer of the uploads, each factorised once.

        An upload is its layers, the upper triangles of ΔA (a packed row for each layer) and Δb.
        Returns −1, or a layer that would no longer be positive definite; then nothing has changed.
        """
        cdef int layer
        self._make_room()
        memset(self.staged, 0, self.numbers.n_layers * sizeof(Snapshot*))
        try:
            for layers, grams, moments in uploads:
                self._stage(layers, grams, moments)
        except BaseException:
            self._drop_staged()
            raise
        for layer in range(self.numbers.n_layers):
            if self.staged[layer] != NULL and not self._settle(self.staged[layer]):
                self._drop_staged()
                return layer
        self._publish_staged()
        return -1

    cdef int _stage(
        self, const long long[::1] layers, const double[:, ::1] grams, const double[:, ::1] moments
    ) except -1:
        """Add one upload to copies of its layers.

        After the checks no Python runs that could change the upload.
        """
        cdef Py_ssize_t row, i, j, at, d = self.work.d, ld = self.work.ld
        cdef Snapshot* into
        self._check_upload(layers, grams, moments)
        for row in range(layers.shape[0]):
            into = self._staged_copy(<int>layers[row])
            at = 0
            for i in range(d):
                into.moment[i] += moments[row, i]
                for j in range(i, d):
                    into.gram[i * ld + j] += grams[row, at]
                    at += 1
        return 0

    cdef int _check_upload(
        self, const long long[::1] layers, const double[:, ::1] grams, const double[:, ::1] moments
    ) except -1:
        """Raise unless the arrays of an upload fit the engine and each other."""
        cdef Py_ssize_t row, n = layers.shape[0], d = self.work.d, packed = d * (d + 1) // 2
        if (
            grams.shape[0] != n or grams.shape[1] != packed
            or moments.shape[0] != n or moments.shape[1] != d
        ):
            raise ValueError(
                f"{n} layers need as many rows of {packed} numbers of ΔA, and of {d} numbers of Δb"
            )
        if n > 0:
            check_aligned(&layers[0], "layers")
            check_aligned(&grams[0, 0], "ΔA")
            check_aligned(&moments[0, 0], "Δb")
        for row in range(n):
            if not 0 <= layers[row] < self.numbers.n_layers:
                raise ValueError(f"there is no layer {layers[row]} of {self.numbers.n_layers}")
        return 0

    cdef Snapshot* _staged_copy(self, int layer):
        """The server's next snapshot of a layer, copied from its last one when first asked for."""
        cdef Snapshot* into = self.staged[layer]
        cdef const Snapshot* source = self.server[layer]
        if into == NULL:
            into = self.staged[layer] = self.pool.take_snapshot()
            memcpy(into.gram, source.gram, self.work.d * self.work.ld * sizeof(double))
            memcpy(into.moment, source.moment, self.work.ld * sizeof(double))
            outgrow(&self.work, into, source)
        return into

    cdef _drop_staged(self):
        """Release the staged snapshots."""
        cdef int layer
        for layer in range(self.numbers.n_layers):
            if self.staged[layer] != NULL:
                self.pool.release(self.staged[layer])

    cdef _publish_staged(self):
        """Replace the server's snapshots by the staged ones."""
        cdef int layer
        for layer in range(self.numbers.n_layers):
            if self.staged[layer] != NULL:
                self.pool.release(self.server[layer])
                self.pool.release(self.layers[layer].held)
                self.server[layer] = self.layers[layer].held = self.staged[layer]
                self.server[layer].refs += 1

    def sums(self):
        """The upper triangles of A, packed, and b: one row for each layer."""
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

    def _check_gram(self, const double[:, ::1] gram, const double[::1] moment):
        """Raise unless A and b fit; called before memory is taken from the pool."""
        d = self.work.d
        if gram.shape[0] != d or gram.shape[1] != d or moment.shape[0] != d:
            raise ValueError(f"A must be {d} × {d} and b have {d} numbers")
        check_aligned(&gram[0, 0], "A")
        check_aligned(&moment[0], "b")

    cdef _fill(
        self, double* matrix, double* vector, const double[:, ::1] gram, const double[::1] moment
    ):
        """Copy A (upper triangle) and b into padded memory, with 0 everywhere else."""
        cdef Py_ssize_t i, j, d = self.work.d, ld = self.work.ld
        memset(matrix, 0, d * ld * sizeof(double))
        memset(vector, 0, ld * sizeof(double))
        for i in range(d):
            vector[i] = moment[i]
            for j in range(i, d):
                matrix[i * ld + j] = gram[i, j]
