"""The whole state of an engine as arrays, and back: the content of a checkpoint.

Snapshots that several clients share are written once. Everything that a later pull could depend on
is here, to the bit; free and scratch memory, padding and certificates, which are found again, are
not. Numbers from a file are checked before they become pointers or sizes.
"""

import numpy as np

from libc.string cimport memcpy

from fedsuplin_ext.loop cimport Engine
from fedsuplin_ext.pool cimport Pool, list_capacity, take_sums
from fedsuplin_ext.structs cimport (
    MATRICES,
    N_COUNTS,
    N_SUMS,
    PENDING,
    SNAPSHOT,
    SUMS,
    Layer,
    Pending,
    Snapshot,
)

__all__ = ["restore", "state_of"]

cdef enum:                           # the arrays "totals" and "sums" of a state
    PULLS = 0                        # in totals, before COUNTS
    FIRST_COUNT = 1
    BUDGET = N_SUMS                  # in sums, after SUMS: what the adversary has left, maybe ∞
    DRIFT
    N_IN_SUMS

PHASE = ("plan", "counts", "reward_sums", "left", "idle")
BOUNDED = (
    "totals", "since", "last_sync", "recorded", "client_pulls", "layer_pulls", "plan", "counts",
    "left", "idle", "together",
)
MOST = 1 << 48  # of anything counted: large enough, and no sum of them exceeds 64 bits


# --- out ------------------------------------------------------------------------------------------


def state_of(Engine e):
    """The state as arrays by name, for `restore`."""
    cdef Py_ssize_t s, n_layers = e.numbers.n_layers
    found = _held_memory(e)
    found |= {
        "totals": np.array([e.totals.pulls] + list(e.totals.counts), np.int64),
        "sums": np.array(list(e.totals.sums) + [e.budget, e.work.drift]),
        "since": _longs(e.since, e.n_clients),
        "last_sync": _longs(e.last_sync, n_layers),
        "marked": np.array([e.marked[s] for s in range(n_layers)], np.uint8),
        "recorded": np.array(e.recorded, np.int64),
        "client_regret": e.client_regret.copy(),
        "client_pulls": e.client_pulls.copy(),
        "layer_pulls": e.layer_pulls.copy(),
    }
    for axis, rule in e.rules.items():
        if rule.state is not None:
            found[f"{axis}_state"] = rule.state.copy()
    if e.plan is not None:
        found |= {name: getattr(e, name).copy() for name in PHASE}
        found["together"] = np.array((e.together, e.unfinished), np.int64)
    return found


cdef dict _held_memory(Engine e):
    """Snapshots and pending observations, numbered, and which of them each holder has."""
    cdef Py_ssize_t n_layers = e.numbers.n_layers, n = e.n_clients * n_layers, i
    cdef Layer* at
    numbers, snapshots = {}, []  # by address
    server, held = np.empty(n_layers, np.int64), np.empty(n, np.int64)
    pending = np.full(n, -1, np.int64)
    cdef long long[::1] server_view = server, held_view = held, pending_view = pending
    for i in range(n_layers):
        server_view[i] = number_of(numbers, snapshots, <size_t>e.server[i])
    gathered = []
    for i in range(n):
        at = e.layers + i
        held_view[i] = number_of(numbers, snapshots, <size_t>at.held)
        if at.pending != NULL:
            pending_view[i] = len(gathered)
            gathered.append(<size_t>at.pending)
    holders = {"server": server, "held": held, "pending": pending}
    return holders | _snapshots(e, snapshots) | _gathered(e, gathered)


cdef number_of(dict numbers, list addresses, size_t address):
    """The number of an address; a new one gets the next number."""
    found = numbers.get(address)
    if found is None:
        found = numbers[address] = len(addresses)
        addresses.append(address)
    return found


