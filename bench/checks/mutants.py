"""Insert deliberate faults into the kernels, one at a time: the tests must catch every one.

python bench/checks/mutants.py                 all of them, about twenty minutes
python bench/checks/mutants.py --only norm     those with that in their name; --list shows all

Each fault is inserted into a copy of the tree, the copy is compiled, and the tests named with the
fault run on it; if these pass, all tests run. Prints what caught each fault, and fails if one
survives. Needs an environment in which the tests run.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
EXT = "ext/fedsuplin_ext"
# This test looks for the code that a fault replaces, so it fails for every fault.
PLACES = "tests/ext/test_kernels.py::test_every_deliberate_fault_has_its_place_in_the_kernels"
# Not copied; compiled files are.
LEFT_BEHIND = shutil.ignore_patterns(
    ".git", "__pycache__", ".hypothesis", ".pytest_cache", ".ruff_cache"
)


class Mutant(NamedTuple):
    """A fault: replace `old` by `new` in a file of the compiled core."""

    name: str
    file: str
    old: str
    new: str
    tests: str  # the test files that should catch it, without test_ and .py


MUTANTS = [
    # --- gram: what is known of a layer, and how it grows
    Mutant(
        "a weight dropped: Δb gets √ω r x",
        "gram.pyx",
        "add_reward(w, p, root * reward)",
        "add_reward(w, p, reward)",
        "twin",
    ),
    Mutant(
        "u = P v/(1 + vᵀPv), without the root",
        "gram.pyx",
        "scale = 1.0 / sqrt(1.0 + excess)",
        "scale = 1.0 / (1.0 + excess)",
        "gram",
    ),
    Mutant(
        "a wrong index: every kept vector is the first",
        "gram.pyx",
        "w.k.add_outer(w.matrix, w.matrix, w.ld, p.inverse + j * w.ld, -1.0, w.d)",
        "w.k.add_outer(w.matrix, w.matrix, w.ld, p.inverse, -1.0, w.d)",
        "gram",
    ),
    Mutant(
        "a wrong sign in (A+ΔA)⁻¹v",
        "gram.pyx",
        "w.y[i] -= along * u[i]",
        "w.y[i] += along * u[i]",
        "gram",
    ),
    Mutant(
        "a stale inverse: a merge starts each step from the old one",
        "gram.pyx",
        "        source = into\n",
        "        pass\n",
        "gram",
    ),
    Mutant(
        "a stale θ̂ after a factorisation",
        "gram.pyx",
        "    return estimate(w, s) if info == 0 else info",
        "    return info",
        "gram",
    ),
    Mutant(
        "the server's inverse is never refreshed",
        "gram.pyx",
        "if into.age > w.refresh:",
        "if into.age < 0:",
        "gram",
    ),
    Mutant(
        "a client's inverse is never refreshed",
        "gram.pyx",
        "(p.own and p.age >= w.refresh)",
        "(p.own and p.age < 0)",
        "gram",
    ),
    Mutant(
        "an eager client forgets Δb in its θ̂",
        "gram.pyx",
        "w.y[i] = held.moment[i] + p.delta_moment[i]",
        "w.y[i] = held.moment[i]",
        "twin",
    ),
    # --- pool
    Mutant(
        "a stale Δb: memory is used again as it is",
        "pool.pyx",
        "memset(p.delta_moment, 0, store.ld * sizeof(double))",
        "pass",
        "twin gram",
    ),
    Mutant(
        "a snapshot is freed while a client holds it",
        "pool.pyx",
        "if s.refs == 0:",
        "if s.refs <= 1:",
        "gram twin",
    ),
    # --- screening
    Mutant(
        "the screening keeps arms within w̄, not 2w̄",
        "screening.pyx",
        "s.estimate, 2 * numbers.targets[q]",
        "s.estimate, numbers.targets[q]",
        "twin",
    ),
    Mutant(
        "columns side by side: which arms they were is forgotten at the second move",
        "screening.pyx",
        "s.source[left], s.arm[left] = a, s.arm[a]",
        "s.source[left], s.arm[left] = a, a",
        "twin",
    ),
    Mutant(
        "ties go to whom rounding favours",
        "screening.pyx",
        "w.k.first_of_largest(value, above, TIE, s.out, lanes)",
        "w.k.first_of_largest(value, above, 0.0, s.out, lanes)",
        "twin",
    ),
    Mutant(
        "≥ for >: an arm as wide as its target is wide",
        "screening.pyx",
        "if widest > target:",
        "if widest >= target:",
        "twin",
    ),
    Mutant(
        "an eager client's radius forgets its own gain",
        "screening.pyx",
        "log_det += layer.pending.gain",
        "pass",
        "twin",
    ),
    # --- certificates
    Mutant(
        "spikes are allowed all of τ",
        "certificates.pyx",
        "made.n, made.room = n, tau - floor * FSL_LONGEST * FSL_LONGEST",
        "made.n, made.room = n, tau",
        "proofs certificates",
    ),
    Mutant(
        "a layer is quiet though the rest is not below the floor",
        "certificates.pyx",
        "return w.k.below(w.second_matrix, w.ld, w.d, floor, w.matrix, w.u)",
        "return w.k.below(w.second_matrix, w.ld, w.d, 2 * tau, w.matrix, w.u)",
        "proofs certificates",
    ),
    Mutant(
        "a stale certificate: the number of a panel is not checked",
        "certificates.pyx",
        "if panel.number != held.panel:",
        "if panel.number == UNKNOWN:",
        "shortcuts",
    ),
    Mutant(
        "the server's spikes certify an older download",
        "certificates.pyx",
        "    if held.quiet <= 0:\n",
        "    held = s.server[q]\n    if held.quiet <= 0:\n",
        "shortcuts",
    ),
    Mutant(
        "the server's panel certifies an older download",
        "certificates.pyx",
        "    if held.panel == UNKNOWN:\n",
        "    held = s.server[q]\n    if held.panel == UNKNOWN:\n",
        "shortcuts",
    ),
    Mutant(
        "a panel's bound forgets the centre of the form",
        "certificates.pyx",
        "return fixed.centre * FSL_LONGEST * FSL_LONGEST + fixed.error",
        "return fixed.error",
        "proofs",
    ),
    Mutant(
        "a layer that was observed is still fresh",
        "gram.pyx",
        "    into.fresh = 0\n",
        "    into.fresh = source.fresh\n",
        "shortcuts",
    ),
    Mutant(
        "several layers in one pass: the estimates of the first for all",
        "screening.pyx",
        "s.quiet[n_quiet].estimates = products + <ptrdiff_t>n[0] * lanes",
        "s.quiet[n_quiet].estimates = products",
        "shortcuts",
    ),
    # --- proofs in fixed point
    Mutant(
        "a bound without what is cut off the matrix",
        "proofs.h",
        "fixed->error = n * n * cut + n * norm",
        "fixed->error = n * norm",
        "proofs",
    ),
    Mutant(
        "a bound without what is cut off the contexts",
        "proofs.h",
        "n * n * cut + n * norm * sqrt((double)d) / FSL_CONTEXT_SCALE +",
        "n * n * cut +",
        "proofs",
    ),
    Mutant(
        "a lane too few: the last four arms are not proved",
        "proofs_body.h",
        "for (int a = 0; a < lanes; a += 4)",
        "for (int a = 0; a + 4 < lanes; a += 4)",
        "shortcuts",
    ),
    Mutant(
        "an odd last coordinate is not in the form",
        "proofs_body.h",
        "pair[a] = (int32_t)(FSL_CONTEXT_SCALE * even[a]) & 0xFFFF;",
        "pair[a] = 0;",
        "proofs",
    ),
    Mutant(
        "the coordinates of a pair are exchanged in half a vector",
        "proofs_body.h",
        "PAIR(CUT(x, none), CUT(y, none))",
        "PAIR(CUT(y, none), CUT(x, none))",
        "proofs",
    ),
    # --- the loop
    Mutant(
        "the rows of a round that is not copied are taken for padded ones",
        "loop.pyx",
        "self.screen.round_stride = K\n",
        "self.screen.round_stride = lanes\n",
        "twin",
    ),
    Mutant(
        "the norm given to a weighting is off by 1e-7",
        "loop.pyx",
        "norm = sqrt(0.0 if norm2 < 0 else norm2)",
        "norm = (1 + 1e-7) * sqrt(0.0 if norm2 < 0 else norm2)",
        "twin rules",
    ),
    Mutant(
        "Px is not computed for a weighting that reads it",
        "loop.pyx",
        "self.weighting.reads_norm or self.work.eager\n",
        "self.work.eager\n",
        "rules",
    ),
    Mutant(
        "Px is not computed for the first vectors of a client",
        "loop.pyx",
        "            or at.pending == NULL or not at.pending.own\n",
        "",
        "rules twin",
    ),
    Mutant(
        "the time since the last sync is the time since the first",
        "loop.pyx",
        "elapsed = self.since[client] - self.last_sync[layer]",
        "elapsed = self.since[client]",
        "twin",
    ),
    Mutant(
        "a sync is remembered a round late",
        "loop.pyx",
        "self.last_sync[s] = round",
        "self.last_sync[s] = round + 1",
        "twin",
    ),
    Mutant(
        "the server writes into a snapshot that a client holds",
        "loop.pyx",
        "into = last if last.refs == 1 else",
        "into = last if last.refs <= 2 else",
        "twin",
    ),
    Mutant(
        "an adversary earns by harming",
        "loop.pyx",
        "self.budget -= fabs(corruption)",
        "self.budget -= corruption",
        "twin",
    ),
    Mutant(
        "the pulls since a sync are one too few",
        "loop.pyx",
        "            self.since[client] += 1\n            elapsed = self.since[client]\n",
        "            elapsed = self.since[client]\n            self.since[client] += 1\n",
        "twin",
    ),
    Mutant(
        "uniform play is credited with unavailable arms",
        "loop.pyx",
        "            total += means[a]\n            there += 1\n",
        "            total += means[a]\n        there += 1\n",
        "twin runner",
    ),
    # --- the kernels
    Mutant(
        "norms: the diagonal counts twice",
        "kernels_body.h",
        "t[r][v] = 0.5 * p[r * ldp + i + r]",
        "t[r][v] = 1.0 * p[r * ldp + i + r]",
        "kernels",
    ),
    Mutant(
        "norms: an odd row is left out",
        "kernels_body.h",
        "for (int row = 0; row < i; row++)",
        "for (int row = 1; row < i; row++)",
        "kernels",
    ),
    Mutant(
        "products: vₖ₋₁ for vₖ",
        "kernels_body.h",
        "s[g][v] += vectors[g][i] * xi;",
        "s[g][v] += vectors[g][i > 0 ? i - 1 : i] * xi;",
        "kernels",
    ),
    Mutant(
        "norms: of three vectors of arms, a fourth is passed over",
        "kernels_body.h",
        "    a += NV * W\n",
        "    a += (NV == 3 ? 4 : NV) * W\n",
        "kernels",
    ),
    Mutant(
        "keep: > for ≥",
        "kernels_body.h",
        "FN(choose)((TRUTH)(x >= least)",
        "FN(choose)((TRUTH)(x > least)",
        "plain_kernels",
    ),
    Mutant(
        "pad: the next row is left in the padding",
        "kernels_body.h",
        "is_arm[l] = -(whole + l < n_arms);",
        "is_arm[l] = -1;",
        "plain_kernels",
    ),
    Mutant(
        "the largest lane of two is the first",
        "kernels_body.h",
        "_mm_shuffle_pd(m, m, 1)",
        "_mm_shuffle_pd(m, m, 2)",
        "plain_kernels",
    ),
    Mutant(
        "layer 0: an arm that was dropped is the widest",
        "kernels_body.h",
        "widest = FN(larger)(w[v] + kept[v], widest);",
        "widest = FN(larger)(w[v], widest);",
        "plain_kernels",
    ),
    Mutant(
        "spikes: only the first of a layer is looked at",
        "kernels_body.h",
        "    for (int i = 0; i < n; i++) {\n        const VEC along",
        "    for (int i = 0; i < n && i < 1; i++) {\n        const VEC along",
        "plain_kernels",
    ),
    Mutant(
        "columns moved together: the wrong one",
        "kernels_body.h",
        "to[a] = X[source[a]];",
        "to[a] = X[a];",
        "plain_kernels",
    ),
    Mutant(
        "matvec: a vector too few of three",
        "kernels_body.h",
        "x, d, y + i, 3); break;",
        "x, d, y + i, 2); break;",
        "gram",
    ),
    Mutant(
        "matvec of half: what lies below the diagonal is left out",
        "kernels_body.h",
        "below += x[i + r] * entries;",
        "below += 0.0 * entries;",
        "plain_kernels",
    ),
    Mutant(
        "invert: the columns above the diagonal are not copied to the rows",
        "kernels_body.h",
        "Y[k * ldp + j] = A[j * ldp + first + k];",
        "Y[k * ldp + j] = A[(first + k) * ldp + j];",
        "gram",
    ),
    Mutant(
        "below: the wrong sign in the elimination",
        "kernels_body.h",
        "FN(load)(A + i * ldp + j) - u[i] * FN(load)(u + j)",
        "FN(load)(A + i * ldp + j) + u[i] * FN(load)(u + j)",
        "certificates twin",
    ),
    # --- state and live
    Mutant(
        "a checkpoint forgets the gain", "state.pyx", "        p.gain = gain[i]\n", "", "checkpoint"
    ),
    Mutant(
        "a checkpoint's θ̂ is a row of P",
        "state.pyx",
        "copy_rows(s.theta, ld, &numbers[i, d, 0], d, 1, d)",
        "copy_rows(s.theta, ld, &numbers[i, 0, 0], d, 1, d)",
        "checkpoint",
    ),
    Mutant(
        "a checkpoint forgets the last syncs",
        "state.pyx",
        'e.last_sync[s], e.marked[s] = state["last_sync"][s]',
        "e.last_sync[s], e.marked[s] = 0",
        "checkpoint",
    ),
    Mutant(
        "live: an observation comes back with weight 1",
        "live.pyx",
        "observe(&self.work, at.held, at.pending, self.x, self.Px, weight, reward)",
        "observe(&self.work, at.held, at.pending, self.x, self.Px, 1.0, reward)",
        "client_and_server",
    ),
    Mutant(
        "live: a download forgets what came later",
        "live.pyx",
        "self.layers[layer].pending != NULL and layer not in of_sent:",
        "self.layers[layer].pending != NULL and False:",
        "client_and_server",
    ),
    Mutant(
        "live: the server adds the last of the uploads only",
        "live.pyx",
        "for layers, grams, moments in uploads:",
        "for layers, grams, moments in uploads[-1:]:",
        "boundary",
    ),
    Mutant(
        "live: a wrong index: every matrix of an upload is its first",
        "live.pyx",
        "+= grams[row, at]",
        "+= grams[0, at]",
        "ledger",
    ),
    Mutant(
        "live: an upload that is refused keeps its memory",
        "live.pyx",
        "                self.pool.release(self.staged[layer].held)",
        "                pass",
        "boundary",
    ),
    # --- draws, formulas, rules
    Mutant(
        "draws: sine and cosine are not swapped in odd quarters",
        "draws_body.h",
        "const WORD swap = 0u - (quarter & 1)",
        "const WORD swap = -(quarter & 0)",
        "draws",
    ),
    Mutant(
        "draws: another generator",
        "draws_body.h",
        "(last << 45) | (last >> 19)",
        "(last << 44) | (last >> 20)",
        "draws",
    ),
    Mutant(
        "a permutation that leaves its range",
        "draws_dispatch.h",
        "outside += x >= size;",
        "outside += x > size;",
        "draws",
    ),
    Mutant("the capped weight is γ", "formulas.pyx", "gamma / norm", "gamma", "kernels"),
    Mutant(
        "the variance weight is 1/σ̄",
        "formulas.pyx",
        "1.0 / (level * level)",
        "1.0 / level",
        "kernels",
    ),
    Mutant(
        "≥ for >: a trigger that ties fires",
        "formulas.pyx",
        "return gain > (<double*>user)[0]",
        "return gain >= (<double*>user)[0]",
        "baselines",
    ),
    Mutant(
        "the state of a trigger is the first client's",
        "rules.pyx",
        "(gain, elapsed, state, self.user)",
        "(gain, elapsed, self.slots, self.user)",
        "plugin_state",
    ),
]


def make_environment(tree: Path) -> dict[str, str]:
    """Return an environment that imports the copy and makes property tests repeatable."""
    return os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'ext'}", "CI": "1"}


def build(tree: Path) -> None:
    """Compile a tree in place."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(
        command, cwd=tree, env=make_environment(tree), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"it does not compile:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def copy_original(folder: Path) -> Path:
    """Copy and compile the tree; the plugins get their installed name beside the compiled core."""
    tree = folder / "original"
    shutil.copytree(ROOT, tree, ignore=LEFT_BEHIND)
    (tree / "ext" / "fedsuplin_plugins").symlink_to(tree / "plugins")
    build(tree)
    names = ("fedsuplin", "fedsuplin_ext.loop", "fedsuplin_plugins")
    where = (
        f"from importlib import import_module as i; print(*(i(name).__file__ for name in {names}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", where],
        cwd=folder,
        env=make_environment(tree),
        capture_output=True,
        text=True,
    )
    if found.stdout.count(str(tree)) != 3:
        raise SystemExit(f"the copy is not what Python imports: {found.stdout}{found.stderr}")
    return tree


