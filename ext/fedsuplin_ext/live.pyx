"""One client, or the server, of a federation over a network: the loop's steps one at a time."""

import numpy as np

from fedsuplin_ext.loop import STATUS

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.math cimport isfinite
from libc.string cimport memcpy, memset, strcmp

from fedsuplin_ext.gram cimport (
    add_delta,
    copy_sums,
    delta_moment_of,
    observe,
    outgrow,
    rebase,
    settle,
)
from fedsuplin_ext.loop cimport Engine, status_of
from fedsuplin_ext.norms cimport check_aligned
from fedsuplin_ext.pool cimport take_sums
from fedsuplin_ext.structs cimport (
    BAD_ARM,
    BAD_CHOICE,
    DONE,
    MATRICES,
    NOT_FINITE,
    NOT_POSITIVE_DEFINITE,
    REWARD,
    Layer,
    Pending,
    Snapshot,
)

__all__ = ["Live"]

cdef double PLAIN_LENGTH = 1 + 1e-6  # ‖x‖² of contexts that need no closer look


cdef class Live(Engine):
    """An engine for one client. A server uses only its server's part."""

    cdef Layer* staged               # by layer: what replaces it once all of a message is accepted;
                                     # `held` is NULL where nothing does
    cdef double* contexts            # d × lanes: those of the last decision
    cdef double* lengths             # lanes: ‖x‖² of its arms
    cdef unsigned char* available    # lanes: its mask

    def __init__(self, algorithm, *, kernels=None, key=0):
        self.live = 1
        Engine.__init__(self, algorithm, kernels=kernels, key=key, n_clients=1)
        self.staged = <Layer*>self._bytes(self.numbers.n_layers * sizeof(Layer))
        self.contexts = self._doubles(self.work.d * self.screen.lanes)
        self.lengths = self._doubles(self.screen.lanes)
        self.available = self._bytes(self.screen.lanes)

    # --- a client ---------------------------------------------------------------------------------

    def select_plain(self, contexts, mask=None):
        """Choose an arm if contexts and mask are plain, else return None: check and convert them.

        Plain contexts are a K × d array of doubles in C order, finite and at most 1 long; a plain
        mask is an array of K booleans, not all False. Returns what `select` does.
        """
        cdef Py_buffer rows, flags
        cdef bint plain
        if type(contexts) is not np.ndarray or (mask is not None and type(mask) is not np.ndarray):
            return None
        if not self._view(contexts, &rows, 2, b"d"):
            return None
        try:
            if mask is None:
                plain = self._pack(<const double*>rows.buf, NULL)
            elif not self._view(mask, &flags, 1, b"?"):
                return None
            else:
                plain = self._pack(<const double*>rows.buf, <const unsigned char*>flags.buf)
                PyBuffer_Release(&flags)
        finally:
            PyBuffer_Release(&rows)
        return self._select(mask is not None) if plain and self._are_short() else None

    def select(self, const double[:, ::1] contexts, const unsigned char[::1] mask=None):
        """Choose one of K contexts of d numbers; returns a word of STATUS, the arm, its layer.

        `mask` has a byte for each arm, not 0 for those that are available.
        """
        cdef int d = self.work.d, n = self.screen.n_arms
        if (
            contexts.shape[0] != n or contexts.shape[1] != d
            or (mask is not None and mask.shape[0] != n)
        ):
            raise ValueError(
                f"contexts must have the shape ({n}, {d}), and mask {n} entries"
            )
        check_aligned(&contexts[0, 0], "contexts")
        if not self._pack(&contexts[0, 0], NULL if mask is None else &mask[0]):
            raise ValueError("mask leaves no arm")
        return self._select(mask is not None)

    cdef bint _view(self, array, Py_buffer* view, int ndim, const char* form):
        """Take a view of an array of K (by d) entries; False, and no view, if it is another."""
        try:
            PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        except (BufferError, ValueError):
            return False
        if (
            view.ndim == ndim and strcmp(view.format, form) == 0
            and view.shape[0] == self.screen.n_arms
            and (ndim == 1 or view.shape[1] == self.work.d)
            and <size_t>view.buf % <size_t>view.itemsize == 0
        ):
            return True
        PyBuffer_Release(view)
        return False

    cdef bint _pack(self, const double* rows, const unsigned char* mask) noexcept:
        """Copy K × d contexts to d × lanes, with 0 where there is no arm; False without any arm."""
        cdef Py_ssize_t a, i, d = self.work.d, K = self.screen.n_arms, lanes = self.screen.lanes
        cdef bint some = mask == NULL
        if mask != NULL:
            for a in range(K):
                self.available[a] = mask[a] != 0
                some = some or mask[a] != 0
        for i in range(d):
            for a in range(K):
                self.contexts[i * lanes + a] = rows[a * d + i]
        if mask != NULL:
            for a in range(K):
                if not self.available[a]:
                    for i in range(d):
                        self.contexts[i * lanes + a] = 0.0
        return some

    cdef bint _are_short(self) noexcept:
        """True if all contexts are finite and clearly within the length that is allowed."""
        cdef Py_ssize_t a, i, lanes = self.screen.lanes
        cdef bint short = True
        memset(self.lengths, 0, lanes * sizeof(double))
        for i in range(self.work.d):
            for a in range(lanes):
                self.lengths[a] += self.contexts[i * lanes + a] * self.contexts[i * lanes + a]
        for a in range(lanes):
            short = short and self.lengths[a] <= PLAIN_LENGTH  # False for NaN
        return short

    cdef _select(self, bint masked):
        """Choose among the packed contexts."""
        cdef int layer = 0, arm
        states = self._rule_states()
        with nogil:
            arm = self.decide(0, self.contexts, self.available if masked else NULL, &layer)
        if arm < 0:
            self._put_states_back(states)
            return STATUS[BAD_CHOICE if arm == BAD_ARM else NOT_FINITE], -1, -1
        return STATUS[DONE], arm, layer

    def context(self, int arm):
        """A copy of an arm's context in the last decision, whatever the caller's array is now."""
        cdef Py_ssize_t i, d = self.work.d
        if not 0 <= arm < self.screen.n_arms:
            raise ValueError(f"there is no arm {arm} of {self.screen.n_arms}")
        x = np.empty(d)
        cdef double[::1] into = x
        for i in range(d):
            into[i] = self.contexts[i * self.screen.lanes + arm]
        return x

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
        return NULL if p == NULL else self._copy(p)

    cdef Pending* _copy(self, const Pending* p):
        """A copy of what was gathered: of its block only the part in use."""
        cdef size_t vector = self.work.ld * sizeof(double)
        cdef Pending* copy = self.pool.take_pending(p.size)
        copy.n, copy.dense, copy.own, copy.age, copy.gain = p.n, p.dense, p.own, p.age, p.gain
        memcpy(copy.delta, p.delta, (self.work.d if p.dense else p.n) * vector)
        if p.own or p.n > 1:
            memcpy(copy.inverse, p.inverse, (self.work.d if p.own else p.n) * vector)
        if p.size == MATRICES:
            memcpy(copy.delta_moment, p.delta_moment, vector)
            memcpy(copy.theta, p.theta, vector)
        else:
            memcpy(copy.delta_moment, p.delta_moment, p.n * sizeof(double))
        return copy

    cdef _put_back(self, int layer, Pending* before):
        """Replace what was gathered in a layer by an earlier copy."""
        cdef Layer* at = self.layers + layer
        if at.pending != NULL:
            self.pool.give_back(at.pending)
        at.pending = before

    def _rule_states(self):
        """Copies of the state of the rules, by axis."""
        if not (
            self.trigger.state_size or self.weighting.state_size
            or (self.policy is not None and self.policy.state_size)
        ):
            return {}
        found = {axis: rule.state for axis, rule in self.rules.items()}
        return {axis: state.copy() for axis, state in found.items() if state is not None}

    def _put_states_back(self, states):
        """Replace the state of the rules by earlier copies."""
        for axis, state in states.items():
            self.rules[axis].state[:] = state

    cdef _set_arm(self, const double[::1] x):
        """Copy the arm played into padded memory."""
        cdef Py_ssize_t i
        check_aligned(&x[0], "an arm")
        for i in range(self.work.d):
            self.x[i] = x[i]

    cdef _make_room(self):
        """Make room for one step, where none is left."""
        if self.pool.store.n_short > 0:
            self.pool.grow_where_short()

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
        delta_moment = self._matrix(delta_moment_of(&self.work, p), 1)[0]
        return self._matrix(self.work.matrix, self.work.d), delta_moment

    def receive(
        self, const long long[::1] layers, const double[:, ::1] grams,
        const double[:, ::1] moments, sent=(), since=(),
    ):
        """Take A (upper triangles, a packed row for each layer) and b from the server.

        They replace the last download of these layers. What was gathered in a layer of `sent` is in
        them: of that only `since` is learnt again, a list of layer, arm, weight and reward. In
        other layers it stays, on top of the new A and b.

        Returns a word of STATUS, and the first layer whose A or b can't be used by itself, else -1.
        Unless the word is "done", nothing has changed.
        """
        cdef Py_ssize_t row
        cdef int layer = -1, status = DONE
        cdef double drift = self.work.drift
        self._make_room()
        self._check_message(layers, grams, moments)
        self._begin_staging()
        try:
            for row in range(layers.shape[0]):
                layer = self._stage_row(<int>layers[row], &grams[row, 0], &moments[row, 0])
                if layer >= 0:
                    break
            if layer < 0:
                status = self._stage_gathered(sent, since)
        except BaseException:
            self._drop_staged()
            self.work.drift = drift
            raise
        if layer >= 0 or status != DONE:
            self._drop_staged()
            self.work.drift = drift
            return STATUS[NOT_POSITIVE_DEFINITE if layer >= 0 else status], layer
        self._publish_download()
        return STATUS[DONE], -1

    cdef int _stage_row(self, int layer, const double* gram, const double* moment) except -2:
        """Stage A and b of one layer of a download; returns -1, or the layer if it can't be used.
        """
        cdef Py_ssize_t i, d = self.work.d, ld = self.work.ld
        cdef Snapshot* s
        if self.staged[layer].held != NULL:
            raise ValueError(f"layer {layer} occurs twice")
        s = self.staged[layer].held = self.pool.take_snapshot()
        take_sums(self.work.store, s)
        memset(s.moment, 0, ld * sizeof(double))
        memcpy(s.moment, moment, d * sizeof(double))
        memset(s.gram, 0, d * ld * sizeof(double))
        for i in range(d):
            memcpy(s.gram + i * ld + i, gram, (d - i) * sizeof(double))
            gram += d - i
        return -1 if self._settle(s) else layer

    cdef int _stage_gathered(self, sent, since) except -1:
        """Stage what was gathered on top of the staged downloads; returns a Status."""
        cdef int layer, info, status = DONE
        cdef Layer* at
        cdef set of_sent = set(sent)
        for layer in range(self.numbers.n_layers):
            at = self.staged + layer
            if at.held != NULL and self.layers[layer].pending != NULL and layer not in of_sent:
                at.pending = self._copy(self.layers[layer].pending)
                info = rebase(&self.work, at.held, at.pending)
                if info != 0:
                    return status_of(info)
        for layer, x, weight, reward in since:
            self._check(layer, len(x))
            if self.staged[layer].held != NULL and layer in of_sent:
                status = self._learn_again(self.staged + layer, x, weight, reward)
                if status != DONE:
                    return status
        return status

    cdef int _learn_again(
        self, Layer* at, const double[::1] x, double weight, double reward
    ) except -1:
        """Learn an observation with a known weight on top of a download; returns a Status.

        The trigger is not asked.
        """
        cdef const double* P = at.held.inverse
        if not (weight >= 0 and isfinite(weight) and isfinite(reward)):
            raise ValueError(
                "the weight must be at least 0 and finite, the reward finite, "
                f"not {weight} and {reward}"
            )
        self._set_arm(x)
        if at.pending == NULL:
            at.pending = self.pool.take_pending(self.first_size)
        elif self.work.eager and at.pending.own:
            P = at.pending.inverse
        self.work.k.matvec(P, self.work.ld, self.x, self.work.d, self.Px)
        return status_of(
            observe(&self.work, at.held, at.pending, self.x, self.Px, weight, reward)
        )

    cdef _publish_download(self):
        """Replace layers by the staged ones."""
        cdef int layer
        cdef Layer* at
        for layer in range(self.numbers.n_layers):
            if self.staged[layer].held == NULL:
                continue
            at = self.layers + layer
            if at.pending != NULL:
                self.pool.give_back(at.pending)
            at.pending, self.staged[layer].pending = self.staged[layer].pending, NULL
            self.marked[layer] = 0
            self.last_sync[layer] = self.totals.pulls
            if not self.sync_all:
                self.since[0] = 0
        self._publish_staged()

    cdef bint _settle(self, Snapshot* s):
        """Compute P, θ̂ and ln det of a snapshot; True if all are finite."""
        cdef Py_ssize_t i
        if settle(&self.work, s) != 0 or not isfinite(s.log_det):
            return False
        for i in range(self.work.d):
            if not isfinite(s.theta[i]):
                return False
        return True

    # --- a server ---------------------------------------------------------------------------------

    def add(self, uploads):
        """A ← A + ΔA, b ← b + Δb for every layer of the uploads, each factorised once.

        An upload is its layers, the upper triangles of ΔA (a packed row for each layer) and Δb.
        Returns −1, or a layer that would no longer be positive definite; then nothing has changed.
        """
        cdef int layer
        self._make_room()
        self._begin_staging()
        try:
            for layers, grams, moments in uploads:
                self._stage(layers, grams, moments)
        except BaseException:
            self._drop_staged()
            raise
        for layer in range(self.numbers.n_layers):
            if self.staged[layer].held != NULL and not self._settle(self.staged[layer].held):
                self._drop_staged()
                return layer
        self._publish_staged()
        return -1

    def replace(self, int layer, const double[:, ::1] gram, const double[::1] moment):
        """Replace A (upper triangle) and b of a layer; False if A is not positive definite.

        Then nothing has changed.
        """
        cdef Py_ssize_t i, j, d = self.work.d
        cdef Snapshot* s
        self._check(layer, d)
        self._check_gram(gram, moment)
        upper = np.empty(d * (d + 1) // 2)
        cdef double[::1] packed = upper
        cdef Py_ssize_t at = 0
        for i in range(d):
            for j in range(i, d):
                packed[at] = gram[i, j]
                at += 1
        self._make_room()
        self._begin_staging()
        if self._stage_row(layer, &packed[0], &moment[0]) >= 0:
            self._drop_staged()
            return False
        self._publish_staged()
        return True

    cdef int _stage(
        self, const long long[::1] layers, const double[:, ::1] grams, const double[:, ::1] moments
    ) except -1:
        """Add one upload to copies of its layers.

        After the checks no Python runs that could change the upload.
        """
        cdef Py_ssize_t row, i, j, at, d = self.work.d, ld = self.work.ld
        cdef Snapshot* into
        self._check_message(layers, grams, moments)
        for row in range(layers.shape[0]):
            into = self._staged_copy(<int>layers[row])
            at = 0
            for i in range(d):
                into.moment[i] += moments[row, i]
                for j in range(i, d):
                    into.gram[i * ld + j] += grams[row, at]
                    at += 1
        return 0

    cdef int _check_message(
        self, const long long[::1] layers, const double[:, ::1] grams, const double[:, ::1] moments
    ) except -1:
        """Raise unless the arrays of a message fit the engine and each other."""
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
        cdef Snapshot* into = self.staged[layer].held
        cdef const Snapshot* source = self.server[layer]
        if into == NULL:
            into = self.staged[layer].held = self.pool.take_snapshot()
            copy_sums(&self.work, into, source)
            outgrow(&self.work, into, source)
        return into

    cdef _begin_staging(self):
        """Begin with no layer staged."""
        memset(self.staged, 0, self.numbers.n_layers * sizeof(Layer))

    cdef _drop_staged(self):
        """Give the memory of the staged layers back."""
        cdef int layer
        for layer in range(self.numbers.n_layers):
            if self.staged[layer].held != NULL:
                self.pool.release(self.staged[layer].held)
            if self.staged[layer].pending != NULL:
                self.pool.give_back(self.staged[layer].pending)

    cdef _publish_staged(self):
        """Replace the snapshots of the server, and of its one client, by the staged ones."""
        cdef int layer
        cdef Snapshot* s
        for layer in range(self.numbers.n_layers):
            s = self.staged[layer].held
            if s != NULL:
                self.pool.release(self.server[layer])
                self.pool.release(self.layers[layer].held)
                self.server[layer] = self.layers[layer].held = s
                s.refs += 1

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
