"""A page for each policy, from the registered variants: `python docs/tools/policies.py` writes docs/policies/.

Bounds, parameters, parts and numbers come from the code. Only what each parameter means, when to use a policy and what its
example is are written here; a variant or a parameter that lacks one is an error, and a test compares pages and code.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

from fedsuplin.algorithm.algorithm import Algorithm
from fedsuplin.algorithm.composing import compose_recipe, list_keywords
from fedsuplin.cli.build import build_problem_and_algorithm, read_build_defaults
from fedsuplin.cli.variants import fold_lines
from fedsuplin.contracts.variant import AXES, PRESETS, SYNCS, Variant
from fedsuplin.registry import plugins

WIDTH = 80  # of a command's output where there is no terminal
FOLDER = Path(__file__).parents[1] / "policies"
NAVIGATION = {
    "The paper's": ("async", "sync", "variance", "robust"),
    "Others that talk": ("fedlinucb", "async-linucb", "dislinucb", "fed-pe"),
    "Each client alone": ("oful", "suplinucb", "pe", "greedy", "uniform"),
}
ORDER = tuple(name for names in NAVIGATION.values() for name in names)

# Symbol of the paper, and what it is.
PARAMETERS = {
    "ridge": ("λ", "ridge of the regression: A begins at λI"),
    "delta": ("δ", "probability with which the guarantee may fail"),
    "alpha_scale": ("", "multiplies every confidence radius; below 1 the theorem is left"),
    "noise_scale": (
        "σ",
        "sub-Gaussian scale of the noise; told by the problem with the practical preset",
    ),
    "theta_bound": ("B", "bound on ‖θ‖"),
    "C": ("C", "a client syncs when det(A+ΔA)/det(A) > 1 + C"),
    "D": ("D", "all sync when (t − t_last) · ln det ratio > D for some client and layer"),
    "R": ("R", "bound on the noise"),
    "corruption": ("C_p", "what an adversary may add to rewards in all, in absolute value"),
    "corruption_scale": (
        "",
        "multiplies √d, the price of corruption in every radius; below 1 the theorem is left",
    ),
    "gamma": ("γ", "where the weighting begins to count an observation for less"),
    "rho": ("ρ", "the smallest noise level that the weighting believes"),
    "layer_zero": ("", 'radius of layer 0: "bernstein", the theorem\'s, or "square-root"'),
    "gamma_u": ("γ_U", "a client uploads when det(A)/det(A − ΔA) > γ_U"),
    "gamma_d": (
        "γ_D",
        "the server sends a client what it lacks when that raises det by more than γ_D",
    ),
    "radius": ("", '"theorem", or "self-normalised", OFUL\'s'),
    "shared": (
        "",
        "one θ for all arms (True), one for each (False), or as the problem has it (None)",
    ),
}

# Theorems 3 and 4, which depend on more than the sizes and so are no row of Table 1.
EXTENSIONS = {
    "variance": ("√(d Σσ_t²)", "d M² log² T"),
    "robust": ("√(d T) + d C_p", "d M² log d log T"),
}
ASSUMED = {"robust": "The adversary's budget is 50 here, as `fedsuplin run robust` has it."}

WHEN = {
    "async": """\
The plain algorithm, and the default: clients come and go as they like, each talks for itself, and a slow one holds up
nobody. Take it when arms change from pull to pull in ways that you do not control, and clients can't meet in rounds.

- C is the price of a message. From 0.01 to 1 regret hardly changes and communication falls to a tenth
  ([presets](../presets.md)).
- Lazy: a client decides from its last download, so what it gathers is of use to it only after its next sync.
- On random contexts one layer of optimism, [`fedlinucb`](fedlinucb.md), has a fraction of its regret. Where the layers pay,
  and where not, is measured in [Comparison with the baselines](../baselines.md).""",
    "sync": """\
For clients that play in rounds anyway and can wait for each other. It decides from all that a client knows (eager), so at
the same arrivals its regret is lower than `async`'s, at the paper's setting at least: 115 ± 1 against 130.2 ± 0.9. Its
communication, counted as M for each layer that is synced, does not grow with T in theory and hardly does in practice.