def make_mutant(mutant: Mutant, source: Path, folder: Path) -> Path:
    """Copy the compiled tree, insert the fault and compile the copy."""
    tree = folder / "mutant"
    shutil.rmtree(tree, ignore_errors=True)
    # With times, so that only what changes is compiled.
    shutil.copytree(source, tree, symlinks=True, copy_function=shutil.copy2)
    (tree / "ext" / "fedsuplin_plugins").unlink()
    (tree / "ext" / "fedsuplin_plugins").symlink_to(tree / "plugins")
    file = tree / EXT / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(
            f"{mutant.name}: {mutant.old!r} is {text.count(mutant.old)} times in {mutant.file}; "
            "it must be there once"
        )
    file.write_text(text.replace(mutant.old, mutant.new))
    build(tree)
    return tree


def heed_ctrl_c() -> None:
    """Handle Ctrl-C, which a process started in the background ignores: its tests would fail."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def find_failing_test(tree: Path, files: list[str]) -> str | None:
    """Return the first test that fails, or a crash or a hang; None if all pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "--deselect",
        PLACES,
        *files,
    ]
    how = {
        "cwd": tree,
        "env": make_environment(tree),
        "capture_output": True,
        "text": True,
        "timeout": 1800,
    }
    try:
        done = subprocess.run(command, **how, preexec_fn=heed_ctrl_c)
    except subprocess.TimeoutExpired:
        return "a hang"
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+::\S+)", done.stdout, re.MULTILINE)
    return (
        failed[1]
        if failed
        else f"exit code {done.returncode}: {(done.stdout + done.stderr)[-300:]}"
    )


