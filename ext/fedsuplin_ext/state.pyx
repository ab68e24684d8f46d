"""The whole state of an engine as arrays, and back: the content of a checkpoint.

Snapshots that several clients share are written once. Everything that a later pull could depend on
is here, to the bit; free and scratch memory is not. Numbers from a file are checked before they
become pointers or sizes.
"""

import numpy as np

from libc.string cimport memcpy

from fedsuplin_ext.loop cimport Engine
from fedsuplin_ext.pool cimport Pool
from fedsuplin_ext.structs cimport MOST_SPIKES, N_COUNTS, N_SUMS, QUIET, Layer, Pending, Snapshot

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
    calm = [(e.screen.calm[s], e.screen.patience[s]) for s in range(n_layers)]
    found |= {
        "totals": np.array([e.totals.pulls] + list(e.totals.counts), np.int64),
        "sums": np.array(list(e.totals.sums) + [e.budget, e.work.drift]),
        "since": _longs(e.since, e.n_clients),
        "last_sync": _longs(e.last_sync, n_layers),
        "marked": np.array([e.marked[s] for s in range(n_layers)], np.uint8),
        "calm": np.array(calm, np.int64),
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
    """The snapshots at these addresses: numbers, marks and ln det."""
    cdef Py_ssize_t matrix = e.work.d * e.work.ld, ld = e.work.ld, i
    cdef Snapshot* s
    numbers = np.zeros((len(addresses), 2 * matrix + (2 + MOST_SPIKES) * ld))
    marks, log_det = np.zeros((len(addresses), 3), np.int64), np.zeros(len(addresses))
    cdef double[:, ::1] to = numbers
    for i in range(len(addresses)):
        s = <Snapshot*><size_t>addresses[i]
        memcpy(&to[i, 0], s.gram, matrix * sizeof(double))
        memcpy(&to[i, matrix], s.inverse, matrix * sizeof(double))
        memcpy(&to[i, 2 * matrix], s.moment, ld * sizeof(double))
        memcpy(&to[i, 2 * matrix + ld], s.theta, ld * sizeof(double))
        n_spikes = s.n_spikes if s.quiet == QUIET else 0
        marks[i], log_det[i] = (s.age, s.quiet, n_spikes), s.log_det
        if s.quiet == QUIET:
            memcpy(&to[i, 2 * matrix + 2 * ld], s.spikes, s.n_spikes * ld * sizeof(double))
    return {"snapshot_numbers": numbers, "snapshot_marks": marks, "snapshot_log_det": log_det}


cdef dict _gathered(Engine e, list addresses):
    """The pending observations at these addresses: numbers, marks and gains."""
    cdef Py_ssize_t matrix = e.work.d * e.work.ld, ld = e.work.ld, i
    cdef Pending* p
    numbers = np.zeros((len(addresses), 2 * matrix + 2 * ld))
    marks, gain = np.zeros((len(addresses), 4), np.int64), np.zeros(len(addresses))
    cdef double[:, ::1] to = numbers
    for i in range(len(addresses)):
        p = <Pending*><size_t>addresses[i]
        memcpy(&to[i, 0], p.delta, (e.work.d if p.dense else p.n) * ld * sizeof(double))
        memcpy(&to[i, matrix], p.inverse, (e.work.d if p.own else p.n) * ld * sizeof(double))
        memcpy(&to[i, 2 * matrix], p.delta_moment, ld * sizeof(double))
        if e.work.eager:
            memcpy(&to[i, 2 * matrix + ld], p.theta, ld * sizeof(double))
        marks[i], gain[i] = (p.n, p.dense, p.own, p.age), p.gain
    return {"pending_numbers": numbers, "pending_marks": marks, "pending_gain": gain}


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
        e.screen.calm[s], e.screen.patience[s] = state["calm"][s]
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
    cdef Py_ssize_t matrix = e.work.d * e.work.ld, ld = e.work.ld, n_layers = e.numbers.n_layers, i
    cdef const double[:, ::1] snapshot_numbers = state["snapshot_numbers"]
    cdef const double[:, ::1] pending_numbers = state["pending_numbers"]
    cdef const long long[:, ::1] snapshot_marks = state["snapshot_marks"]
    cdef const long long[:, ::1] pending_marks = state["pending_marks"]
    cdef const double[::1] log_det = state["snapshot_log_det"], gain = state["pending_gain"]
    cdef const long long[::1] server = state["server"], held = state["held"]
    cdef const long long[::1] pending = state["pending"]
    cdef Py_ssize_t n_snapshots = snapshot_numbers.shape[0], n_pending = pending_numbers.shape[0]
    cdef Snapshot* s
    cdef Pending* p
    cdef size_t[::1] snapshots = np.zeros(max(n_snapshots, 1), np.uintp)
    cdef size_t[::1] gathered = np.zeros(max(n_pending, 1), np.uintp)
    cdef Pool pool = Pool(e.work.d, ld)
    pool.grow(n_snapshots, n_pending)  # if there is no memory for it, the engine stays as it was
    for i in range(n_snapshots):
        s = pool.take_snapshot()
        snapshots[i], s.refs = <size_t>s, 0
        memcpy(s.gram, &snapshot_numbers[i, 0], matrix * sizeof(double))
        memcpy(s.inverse, &snapshot_numbers[i, matrix], matrix * sizeof(double))
        memcpy(s.moment, &snapshot_numbers[i, 2 * matrix], ld * sizeof(double))
        memcpy(s.theta, &snapshot_numbers[i, 2 * matrix + ld], ld * sizeof(double))
        memcpy(
            s.spikes, &snapshot_numbers[i, 2 * matrix + 2 * ld], MOST_SPIKES * ld * sizeof(double)
        )
        s.age, s.quiet = <int>snapshot_marks[i, 0], <int>snapshot_marks[i, 1]
        s.n_spikes = <int>snapshot_marks[i, 2]
        s.log_det = log_det[i]
    for i in range(n_pending):
        p = pool.take_pending()
        gathered[i] = <size_t>p
        memcpy(p.delta, &pending_numbers[i, 0], matrix * sizeof(double))
        memcpy(p.inverse, &pending_numbers[i, matrix], matrix * sizeof(double))
        memcpy(p.delta_moment, &pending_numbers[i, 2 * matrix], ld * sizeof(double))
        memcpy(p.theta, &pending_numbers[i, 2 * matrix + ld], ld * sizeof(double))
        p.n, p.dense = <int>pending_marks[i, 0], <int>pending_marks[i, 1]
        p.own, p.age = <int>pending_marks[i, 2], <int>pending_marks[i, 3]
        p.gain = gain[i]
    e.pool = pool
    for i in range(n_layers):
        e.server[i] = <Snapshot*>snapshots[server[i]]
        e.server[i].refs += 1
    for i in range(e.n_clients * n_layers):
        e.layers[i].held = <Snapshot*>snapshots[held[i]]
        e.layers[i].held.refs += 1
        e.layers[i].pending = NULL if pending[i] < 0 else <Pending*>gathered[pending[i]]
    e._grow()


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
    n_snapshots, n_pending = len(state["snapshot_numbers"]), len(state["pending_numbers"])
    _check_arrays(state, _shapes(e, n_snapshots, n_pending))
    check_range("server", state["server"], 0, n_snapshots)
    check_range("held", state["held"], 0, n_snapshots)
    check_range("pending", state["pending"], -1, n_pending)
    if len(np.unique(state["pending"][state["pending"] >= 0])) != n_pending:
        raise ValueError("its pending must belong to one client each")
    _check_marks(e, state["snapshot_marks"], state["pending_marks"])
    check_range("calm", state["calm"], 0, 1 << 30)
    if e.is_phased:
        left = state["left"]
        if (state["plan"].sum(axis=1) != left).any() or state["together"][1] != (left > 0).sum():
            raise ValueError("its left must be what is left of its plan")
    for name in ("layer_pulls",) if e.live else ("layer_pulls", "client_pulls"):
        if state[name].sum() != state["totals"][PULLS]:
            raise ValueError(f"its {name} must add up to its pulls, {state['totals'][PULLS]}")


cdef dict _shapes(Engine e, n_snapshots, n_pending):
    """The shape and the dtype of each array of a state."""
    cdef Py_ssize_t matrix = e.work.d * e.work.ld, ld = e.work.ld
    cdef Py_ssize_t n_layers = e.numbers.n_layers, n = e.n_clients * n_layers
    shapes = {
        "snapshot_numbers": ((n_snapshots, 2 * matrix + (2 + MOST_SPIKES) * ld), np.float64),
        "snapshot_marks": ((n_snapshots, 3), np.int64),
        "snapshot_log_det": ((n_snapshots,), np.float64),
        "pending_numbers": ((n_pending, 2 * matrix + 2 * ld), np.float64),
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
        "calm": ((n_layers, 2), np.int64),
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
        (("age", most_age), ("quiet", QUIET), ("n_spikes", MOST_SPIKES))
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
