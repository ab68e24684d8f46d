"""Algorithm: a variant with its numbers worked out for one setting. `make` builds it from names, objects and keywords."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from fedsuplin_ext.rules import METHODS, Rule, is_compiled

from .arrays import Floats
from .bounds import Claim
from .errors import FedsuplinError, InvalidInput, PluginError, unknown
from .registry import check, parameters_of, plugins
from .setting import Setting

if TYPE_CHECKING:
    from .doubling import Doubling

KERNELS = ("layered", "optimism", "phased")
AXES = {"policy": "policies", "trigger": "triggers", "noise": "noise_models", "weighting": "weightings"}
PRESETS = ("practical", "theory")
ROUNDING = 1 + 1e-12
PARTS = (*AXES, "syncs", "lazy")
SYNCS = {
    "one": "one client syncs, all layers",
    "all": "all clients sync, marked layers",
    "push": "one client uploads, the server sends each what it lacks",
}


@dataclass(frozen=True)
class Variant:
    """A composition under one name: which parts, who syncs, lazy or eager. Presets give keywords that the user may override.

    Each part is a name or an object. What is left out is as in the paper's plain algorithm, `async`.

    >>> gossip = Variant(trigger="periodic", lazy=False)
    >>> make(gossip, dim=4, n_arms=5, n_clients=2, horizon=1000, every=20).trigger
    Periodic(every=20)
    """

    policy: Any = "layered"
    trigger: Any = "determinant"
    noise: Any = "gaussian"
    weighting: Any = "unit"
    syncs: str = "one"
    """"one": the client whose trigger fired, all layers. "all": every client at the end of the round, the marked layers.
    "push": that client uploads, and the server sends each client what it lacks where it exceeds the trigger's
    `push_threshold`, in ln det."""
    lazy: bool = True
    """Decide from the last download alone (lazy), or from it and what was gathered since (eager)."""
    summary: str = ""
    theorem: str | None = None
    """The theorem of the paper that covers this composition, if one does."""
    claim: Claim | None = None
    """Its row in the paper's Table 1, if it has one."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.syncs not in SYNCS:
            raise unknown("way to sync", self.syncs, SYNCS)
        for preset in self.presets:
            if preset not in PRESETS:
                raise unknown("preset", preset, PRESETS)


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A variant with its numbers: radii, target widths, thresholds, and whether the theorem's guarantee holds with them.

    >>> import fedsuplin as fsl
    >>> algorithm = fsl.make("async", dim=25, n_arms=20, n_clients=20, horizon=40_000, preset="theory")
    >>> algorithm.n_layers, algorithm.trigger
    (6, Determinant(C=0.0025))
    """

    name: str
    setting: Setting
    preset: str
    policy: Any
    trigger: Any
    noise: Any
    weighting: Any
    syncs: str
    lazy: bool
    theorem: str | None
    claim: Claim | None
    radii: Floats
    radius_growth: tuple[float, float]
    target_widths: Floats
    spec: dict[str, Any]

    @property
    def dim(self) -> int:
        return self.setting.dim

    @property
    def n_arms(self) -> int:
        return self.setting.n_arms

    @property
    def n_clients(self) -> int:
        return self.setting.n_clients

    @property
    def horizon(self) -> int:
        return self.setting.horizon

    @property
    def n_layers(self) -> int:
        return len(self.radii)

    @property
    def kernel(self) -> str | None:
        """The compiled decision of the engine's that the policy names, None where it chooses itself."""
        return getattr(self.policy, "kernel", None)

    @functools.cached_property
    def rules(self) -> dict[str, Rule]:
        """What the parts decide each pull, as the engine calls it, by axis; checked when it is made."""
        by_axis = {"trigger": self.trigger, "weighting": self.weighting}
        if self.kernel is None:
            by_axis["policy"] = self.policy
        return {axis: _rule(axis, part) for axis, part in by_axis.items()}

    def departures(self, problem: Any = None) -> list[str]:
        """What takes this algorithm out of the paper's guarantee; empty when it holds.

        With a problem, also what the problem breaks: more noise, a longer θ or more corruption than was assumed.
        """
        found = []
        if self.theorem is None:
            found.append("no theorem of the paper covers this composition")
        if getattr(self.noise, "alpha_scale", 1.0) < 1:
            found.append(f"alpha_scale is {self.noise.alpha_scale:g}, below 1")
        if getattr(self.noise, "corruption", 0.0) and getattr(self.noise, "corruption_scale", 1.0) < 1:
            found.append(f"corruption_scale is {self.noise.corruption_scale:g}, below 1")
        if getattr(self.noise, "layer_zero", "bernstein") != "bernstein":
            found.append("the radius of layer 0 is not the Bernstein theorem's")
        if self.theorem and hasattr(self.trigger, "theorem"):
            expected = type(self.trigger)().bind(self.setting)
            if self.trigger != expected:
                found.append(f"the trigger is {self.trigger}, the theorem's is {expected}")
        return found + (self._broken_by(problem) if problem is not None else [])

    def _broken_by(self, problem: Any) -> list[str]:
        """What the problem says of its noise and of θ, against what the noise model of this algorithm assumes."""

        def assumes(name: str) -> Any:
            return getattr(self.noise, name, None)

        def told(name: str) -> Any:
            return getattr(problem, name, None)

        found = []
        scale = told("R") if told("noise_scale") is None else told("noise_scale")  # noise in [−R, R] is R-sub-Gaussian
        if assumes("noise_scale") is not None and scale is not None and scale > assumes("noise_scale") * ROUNDING:
            found.append(f"the problem's noise scale is {scale:g}, the algorithm assumes {assumes('noise_scale'):g}")
        if assumes("R") is not None and told("R") is None and told("noise_scale"):
            found.append(f"the problem's noise has no bound, the algorithm assumes R = {assumes('R'):g}")
        if assumes("R") is not None and told("R") is not None and told("R") > assumes("R") * ROUNDING:
            found.append(f"the problem's noise bound R is {told('R'):g}, the algorithm assumes {assumes('R'):g}")
        if (told("corruption") or 0.0) > (assumes("corruption") or 0.0) * ROUNDING:
            corruption = assumes("corruption") or 0.0
            found.append(f"the problem's corruption C_p is {told('corruption'):g}, the algorithm assumes {corruption:g}")
        if told("arm_thetas") is not None and not getattr(self.policy, "per_arm", False):
            found.append("the problem has a θ for each arm, the algorithm one for all")
        length = 0.0 if told("theta") is None else math.hypot(*told("theta"))
        if assumes("theta_bound") is not None and length > assumes("theta_bound") * ROUNDING:
            found.append(f"the problem's ‖θ‖ is {length:.3g}, the algorithm assumes {assumes('theta_bound'):g}")
        return found

    def overstated(self, problem: Any) -> str | None:
        """The practical preset is for radii no wider than they need be; in words, where more noise was assumed than there is."""
        assumed, there = getattr(self.noise, "noise_scale", None), getattr(problem, "noise_scale", None)
        if self.preset != "practical" or assumed is None or there is None or assumed <= there * ROUNDING:
            return None
        return (
            f"the algorithm assumes a noise scale of {assumed:g}, the problem's is {there:g}: its radii are wider than they need "
            f"be. run by name takes the problem's; make takes noise_scale={there:g}"
        )

    @property
    def guarantee(self) -> bool:
        """Does the paper's regret bound hold with these numbers (if the problem is as assumed)?"""
        return not self.departures()

    def regret_bound(self, horizon: int | None = None) -> float:
        """``Σ_s 8 w̄_s |Ψ_s|``: the paper's bound on regret, with the pulls of each layer those that contexts from every
        direction need to bring its widths down to the target: ``|Ψ_s| = d (α_s/w̄_s)²``, as far as the horizon allows."""
        setting = self.setting.with_horizon(horizon or self.horizon)
        left, bound = setting.horizon, 0.0
        radii, targets = self.noise.radii(setting), self.noise.target_widths(setting)
        for radius, target in zip(radii[:-1], targets[:-1], strict=True):
            pulls = min(left, self.dim * (radius / target) ** 2)
            bound, left = bound + 8 * target * pulls, left - pulls
        return float(bound + 8 * targets[-1] * left)

    def needed_horizon(self, loss: float | None = None) -> int | None:
        """The shortest horizon, within a hundredth, at which `regret_bound` is below `loss` a pull (default ‖θ‖'s bound B).

        None where no horizon up to 10¹⁵ is long enough, or the policy has no layers to wait for.
        """
        loss = getattr(self.noise, "theta_bound", 1.0) if loss is None else loss
        if self.kernel != "layered":
            return None
        low, high = 1.0, 1e15
        if not self.regret_bound(int(high)) < loss * high:
            return None
        while high / low > 1.01:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self.regret_bound(math.ceil(middle)) < loss * middle else (middle, high)
        return math.ceil(high)

    def __str__(self) -> str:
        s = self.setting
        lines = [
            f"{self.name} (preset {self.preset}): d={s.dim} K={s.n_arms} M={s.n_clients} T={s.horizon} ridge={s.ridge:g}",
            f"  policy    {self.policy}, {'lazy' if self.lazy else 'eager'}; {SYNCS[self.syncs]}",
            f"  trigger   {self.trigger}",
            f"  noise     {self.noise}",
            f"  weighting {self.weighting}",
            f"  S = {self.n_layers - 1}",
        ]
        for layer, (radius, target) in enumerate(zip(self.radii, self.target_widths, strict=True)):
            grows = " (grows with ln det)" if self.radius_growth[0] else ""
            lines.append(f"  layer {layer:<3} radius {radius:<10.5g} target width {target:.5g}{grows}")
        departures = self.departures()
        verdict = f"holds ({self.theorem})" if not departures else "does not hold: " + "; ".join(departures)
        return "\n".join([*lines, f"  guarantee {verdict}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from .notebook import algorithm_form

        return algorithm_form(self)


@overload
def make(
    variant: str | Variant,
    *,
    dim: int,
    n_arms: int,
    n_clients: int,
    horizon: int,
    preset: str = ...,
    policy: Any = None,
    trigger: Any = None,
    noise: Any = None,
    weighting: Any = None,
    syncs: str | None = None,
    lazy: bool | None = None,
    **parameters: Any,
) -> Algorithm: ...
@overload
def make(
    variant: str | Variant,
    *,
    dim: int,
    n_arms: int,
    n_clients: int,
    horizon: None,
    preset: str = ...,
    policy: Any = None,
    trigger: Any = None,
    noise: Any = None,
    weighting: Any = None,
    syncs: str | None = None,
    lazy: bool | None = None,
    **parameters: Any,
) -> Doubling: ...
def make(
    variant: str | Variant,
    *,
    dim: int,
    n_arms: int,
    n_clients: int,
    horizon: int | None,
    preset: str = "practical",
    policy: Any = None,
    trigger: Any = None,
    noise: Any = None,
    weighting: Any = None,
    syncs: str | None = None,
    lazy: bool | None = None,
    **parameters: Any,
) -> Algorithm | Doubling:
    """An algorithm by name. Parts may be replaced by names or objects; other keywords are parameters of the parts.

    Names joined by + compose: "sync+robust" is sync with what robust changes. A trigger, a weighting or a policy may also be
    a bare function: Python, numba's `@cfunc` or a scipy.LowLevelCallable. Parameters are ridge, delta, alpha_scale,
    noise_scale (σ), theta_bound (B), C, D, every, R, corruption (C_p) and whatever
    else the chosen parts take. One that no part has a use for is an error.

    Here no problem is there to ask: noise_scale and R are 1 unless given, and corruption 0. `run` by name takes the problem's own
    with the practical preset, so give noise_scale=problem.noise_scale for the algorithm that it would play.

    horizon=None says that nobody knows how many pulls there will be. What comes back is then a Doubling: an algorithm for 1024
    pulls, after them one for 2048, and so on, each from nothing. `run` and `fedsuplin serve` take it; docs/federation.md has what
    it costs.

    >>> make("async", dim=4, n_arms=5, n_clients=2, horizon=1000, trigger="periodic", every=50).trigger
    Periodic(every=50)
    >>> make("sync+robust", dim=4, n_arms=5, n_clients=2, horizon=1000, corruption=3).departures()[0]
    'no theorem of the paper covers this composition'
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    parts = {"policy": policy, "trigger": trigger, "noise": noise, "weighting": weighting, "syncs": syncs, "lazy": lazy}
    if horizon is None:
        from .doubling import Doubling

        sizes = {"dim": dim, "n_arms": n_arms, "n_clients": n_clients, "preset": preset}
        return Doubling(variant, sizes | {part: value for part, value in parts.items() if value is not None} | parameters)
    name, recipe = composed(variant, parts)

    preset_values = dict(recipe.presets.get(preset, {}))
    ridge = parameters.get("ridge", preset_values.get("ridge", 1.0))
    setting = Setting(dim=dim, n_arms=n_arms, n_clients=n_clients, horizon=horizon, ridge=ridge)
    _refuse_unused(name, recipe, parameters)
    keywords = {axis: _keywords(axis, getattr(recipe, axis), preset_values | parameters) for axis in AXES}
    parts = {axis: _bound(axis, _part(axis, getattr(recipe, axis), keywords[axis]), setting) for axis in AXES}
    spec = _spec(name, setting, preset, recipe, parts, keywords)
    return _checked(
        name=name,
        setting=setting,
        preset=preset,
        syncs=recipe.syncs,
        lazy=recipe.lazy,
        theorem=recipe.theorem,
        claim=recipe.claim,
        spec=spec,
        **parts,
    )


def _checked(**fields: Any) -> Algorithm:
    """The algorithm, with all that its parts will do in the loop looked at first: they may come from anybody."""
    algorithm = Algorithm(**fields, **_numbers(fields["noise"], fields["setting"]))
    if algorithm.kernel is not None and algorithm.kernel not in KERNELS:
        raise unknown("decision kernel", algorithm.kernel, KERNELS)
    if algorithm.syncs == "push" and not hasattr(algorithm.trigger, "push_threshold"):
        raise PluginError(f"with syncs='push' the trigger needs a push_threshold, which {algorithm.trigger!r} has not")
    _ = algorithm.rules
    return algorithm


# --- compositions ----------------------------------------------------------------------------------------------------


def composed(variant: str | Variant, parts: Mapping[str, Any]) -> tuple[str, Variant]:
    """A variant with some parts replaced (None leaves one as it is), and the name to show for it.

    A theorem covers it if it covers one of the variants named that is the same in every part.
    """
    replaced = {part: value for part, value in parts.items() if value is not None}
    name, recipes = _named(variant)
    for each in recipes.values():
        if not isinstance(each, Variant):
            raise PluginError(f"{name!r} is a variant, so it must be a fedsuplin.Variant, not {each!r}")
    recipe = combined(recipes, replaced) if len(recipes) > 1 else next(iter(recipes.values()))
    recipe = dataclasses.replace(recipe, **replaced)
    same = [r for r in recipes.values() if all(getattr(r, part) == getattr(recipe, part) for part in PARTS)]
    covered = {"theorem": same[0].theorem, "claim": same[0].claim} if same else {"theorem": None, "claim": None}
    return name, dataclasses.replace(recipe, **covered)


def _named(variant: str | Variant) -> tuple[str, dict[str, Variant]]:
    """The name to show, and the variants that it names."""
    if isinstance(variant, Variant):
        return "custom", {"custom": variant}
    if not isinstance(variant, str):
        raise InvalidInput(f"a variant is a name, names joined by +, or a Variant, not {variant!r}")
    return variant, {name: plugins.create("variants", name, {}) for name in variant.split("+")}


def combined(recipes: Mapping[str, Variant], decided: Collection[str] = ()) -> Variant:
    """What each of the variants has that the plain one has not, together; two that differ there must be decided.

    Where presets give one keyword twice, the later name counts.
    """
    plain = Variant()
    parts: dict[str, Any] = {}
    chosen_by: dict[str, str] = {}
    for name, recipe in recipes.items():
        for part in PARTS:
            value = getattr(recipe, part)
            if value == getattr(plain, part) or part in decided:
                continue
            if parts.setdefault(part, value) != value:
                raise InvalidInput(
                    f"{chosen_by[part]!r} and {name!r} both choose the {part} ({parts[part]!r} and {value!r}): "
                    f"say which with {part}="
                )
            chosen_by[part] = name
    presets: dict[str, dict[str, Any]] = {preset: {} for preset in PRESETS}
    for recipe in recipes.values():
        for preset, values in recipe.presets.items():
            presets.setdefault(preset, {}).update(values)
    return Variant(**parts, presets=presets, summary=" + ".join(recipe.summary for recipe in recipes.values()))


class Bare:
    """A trigger, a weighting or a policy that was given as nothing but a function."""

    def __init__(self, axis: str, function: Any) -> None:
        self._function = function
        setattr(self, METHODS[axis][0], _rule(axis, self) if is_compiled(function) else function)

    def compiled(self) -> Any:
        return self._function if is_compiled(self._function) else None

    def __repr__(self) -> str:
        return f"Bare({getattr(self._function, '__qualname__', self._function)})"


def _rule(axis: str, part: Any) -> Rule:
    """The rule of a part, checked; what is wrong with it names the part."""
    try:
        return Rule(axis, part)
    except FedsuplinError:
        raise
    except Exception as error:
        told = str(error) if str(error).startswith(repr(part)) else f"{part!r}: {error}"
        raise PluginError(told) from error


def _keywords(axis: str, given: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the plugin of one axis takes, where it is made by name."""
    takes = takes_of(axis, given) if isinstance(given, str) else ()
    return {key: value for key, value in values.items() if key in takes}


def _part(axis: str, given: Any, keywords: Mapping[str, Any]) -> Any:
    """The plugin for one axis: made by name, the object itself, or a bare function."""
    if _is_bare(axis, given):
        return Bare(axis, given)
    return plugins.create(AXES[axis], given, dict(keywords)) if isinstance(given, str) else check(AXES[axis], given)


def _is_bare(axis: str, given: Any) -> bool:
    return axis in METHODS and (callable(given) or is_compiled(given)) and not hasattr(given, METHODS[axis][0])


def takes_of(axis: str, name: str) -> set[str]:
    """The keywords of `make` that the plugin of this name takes: its parameters, less those that only matter when drawing."""
    factory = plugins.factory(AXES[axis], name)
    return set(parameters_of(factory)) - set(getattr(factory, "drawing_only", ()))


def keywords_of(recipe: Variant) -> set[str]:
    """Every keyword that `make` takes for this composition, beyond sizes and parts."""
    named = {axis: getattr(recipe, axis) for axis in AXES if isinstance(getattr(recipe, axis), str)}
    return {"ridge"}.union(*(takes_of(axis, value) for axis, value in named.items()))


def _refuse_unused(name: str, recipe: Variant, parameters: Mapping[str, Any]) -> None:
    takes = keywords_of(recipe)
    for keyword in parameters:
        if keyword not in takes:
            raise unknown(f"keyword for {name!r}", keyword, takes)


def _asked(part: Any, method: str, setting: Setting) -> Any:
    """What a plugin makes of a setting; whatever it raises names it."""
    try:
        return getattr(part, method)(setting)
    except FedsuplinError:
        raise
    except Exception as error:
        raise PluginError(f"{part!r}: {method} raised {type(error).__name__}: {error}") from error


def _bound(axis: str, part: Any, setting: Setting) -> Any:
    return check(AXES[axis], _asked(part, "bind", setting)) if hasattr(part, "bind") else part


def _numbers(noise: Any, setting: Setting) -> dict[str, Any]:
    """Radii and target widths, checked: a noise model may come from anybody."""
    n_layers = _asked(noise, "n_layers", setting)
    if not isinstance(n_layers, numbers.Integral) or isinstance(n_layers, bool) or n_layers < 1:
        raise PluginError(f"noise model {noise!r}: n_layers must be a whole number of at least 1, not {n_layers!r}")
    found = {what: _finite_numbers(noise, what, setting, int(n_layers)) for what in ("radii", "target_widths")}
    growth = _finite_numbers(noise, "radius_growth", setting, 2) if hasattr(noise, "radius_growth") else (0.0, 0.0)
    return found | {"radius_growth": tuple(float(value) for value in growth)}


def _finite_numbers(noise: Any, what: str, setting: Setting, n: int) -> Floats:
    given = _asked(noise, what, setting)
    try:
        values = np.array(given, dtype=float)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (n,) or not np.isfinite(values).all() or (values < 0).any():
        raise PluginError(f"noise model {noise!r}: {what} must be {n} finite numbers ≥ 0, not {given!r}")
    values.setflags(write=False)
    return values


def _spec(
    name: str, setting: Setting, preset: str, recipe: Variant, parts: Mapping[str, Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """The algorithm as plain data, from which `from_spec` makes it again."""
    described = {}
    for axis, part in parts.items():
        given = getattr(recipe, axis)
        described[axis] = {
            "name": given if isinstance(given, str) else None,
            "type": type(part).__qualname__,
            "parameters": _fields(part) if dataclasses.is_dataclass(part) else keywords[axis],
        }
    return {
        "variant": name,
        **dataclasses.asdict(setting),
        "preset": preset,
        "syncs": recipe.syncs,
        "lazy": recipe.lazy,
        **described,
    }


def _fields(part: Any) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init}


def from_spec(spec: Mapping[str, Any]) -> Algorithm | Doubling:
    """The algorithm that a specification describes; its parts must be registered by name."""
    if "doubling" in spec:
        from .doubling import Doubling

        return Doubling.from_spec(spec)
    setting = Setting(**{key: spec[key] for key in ("dim", "n_arms", "n_clients", "horizon", "ridge")})
    parts = {}
    for axis, kind in AXES.items():
        name = spec[axis]["name"]
        if name is None:
            raise InvalidInput(
                f"the {axis} was passed as an object of type {spec[axis]['type']}, so it can't be made again by name"
            )
        parts[axis] = _bound(axis, plugins.create(kind, name, spec[axis]["parameters"]), setting)
    names = {axis: spec[axis]["name"] for axis in AXES}
    variant = Variant() if spec["variant"] == "custom" else spec["variant"]
    name, recipe = composed(variant, names | {"syncs": spec["syncs"], "lazy": spec["lazy"]})
    return _checked(
        name=name,
        setting=setting,
        preset=spec["preset"],
        syncs=recipe.syncs,
        lazy=recipe.lazy,
        theorem=recipe.theorem,
        claim=recipe.claim,
        spec=dict(spec),
        **parts,
    )