cdef dict _snapshots(Engine e, list addresses):
    """The snapshots at these addresses: P and θ̂, marks, ln det, and A and b where kept."""
    cdef Py_ssize_t d = e.work.d, i, n = len(addresses)
    cdef Snapshot* s
    numbers, log_det = np.zeros((n, d + 1, d)), np.zeros(n)
    marks, sums = np.zeros((n, 3), np.int64), []
    cdef double[:, :, ::1] to = numbers
    cdef double[:, ::1] to_sums
    for i in range(n):
        s = <Snapshot*><size_t>addresses[i]
        copy_rows(&to[i, 0, 0], d, s.inverse, e.work.ld, d, d)
        copy_rows(&to[i, d, 0], d, s.theta, e.work.ld, 1, d)
        marks[i], log_det[i] = (s.age, s.gram != NULL, s.fresh), s.log_det
        if s.gram != NULL:
            found = np.zeros((d + 1, d))
            sums.append(found)
            to_sums = found
            copy_rows(&to_sums[0, 0], d, s.gram, e.work.ld, d, d)
            copy_rows(&to_sums[d, 0], d, s.moment, e.work.ld, 1, d)
    return {
        "snapshot_numbers": numbers, "snapshot_marks": marks, "snapshot_log_det": log_det,
        "snapshot_sums": np.array(sums),  # never none: the server's have them
    }


cdef dict _gathered(Engine e, list addresses):
    """The pending observations at these addresses: numbers one after another, marks and gains."""
    cdef Py_ssize_t d = e.work.d, i, at, n = len(addresses)
    cdef Pending* p
    cdef Parts parts
    marks, gain = np.zeros((n, 4), np.int64), np.zeros(n)
    for i in range(n):
        p = <Pending*><size_t>addresses[i]
        marks[i], gain[i] = (p.n, p.dense, p.own, p.age), p.gain
    starts = _starts(e, marks)
    numbers = np.zeros(starts[n])
    cdef const long long[::1] start = starts
    cdef double[::1] view = numbers
    for i in range(n):
        p = <Pending*><size_t>addresses[i]
        parts, at = parts_of(e, p.n, p.dense, p.own), start[i]
        copy_rows(&view[at], d, p.delta, e.work.ld, parts.delta, d)
        at += parts.delta * d
        if parts.inverse:
            copy_rows(&view[at], d, p.inverse, e.work.ld, parts.inverse, d)
            at += parts.inverse * d
        memcpy(&view[at], p.delta_moment, parts.moment * sizeof(double))
        if parts.theta:
            memcpy(&view[at + parts.moment], p.theta, parts.theta * sizeof(double))
    return {"pending_numbers": numbers, "pending_marks": marks, "pending_gain": gain}


cdef struct Parts:                   # what is kept of a Pending
    Py_ssize_t delta                 # rows of d numbers: of ΔA, or vectors v
    Py_ssize_t inverse               # rows of d numbers: of (A+ΔA)⁻¹, or vectors u
    Py_ssize_t moment                # numbers: of Δb, or a coefficient for each vector
    Py_ssize_t theta                 # numbers


cdef Parts parts_of(Engine e, Py_ssize_t n, bint dense, bint own):
    """What is kept of a Pending with n vectors."""
    cdef Parts parts
    cdef Py_ssize_t d = e.work.d
    cdef bint matrices = has_matrices(e, dense, own)
    parts.delta = d if dense else n
    parts.inverse = d if own else (n if n > 1 else 0)
    parts.moment = d if matrices else n
    parts.theta = d if e.work.eager else 0
    return parts


cdef bint has_matrices(Engine e, bint dense, bint own):
    """True if a Pending has memory for matrices, also where it still has vectors."""
    return dense or own or e.first_size == MATRICES


cdef _starts(Engine e, marks):
    """Where the numbers of each Pending begin in their array, and where the last ones end."""
    cdef Py_ssize_t i, n = len(marks)
    cdef Parts parts
    starts = np.zeros(n + 1, np.int64)
    cdef long long[::1] to = starts
    cdef const long long[:, ::1] mark = marks
    for i in range(n):
        parts = parts_of(e, mark[i, 0], mark[i, 1], mark[i, 2])
        to[i + 1] = (
            to[i] + (parts.delta + parts.inverse) * e.work.d + parts.moment + parts.theta
        )
    return starts


cdef void copy_rows(
    double* to, Py_ssize_t to_length, const double* rows, Py_ssize_t length, Py_ssize_t n,
    Py_ssize_t d,
) noexcept nogil:
    """Copy d numbers of each of n rows from rows of one length to rows of another."""
    cdef Py_ssize_t i
    for i in range(n):
        memcpy(to + i * to_length, rows + i * length, d * sizeof(double))


