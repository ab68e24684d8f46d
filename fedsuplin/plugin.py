"""Everything that a plugin author imports: hooks, protocols, sizes, checks and compiled forms.

The built-in plugins import from here and from nowhere else in fedsuplin.
docs/plugins.md is the guide.
"""

from __future__ import annotations

from ._shared.lazy_names import make_lazy_names

# Every public name, and the module that defines it. The stub beside this file has the same names
# for type checkers and editors.
_HOMES = {
    "ArrayProblem": "fedsuplin.problems.arrays",
    "Arrival": "fedsuplin.contracts.protocols",
    "Bound": "fedsuplin.contracts.claims",
    "Chunk": "fedsuplin.contracts.stream",
    "Claim": "fedsuplin.contracts.claims",
    "ClassificationProblem": "fedsuplin.problems.classification",
    "Compiled": "fedsuplin.contracts.protocols",
    "Design": "fedsuplin.algorithm.optimal_design",
    "DigitsProblem": "fedsuplin.problems.classification",
    "FixedArmsProblem": "fedsuplin.problems.fixed_arms",
    "InvalidInput": "fedsuplin.errors",
    "KernelPolicy": "fedsuplin.contracts.protocols",
    "MovieLensProblem": "fedsuplin.problems.movielens",
    "MultiDesign": "fedsuplin.algorithm.optimal_design",
    "NoiseModel": "fedsuplin.contracts.protocols",
    "PhasedPolicy": "fedsuplin.contracts.protocols",
    "Phases": "fedsuplin.contracts.protocols",
    "PluginError": "fedsuplin.errors",
    "Policy": "fedsuplin.contracts.protocols",
    "Problem": "fedsuplin.contracts.problem",
    "Setting": "fedsuplin.contracts.setting",
    "Stateful": "fedsuplin.contracts.protocols",
    "StatefulPolicy": "fedsuplin.contracts.protocols",
    "StatefulTrigger": "fedsuplin.contracts.protocols",
    "StatefulWeighting": "fedsuplin.contracts.protocols",
    "Stream": "fedsuplin.contracts.stream",
    "SyntheticProblem": "fedsuplin.problems.synthetic",
    "Trigger": "fedsuplin.contracts.protocols",
    "Variant": "fedsuplin.contracts.variant",
    "Weighting": "fedsuplin.contracts.protocols",
    "add_rounding_margin": "fedsuplin.contracts.rounding",
    "check_finite": "fedsuplin._shared.checks",
    "check_not_negative": "fedsuplin._shared.checks",
    "check_positive": "fedsuplin._shared.checks",
    "check_positive_integer": "fedsuplin._shared.checks",
    "check_probability": "fedsuplin._shared.checks",
    "find_g_optimal_design": "fedsuplin.algorithm.optimal_design",
    "find_multi_client_design": "fedsuplin.algorithm.optimal_design",
    "formulas": "fedsuplin_ext.formulas",
    "from_cython": "fedsuplin_ext.rules",
    "hookimpl": "fedsuplin.hookspecs",
    "keyed_permutation": "fedsuplin_ext.draws",
    "low_level": "fedsuplin_ext.rules",
}

__all__ = list(_HOMES)  # noqa: PLE0605
__getattr__, __dir__ = make_lazy_names(globals(), _HOMES)
