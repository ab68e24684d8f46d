"""The same names for type checkers and editors; a test compares the two."""

from fedsuplin._shared.checks import check_finite as check_finite
from fedsuplin._shared.checks import check_not_negative as check_not_negative
from fedsuplin._shared.checks import check_positive as check_positive
from fedsuplin._shared.checks import check_positive_integer as check_positive_integer
from fedsuplin._shared.checks import check_probability as check_probability
from fedsuplin.algorithm.optimal_design import Design as Design
from fedsuplin.algorithm.optimal_design import MultiDesign as MultiDesign
from fedsuplin.algorithm.optimal_design import find_g_optimal_design as find_g_optimal_design
from fedsuplin.algorithm.optimal_design import find_multi_client_design as find_multi_client_design
from fedsuplin.contracts.claims import Bound as Bound
from fedsuplin.contracts.claims import Claim as Claim
from fedsuplin.contracts.problem import Problem as Problem
from fedsuplin.contracts.protocols import Arrival as Arrival
from fedsuplin.contracts.protocols import Compiled as Compiled
from fedsuplin.contracts.protocols import KernelPolicy as KernelPolicy
from fedsuplin.contracts.protocols import NoiseModel as NoiseModel
from fedsuplin.contracts.protocols import PhasedPolicy as PhasedPolicy
from fedsuplin.contracts.protocols import Phases as Phases
from fedsuplin.contracts.protocols import Policy as Policy
from fedsuplin.contracts.protocols import Stateful as Stateful
from fedsuplin.contracts.protocols import StatefulPolicy as StatefulPolicy
from fedsuplin.contracts.protocols import StatefulTrigger as StatefulTrigger
from fedsuplin.contracts.protocols import StatefulWeighting as StatefulWeighting
from fedsuplin.contracts.protocols import Trigger as Trigger
from fedsuplin.contracts.protocols import Weighting as Weighting
from fedsuplin.contracts.rounding import add_rounding_margin as add_rounding_margin
from fedsuplin.contracts.setting import Setting as Setting
from fedsuplin.contracts.stream import Chunk as Chunk
from fedsuplin.contracts.stream import Stream as Stream
from fedsuplin.contracts.variant import Variant as Variant
from fedsuplin.errors import InvalidInput as InvalidInput
from fedsuplin.errors import PluginError as PluginError
from fedsuplin.hookspecs import hookimpl as hookimpl
from fedsuplin.problems.arrays import ArrayProblem as ArrayProblem
from fedsuplin.problems.classification import ClassificationProblem as ClassificationProblem
from fedsuplin.problems.classification import DigitsProblem as DigitsProblem
from fedsuplin.problems.fixed_arms import FixedArmsProblem as FixedArmsProblem
from fedsuplin.problems.movielens import MovieLensProblem as MovieLensProblem
from fedsuplin.problems.synthetic import SyntheticProblem as SyntheticProblem
from fedsuplin_ext import formulas as formulas
from fedsuplin_ext.draws import keyed_permutation as keyed_permutation
from fedsuplin_ext.rules import from_cython as from_cython
from fedsuplin_ext.rules import low_level as low_level

__all__ = [
    "ArrayProblem",
    "Arrival",
    "Bound",
    "Chunk",
    "Claim",
    "ClassificationProblem",
    "Compiled",
    "Design",
    "DigitsProblem",
    "FixedArmsProblem",
    "InvalidInput",
    "KernelPolicy",
    "MovieLensProblem",
    "MultiDesign",
    "NoiseModel",
    "PhasedPolicy",
    "Phases",
    "PluginError",
    "Policy",
    "Problem",
    "Setting",
    "Stateful",
    "StatefulPolicy",
    "StatefulTrigger",
    "StatefulWeighting",
    "Stream",
    "SyntheticProblem",
    "Trigger",
    "Variant",
    "Weighting",
    "add_rounding_margin",
    "check_finite",
    "check_not_negative",
    "check_positive",
    "check_positive_integer",
    "check_probability",
    "find_g_optimal_design",
    "find_multi_client_design",
    "formulas",
    "from_cython",
    "hookimpl",
    "keyed_permutation",
    "low_level",
]