cdef _longs(const long long* values, Py_ssize_t n):
    return np.array([values[i] for i in range(n)], np.int64)


# --- back -----------------------------------------------------------------------------------------


def restore(Engine e, state):
    """Put an engine into a state.

    Raises a ValueError that names the first array that does not fit; then nothing has changed.
    """
    cdef Py_ssize_t n_layers = e.numbers.n_layers, s
    _check(e, state)
    _restore_memory(e, state)
    totals, sums = state["totals"], state["sums"]
    e.totals.pulls = totals[PULLS]
    for s in range(N_COUNTS):
        e.totals.counts[s] = totals[FIRST_COUNT + s]
    for s in range(N_SUMS):
        e.totals.sums[s] = sums[s]
    e.budget, e.work.drift = sums[BUDGET], sums[DRIFT]
    for s in range(e.n_clients):
        e.since[s] = state["since"][s]
    for s in range(n_layers):
        e.last_sync[s], e.marked[s] = state["last_sync"][s], state["marked"][s]
    e.recorded = state["recorded"]
    e.client_regret[:], e.client_pulls[:] = state["client_regret"], state["client_pulls"]
    e.layer_pulls[:] = state["layer_pulls"]
    for axis, rule in e.rules.items():
        if rule.state is not None:
            rule.state[:] = state[f"{axis}_state"]
    if e.is_phased:
        _restore_phase(e, state)


cdef _restore_memory(Engine e, state):
    """Replace the pool by one that has exactly what is held, and let it grow."""
    cdef Py_ssize_t n_layers = e.numbers.n_layers, i
    cdef const long long[::1] server = state["server"], held = state["held"]
    cdef const long long[::1] pending = state["pending"]
    cdef Pool pool = e._new_pool()
    # If there is no memory for it, the engine stays as it was.
    cdef size_t[::1] snapshots = _restore_snapshots(e, pool, state)
    cdef size_t[::1] gathered = _restore_gathered(e, pool, state)
    pool.grow_where_short()
    e._set_pool(pool)
    for i in range(n_layers):
        e.server[i] = <Snapshot*>snapshots[server[i]]
        e.server[i].refs += 1
    for i in range(e.n_clients * n_layers):
        e.layers[i].held = <Snapshot*>snapshots[held[i]]
        e.layers[i].held.refs += 1
        e.layers[i].pending = NULL if pending[i] < 0 else <Pending*>gathered[pending[i]]


cdef _restore_snapshots(Engine e, Pool pool, state):
    """Make the snapshots of a state, without holders yet; returns their addresses."""
    cdef const double[:, :, ::1] numbers = state["snapshot_numbers"]
    cdef const double[:, :, ::1] sums = state["snapshot_sums"]
    cdef const long long[:, ::1] marks = state["snapshot_marks"]
    cdef const double[::1] log_det = state["snapshot_log_det"]
    cdef Py_ssize_t d = e.work.d, ld = e.work.ld, n = numbers.shape[0], i, row = 0
    cdef Snapshot* s
    cdef size_t[::1] addresses = np.zeros(n, np.uintp)
    pool.grow(SNAPSHOT, n)
    pool.grow(SUMS, sums.shape[0])
    for i in range(n):
        s = pool.take_snapshot()
        addresses[i], s.refs = <size_t>s, 0
        copy_rows(s.inverse, ld, &numbers[i, 0, 0], d, d, d)
        copy_rows(s.theta, ld, &numbers[i, d, 0], d, 1, d)
        s.age, s.fresh, s.log_det = <int>marks[i, 0], <int>marks[i, 2], log_det[i]
        if marks[i, 1]:
            take_sums(&pool.store, s)
            copy_rows(s.gram, ld, &sums[row, 0, 0], d, d, d)
            copy_rows(s.moment, ld, &sums[row, d, 0], d, 1, d)
            row += 1
    return addresses