@functools.cache
def check_that_it_passes(source: Path, file: str) -> None:
    """Check that a test file passes without a fault."""
    failed = find_failing_test(source, [file])
    if failed is not None:
        raise SystemExit(f"{failed} fails without any fault")


def find_test_file(name: str) -> str:
    """Return the path of the test file of this name, in any folder."""
    (path,) = (ROOT / "tests").rglob(f"test_{name}.py")
    return str(path.relative_to(ROOT))


def try_mutant(mutant: Mutant, source: Path, folder: Path) -> str | None:
    """Return what catches a fault: the tests named with it, or any; None if it survives."""
    files = [find_test_file(name) for name in mutant.tests.split()]
    for file in files:
        check_that_it_passes(source, file)
    tree = make_mutant(mutant, source, folder)
    expected = find_failing_test(tree, files)
    if expected is not None:
        return expected
    by_chance = find_failing_test(tree, ["tests"])
    if by_chance is not None and "::" in by_chance:
        check_that_it_passes(source, by_chance.partition("::")[0])
    return by_chance


def main(only: str) -> int:
    """Try the chosen faults, and return how many survive."""
    chosen = [mutant for mutant in MUTANTS if only in mutant.name or only == mutant.file]
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = copy_original(folder)
        for mutant in chosen:
            began = time.perf_counter()
            caught = try_mutant(mutant, source, folder)
            survivors += caught is None
            print(
                f"{mutant.file}: {mutant.name}\n"
                f"    {caught or 'SURVIVES'}  ({time.perf_counter() - began:.0f} s)",
                flush=True,
            )
    print(f"{len(chosen)} faults, {len(chosen) - survivors} caught, {survivors} survive")
    return survivors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", default="", help="faults with this in their name, or in this file"
    )
    parser.add_argument("--list", action="store_true", help="show the faults and end")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{mutant.file}: {mutant.name}" for mutant in MUTANTS))
    else:
        sys.exit(bool(main(arguments.only)))