- The horizon must be a multiple of the number of clients.
- It is ahead of `async` where much is said, and behind where little is: +26 % regret at 420 communications, −5 % at 21,172
  ([the paper's claims](../reproduction.md)).
- Live, a client that does not come within the deadline is left out of the round
  ([federation](../federation.md#who-comes-and-goes)).""",
    "variance": """\
When each pull comes with its noise level σ_t (a sensor's error, the size of a sample) and these differ much. Quiet
observations count for more. Its regret falls with Σσ_t², where `async`, which is told only the bound R, stays where it is:
594 ± 5 against 4,270 ± 18 with σ_t spread over [0, 1].

- `async` that is told the root mean square of σ_t as `noise_scale` is ahead of it at small Σσ_t² (30.0 against 266) and
  behind at large (1,600 against 594).
- There are log₂(RT) layers, about 16 here, so a pull looks at more of them; see [what a round costs](../benchmarks.md).
- The theorem's radius of layer 0 is in the thousands. The practical preset takes √λB + √(d ln(2M²T/δ)) in its place, and
  says that the guarantee is left.""",
    "robust": """\
When somebody may tamper with rewards, by at most C_p in all, and you can name a C_p. An adversary that comes early makes
`async` worse than uniform play (22,226 at C_p = 100, where uniform has about 14,700); `robust` has 1,297.

- The price is its readiness: attacked or not, its regret grows with the C_p that it was told. Give it the C_p that you
  fear, not the largest that you can think of.
- Corruption that is only more noise, spread over all arms at random, is better met by `async`.
- With C_p = 0 it is `async` with other presets. [Presets](../presets.md#robust-and-its-adversaries) has the measurements.""",
    "fedlinucb": """\
One layer of optimism that talks. On random contexts, and on nearly all problems of [presets](../presets.md), it has less
regret than the layers, with fewer messages: 1.62 ± 0.03 a client against 6.39 ± 0.06 of `async` at the paper's setting.
Begin with it if your contexts vary by themselves.

- `radius="self-normalised"`, the practical preset's, does far better than the theorem's, which its proof needs.
- Its bound is √d worse than the layers'. At the theorems' radii the layers win on sequences made against optimism, for
  large d.""",
    "async-linucb": """\
Like [`fedlinucb`](fedlinucb.md), but eager, and the server pushes: a client may be sent news without asking, so that one
that plays rarely is kept informed. Regret like `fedlinucb`'s or lower, for more messages: 2,311 against 2,080 at the
theorems' constants in [where FedSupLinUCB loses](../baselines.md#where-fedsuplinucb-loses), and several times as many with
the presets, as in the example below. It needs a server that can reach its clients, so it is a simulation here: `fedsuplin
serve` has no push.""",
    "dislinucb": """\
One layer of optimism in rounds: the one-layer counterpart of [`sync`](sync.md), and the fewest messages of all that talk
(40 in the table of [where FedSupLinUCB loses](../baselines.md#where-fedsuplinucb-loses), against 2,080 of `fedlinucb`), at
about three times the regret of those there. Take it where rounds come by themselves and messages are dear.""",
    "fed-pe": """\
For arms that never change, and clients that each have their own features of them. Clients pull in phases by a design that
the server works out for all of them together, talk at the ends of phases only (their number grows like log T), and drop
arms for good. The only policy that can have a θ for each arm.

- It refuses problems whose arms change: `fsl.FixedArmsProblem` is one that it plays.
- Within a phase nothing is learnt: it is played to its end as it was planned. The first has K·d pulls of each client,
  whatever the noise, so that at low noise and short horizons `pe` alone can be ahead, as in the example below.""",
    "oful": """\
Each client alone, one layer of optimism. What talking has to beat: at the paper's setting `oful` has 11.6 ± 0.1 a client,
`fedlinucb` 1.62 ± 0.03. Take it for one player, or as the line without communication in a comparison of one-layer policies.""",
    "suplinucb": """\
Each client alone, the layered screening, with one player and T // M pulls in its formulas: the line "no communication" of
the paper's second experiment. Take it as the baseline of [`async`](async.md) and [`sync`](sync.md). Where layers pay for a
single player, and where [`oful`](oful.md) is ahead, is measured in [Comparison with the
baselines](../baselines.md#one-player).""",
    "pe": """\
For arms that never change, each client alone. In phase ℓ every arm that is left is known to 2^-ℓ, by the fewest pulls that
a G-optimal design allows, and the theory has √(dT log T) without a single confidence radius in the loop. It refuses
problems whose arms change. With other clients to talk to, [`fed-pe`](fed-pe.md).""",
    "greedy": """\
`oful` with alpha_scale 0: always the arm with the largest estimate. No guarantee, and on random contexts hard to beat, as
they explore for free. Run it beside whatever you propose: a problem on which greedy wins says little about exploration.""",
    "uniform": """\
The floor. Every run reports the regret of uniform play on the same rounds beside its own (`result.uniform_regret`); as a
policy it is here so that it can be compared and plotted like any other. It has no use for its parameters.""",
}

SYNTHETIC = "fsl.SyntheticProblem(dim=10, n_arms=10, n_clients=8, noise_scale=0.1, seed=0)"
FIXED = "fsl.FixedArmsProblem(dim=5, n_arms=20, n_clients=8, noise_scale=0.1, seed=0)"
BOUNDED = 'fsl.SyntheticProblem(dim=10, n_arms=10, n_clients=8, noise="bounded", R=1.0, seed=0)'
CORRUPTED = 'fsl.SyntheticProblem(dim=10, n_arms=10, n_clients=8, noise="corrupted", noise_scale=0.1, corruption=50, seed=0)'
PROBLEMS = {"pe": FIXED, "fed-pe": FIXED, "variance": BOUNDED, "robust": CORRUPTED}
BESIDE = {
    "async": "suplinucb",
    "sync": "async",
    "variance": "async",
    "robust": "async",
    "fedlinucb": "oful",
    "async-linucb": "fedlinucb",
    "dislinucb": "oful",
    "fed-pe": "pe",
    "oful": "uniform",
    "suplinucb": "oful",
    "pe": "uniform",
    "greedy": "oful",
    "uniform": "greedy",
}


# --- what the code says -------------------------------------------------------------------------------------------------------


def algorithms(name: str) -> dict[str, Algorithm]:
    """By preset, as `fedsuplin variants NAME` has them: at the paper's setting."""
    given = read_build_defaults()
    return {
        preset: build_problem_and_algorithm(name, given | {"preset": preset})[1]
        for preset in PRESETS
    }


def value_of(algorithm: Algorithm, keyword: str) -> str:
    """What a parameter is in an algorithm."""
    holders = [algorithm.setting, *(getattr(algorithm, axis) for axis in AXES)]
    value = next(getattr(holder, keyword) for holder in holders if hasattr(holder, keyword))
    return f"`{value:.4g}`" if isinstance(value, float) else f"`{value!r}`"


def bounds(name: str, recipe: Variant) -> tuple[str, str] | None:
    """Regret and communication, as orders of growth."""
    if recipe.claim is None:
        return EXTENSIONS.get(name)
    talks = recipe.claim.communication
    return recipe.claim.regret.text, "none" if talks is None else talks.text


def words(part: Any) -> str:
    """The first paragraph of a part's documentation, on one line of a table."""
    return " ".join((type(part).__doc__ or "").partition("\n\n")[0].split()).replace("|", "\\|")


def printed(source: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, "an example", "exec"), {})
    return out.getvalue()


# --- pages --------------------------------------------------------------------------------------------------------------------


def page(name: str) -> str:
    recipe = compose_recipe(name, {})[1]
    made = algorithms(name)
    sections = [
        f"# `{name}`",
        sentence(recipe.summary),
        parts(recipe, made["theory"]),
        "## Bound",
        bound(name, recipe, made["theory"]),
        "## When to use it",
        WHEN[name],
        "## Parameters",
        "Keywords of `fsl.make`, `fsl.run` and `fsl.compare`; on the command line options, or `--set KEY=VALUE`. "
        "Values are those of the presets at the paper's setting (d = 25, K = 20, M = 20, T = 40 000, noise 0.1).",
        parameters(recipe, made),
        "## Example",
        example(name),
        "## Its numbers",
        f"At the paper's setting, for both presets. {ASSUMED.get(name, '')}".strip(),
        f"```bash\nfedsuplin variants {name}\n```",
        "```text\n"
        + "\n\n".join(fold_lines(str(algorithm), WIDTH) for algorithm in made.values())
        + "\n```",
    ]
    return "\n\n".join(sections) + "\n"


def sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def parts(recipe: Variant, made: Algorithm) -> str:
    rows = {
        "decides by": words(made.policy),
        "decides from": "its last download alone (lazy)"
        if recipe.lazy
        else "all that it knows (eager)",
        "talks when": words(made.trigger)
        if made.kernel != "phased" or recipe.syncs != "all"
        else "at the end of a phase",
        "who syncs": "nobody"
        if recipe.trigger == "never" and recipe.syncs != "all"
        else SYNCS[recipe.syncs],
        "assumes": words(made.noise),
        "weights": words(made.weighting),
    }
    if made.kernel == "phased" and recipe.syncs == "all":
        rows["who syncs"] = "all clients"
    return "| | |\n|---|---|\n" + "\n".join(f"| {what} | {told} |" for what, told in rows.items())


def bound(name: str, recipe: Variant, theory: Algorithm) -> str:
    found = bounds(name, recipe)
    if found is None:
        return "None: the paper's Table 1 has no row for it, and no theorem covers it."
    told = f"| regret | communication |\n|---|---|\n| {found[0]} | {found[1]} |\n\n"
    source = f"{recipe.theorem} of the paper" if recipe.theorem else "A row of the paper's Table 1"
    if recipe.claim is None:
        return told + f"{source}, up to logarithms in the regret and constants in both."
    actions = {
        "infinite": "any arms",
        "fixed": "finitely many arms that do not change",
        "adversarial": "finitely many arms, chosen by anybody",
    }
    told += f"{source}, for {actions[recipe.claim.actions]} ({recipe.claim.system}). Orders of growth, up to constants"
    setting = theory.setting
    values = f"{recipe.claim.regret(setting):,.0f}"
    if recipe.claim.communication is not None:
        values += f" and {recipe.claim.communication(setting):,.0f}"
    return f"{told}: with the constant 1 and natural logarithms, at the paper's setting, {values}."


def parameters(recipe: Variant, made: dict[str, Algorithm]) -> str:
    takes = list_keywords(recipe)
    rows = ["| keyword | symbol | what it is | theory | practical |", "|---|---|---|---|---|"]
    for keyword in sorted(takes, key=list(PARAMETERS).index):
        symbol, meaning = PARAMETERS[keyword]
        values = (value_of(made[preset], keyword) for preset in ("theory", "practical"))
        rows.append(f"| `{keyword}` | {symbol} | {meaning} | {' | '.join(values)} |")
    return "\n".join(rows)


def example(name: str) -> str:
    source = f"""\
import fedsuplin as fsl

problem = {PROBLEMS.get(name, SYNTHETIC)}
for policy in ("{name}", "{BESIDE[name]}"):
    result = fsl.run(policy, problem, horizon=20_000)
    regret, uniform = result.regret[-1], result.uniform_regret[-1]
    print(f"{{policy}}: regret {{regret:.0f}} of {{uniform:.0f}}, communication {{result.communication[-1]}}")
"""
    return f"```python\n{source}```\n\n```text\n{printed(source)}```"


def index() -> str:
    head = """\
# The policies

A policy is a composition of parts under a name: how an arm is chosen, when to talk and who does, what is assumed of the
noise, how much an observation counts. Four are the paper's, the others are what it compares them with, on the same engine.
Each page has the bound, the parameters with both presets' values, when to use it, and an example. These pages are made from
the code by `python docs/tools/policies.py`; bounds are orders of growth.

Names compose (`"sync+robust"`), and every part can be replaced: [writing a plugin](../plugins.md).
"""
    rows = ["| policy | what it is | regret | communication |", "|---|---|---|---|"]
    for name in ORDER:
        recipe = compose_recipe(name, {})[1]
        regret, talks = bounds(name, recipe) or ("no bound", "none")
        rows.append(f"| [`{name}`]({name}.md) | {recipe.summary} | {regret} | {talks} |")
    trees = (
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in NAVIGATION.items()
    )
    return f"{head}\n" + "\n".join(rows) + "\n\n" + CHOOSING + "".join(trees)


CHOOSING = """\
## Which one

| your situation | begin with |
|---|---|
| contexts vary by themselves (random users, random items) | [`fedlinucb`](fedlinucb.md) |
| arms chosen by somebody else, large d, a guarantee matters | [`async`](async.md) |
| clients play in rounds | [`sync`](sync.md), or [`dislinucb`](dislinucb.md) for the fewest messages |
| the noise level of each pull is known | [`variance`](variance.md) |
| rewards may be tampered with | [`robust`](robust.md) |
| the arms never change | [`fed-pe`](fed-pe.md), alone [`pe`](pe.md) |
| something to compare with | [`oful`](oful.md), [`suplinucb`](suplinucb.md), [`greedy`](greedy.md), [`uniform`](uniform.md) |
"""


def pages() -> dict[str, str]:
    """By file name. Every variant that fedsuplin itself registers has one."""
    ours = {
        name
        for source in plugins.sources()
        if source.package == "fedsuplin"
        for kind, name in source.registered
        if kind == "variants"
    }
    if ours != set(ORDER):
        raise SystemExit(f"ORDER, WHEN and BESIDE in {__file__} lack {sorted(ours ^ set(ORDER))}")
    return {"index.md": index()} | {f"{name}.md": page(name) for name in ORDER}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text, encoding="utf-8")
        print(f"wrote {folder / file}")