cdef _restore_gathered(Engine e, Pool pool, state):
    """Make the pending observations of a state; returns their addresses."""
    cdef const long long[:, ::1] marks = state["pending_marks"]
    cdef const double[::1] numbers = state["pending_numbers"], gain = state["pending_gain"]
    cdef const long long[::1] start = _starts(e, state["pending_marks"])
    cdef Py_ssize_t d = e.work.d, ld = e.work.ld, n = marks.shape[0], i
    cdef const double* at
    cdef Pending* p
    cdef Parts parts
    cdef size_t[::1] addresses = np.zeros(n, np.uintp)
    sizes = [_size_for(e, pool, marks[i, 0], marks[i, 1], marks[i, 2]) for i in range(n)]
    pool.grow(PENDING, n)
    for size in set(sizes):
        pool.grow(size, sizes.count(size))
    for i in range(n):
        p = pool.take_pending(sizes[i])
        addresses[i] = <size_t>p
        p.n, p.dense = <int>marks[i, 0], <char>marks[i, 1]
        p.own, p.age = <char>marks[i, 2], <int>marks[i, 3]
        p.gain = gain[i]
        parts = parts_of(e, p.n, p.dense, p.own)
        if start[i] == start[i + 1]:
            continue
        at = &numbers[start[i]]
        copy_rows(p.delta, ld, at, d, parts.delta, d)
        at += parts.delta * d
        if parts.inverse:
            copy_rows(p.inverse, ld, at, d, parts.inverse, d)
            at += parts.inverse * d
        memcpy(p.delta_moment, at, parts.moment * sizeof(double))
        if parts.theta:
            memcpy(p.theta, at + parts.moment, parts.theta * sizeof(double))
    return addresses


cdef int _size_for(Engine e, Pool pool, Py_ssize_t n, bint dense, bint own):
    """The smallest size of block for a Pending with n vectors."""
    cdef int size = e.first_size
    if has_matrices(e, dense, own):
        return MATRICES
    while list_capacity(&pool.store, size) < n:
        size += 1
    return size


cdef _restore_phase(Engine e, state):
    """Make the arrays of a phase, then put the state's numbers into them."""
    plan = state["plan"] + (state["left"] == 0)[:, None]  # no empty plan, which is refused
    e.begin_phase(plan, state["idle"], bool(state["together"][0]))
    for name in PHASE:
        getattr(e, name)[:] = state[name]
    e.unfinished = state["together"][1]


# --- checks of what comes from a file -------------------------------------------------------------


cdef _check(Engine e, state):
    """Raise unless a state is one that this engine could have."""
    n_snapshots, n_pending = len(state["snapshot_marks"]), len(state["pending_marks"])
    n_sums, n_numbers = len(state["snapshot_sums"]), state["pending_numbers"].size
    _check_arrays(state, _shapes(e, n_snapshots, n_pending, n_sums, n_numbers))
    check_range("server", state["server"], 0, n_snapshots)
    check_range("held", state["held"], 0, n_snapshots)
    check_range("pending", state["pending"], -1, n_pending)
    if len(np.unique(state["pending"][state["pending"] >= 0])) != n_pending:
        raise ValueError("its pending must belong to one client each")
    _check_marks(e, state["snapshot_marks"], state["pending_marks"])
    _check_sums(e, state)
    length = int(_starts(e, state["pending_marks"])[n_pending])
    if n_numbers != length:
        raise ValueError(f"its pending_numbers must be {length} by its marks, not {n_numbers}")
    if e.is_phased:
        left = state["left"]
        if (state["plan"].sum(axis=1) != left).any() or state["together"][1] != (left > 0).sum():
            raise ValueError("its left must be what is left of its plan")
    for name in ("layer_pulls",) if e.live else ("layer_pulls", "client_pulls"):
        if state[name].sum() != state["totals"][PULLS]:
            raise ValueError(f"its {name} must add up to its pulls, {state['totals'][PULLS]}")


cdef _check_sums(Engine e, state):
    """Raise unless A and b are there for every snapshot that needs them."""
    summed = state["snapshot_marks"][:, 1] != 0
    if summed.sum() != len(state["snapshot_sums"]):
        raise ValueError(
            f"its snapshot_sums must be those of {summed.sum()} snapshots, "
            f"not of {len(state['snapshot_sums'])}"
        )
    if not (summed.all() if e.work.keeps_sums else summed[state["server"]].all()):
        raise ValueError("its snapshot_sums must include those of the server's snapshots")
    if not e.work.keeps_sums and len(np.unique(state["server"])) != e.numbers.n_layers:
        raise ValueError("its server must have a snapshot of its own in each layer")


cdef dict _shapes(Engine e, n_snapshots, n_pending, n_sums, n_numbers):
    """The shape and the dtype of each array of a state."""
    cdef Py_ssize_t d = e.work.d
    cdef Py_ssize_t n_layers = e.numbers.n_layers, n = e.n_clients * n_layers
    shapes = {
        "snapshot_numbers": ((n_snapshots, d + 1, d), np.float64),
        "snapshot_sums": ((n_sums, d + 1, d), np.float64),
        "snapshot_marks": ((n_snapshots, 3), np.int64),
        "snapshot_log_det": ((n_snapshots,), np.float64),
        "pending_numbers": ((n_numbers,), np.float64),
        "pending_marks": ((n_pending, 4), np.int64),
        "pending_gain": ((n_pending,), np.float64),
        "server": ((n_layers,), np.int64),
        "held": ((n,), np.int64),
        "pending": ((n,), np.int64),
        "totals": ((FIRST_COUNT + N_COUNTS,), np.int64),
        "sums": ((N_IN_SUMS,), np.float64),
        "since": ((e.n_clients,), np.int64),
        "last_sync": ((n_layers,), np.int64),
        "marked": ((n_layers,), np.uint8),
        "recorded": ((), np.int64),
        "client_regret": ((e.n_clients,), np.float64),
        "client_pulls": ((e.n_clients,), np.int64),
        "layer_pulls": ((n_layers,), np.int64),
    }
    for axis, rule in e.rules.items():
        if rule.state is not None:
            shapes[f"{axis}_state"] = (rule.state.shape, np.float64)
    if e.is_phased:
        table = (e.n_clients, e.screen.n_arms)
        shapes |= dict.fromkeys(("plan", "counts"), (table, np.int64))
        shapes["reward_sums"] = (table, np.float64)
        shapes |= dict.fromkeys(("left", "idle"), ((e.n_clients,), np.int64))
        shapes["together"] = ((2,), np.int64)
    return shapes


cdef _check_arrays(state, dict shapes):
    """Raise unless every array has its shape and dtype, and numbers in the range of their kind."""
    for name, (shape, dtype) in shapes.items():
        found = state.get(name)
        if (
            found is None or found.shape != shape or found.dtype != dtype
            or not found.flags.carray
        ):
            raise ValueError(
                f"its {name} must be {np.dtype(dtype)} of shape {shape}, contiguous and aligned"
            )
        if name in BOUNDED:
            check_range(name, found, 0, MOST)
        if found.dtype == np.float64:
            bounded = found if name != "sums" else np.delete(found, BUDGET)  # which may be infinite
            if not np.isfinite(bounded).all():
                raise ValueError(f"its {name} must be finite")
    if np.isnan(state["sums"][BUDGET]):
        raise ValueError("its budget must be a number")


cdef _check_marks(Engine e, snapshot_marks, pending_marks):
    """Raise unless counters and flags are such as the code that reads them expects."""
    most_age = e.work.refresh + e.work.d
    for column, (name, most) in enumerate(
        (("age", most_age), ("summed", 1), ("fresh", 1))
    ):
        check_range(name, snapshot_marks[:, column], 0, most + 1)
    for column, (name, most) in enumerate(
        (("n", e.work.keep), ("dense", 1), ("own", 1), ("age", most_age))
    ):
        check_range(name, pending_marks[:, column], 0, most + 1)
    n, dense, own = pending_marks[:, 0], pending_marks[:, 1], pending_marks[:, 2]
    if e.work.eager and not own.all():
        raise ValueError(
            "its pending must have inverses of their own, as this policy decides from them"
        )
    if (dense & (n < e.work.keep)).any():
        raise ValueError("its pending must be dense only where the vectors were too many")


def check_range(name, values, least, end):
    """Raise unless every value is in least..end−1."""
    if values.size and (values.min() < least or values.max() >= end):
        raise ValueError(
            f"its {name} must be from {least} to {end - 1}, not {values.min()} to {values.max()}"
        )
