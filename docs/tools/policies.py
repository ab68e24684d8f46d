"""Write docs/policies/, one page per registered variant: `python docs/tools/policies.py`.

Bounds, parameters, parts and numbers come from the code. This file has only the meaning of each
parameter, the advice on when to use a policy, and its example. A variant or a parameter that lacks
one is an error, and a test compares pages and code.
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
        "sub-Gaussian scale of the noise; taken from the problem with the practical preset",
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
The plain algorithm, and the default. Clients come and go as they like, each syncs by itself,
and a slow one does not hold up the others. Use it when arms change from pull to pull in ways
that you do not control, and clients can't meet in rounds.

- C is the price of a message. From 0.01 to 1 regret hardly changes and communication falls to
  a tenth ([presets](../presets.md)).
- It is lazy: a client decides from its last download, so what it gathers helps it only after
  its next sync.
- On random contexts one layer of optimism, [`fedlinucb`](fedlinucb.md), has a fraction of its
  regret. Where the layers pay, and where not, is measured in [Comparison with the
  baselines](../baselines.md).""",
    "sync": """\
For clients that play in rounds anyway and can wait for each other. It decides from all data
that a client has (eager). So at the same arrivals its regret is lower than `async`'s, at least
at the paper's setting: 115 ± 1 against 130.2 ± 0.9. Its communication, counted as M for each
layer that is synced, does not grow with T in theory and hardly does in practice.

- The horizon must be a multiple of the number of clients.
- It is ahead of `async` where clients talk much, and behind where they talk little: +26 %
  regret at 420 communications, −5 % at 21,172 ([the paper's claims](../reproduction.md)).
- Live, a client that does not come within the deadline is left out of the round
  ([federation](../federation.md#who-comes-and-goes)).""",
    "variance": """\
When each pull comes with its noise level σ_t (a sensor's error, the size of a sample) and
these differ much. Quiet observations count for more. Its regret falls with Σσ_t², while that
of `async`, which knows only the bound R, does not: 594 ± 5 against 4,270 ± 18 with σ_t spread
over [0, 1].

- `async` that gets the root mean square of σ_t as `noise_scale` is ahead of it at small Σσ_t²
  (30.0 against 266) and behind at large (1,600 against 594).
- There are log₂(RT) layers, about 16 here, so a pull looks at more of them; see [what a round
  costs](../benchmarks.md).
- The theorem's radius of layer 0 is in the thousands. The practical preset takes √λB + √(d
  ln(2M²T/δ)) in its place, and reports that the guarantee is left.""",
    "robust": """\
When an adversary may tamper with rewards, by at most C_p in all, and you can name a C_p. An
adversary that comes early makes `async` worse than uniform play (22,226 at C_p = 100, where
uniform has about 14,700); `robust` has 1,297.

- It pays for being prepared: attacked or not, its regret grows with the C_p that it is given.
  Give it the C_p that you expect, not the largest that you can think of.
- Against corruption that is only more noise, spread over all arms at random, `async` is
  better.
- With C_p = 0 it is `async` with other presets.
  [Presets](../presets.md#robust-and-its-adversaries) has the measurements.""",
    "fedlinucb": """\
One layer of optimism that talks. On random contexts, and on nearly all problems of
[presets](../presets.md), it has less regret than the layers, with fewer messages: 1.62 ± 0.03
per client against 6.39 ± 0.06 of `async` at the paper's setting. Begin with it if your
contexts vary by themselves.

- `radius="self-normalised"`, the practical preset's, does far better than the theorem's, which
  its proof needs.
- Its bound is √d worse than the layers'. At the theorems' radii the layers win on sequences
  made against optimism, for large d.""",
    "async-linucb": """\
Like [`fedlinucb`](fedlinucb.md), but eager, and the server pushes: it may send news to a
client that did not ask, so that a client that plays rarely is kept informed. Regret like
`fedlinucb`'s or lower, for more messages: 2,311 against 2,080 at the theorems' constants in
[where FedSupLinUCB loses](../baselines.md#where-fedsuplinucb-loses), and several times as many
with the presets, as in the example below. It needs a server that can reach its clients, so it
is a simulation here: `fedsuplin serve` has no push.""",
    "dislinucb": """\
One layer of optimism in rounds: the one-layer counterpart of [`sync`](sync.md), and the fewest
messages of all that talk (40 in the table of [where FedSupLinUCB
loses](../baselines.md#where-fedsuplinucb-loses), against 2,080 of `fedlinucb`), at about three
times the regret of those there. Use it where clients play in rounds anyway and messages are
expensive.""",
    "fed-pe": """\
For arms that never change, and clients that each have their own features of them. Clients pull
in phases by a design that the server works out for all of them together, talk at the ends of
phases only (their number grows like log T), and drop arms for good. It is the only policy that
can have one θ per arm.

- It refuses problems whose arms change; it plays `fsl.FixedArmsProblem`.
- Within a phase it learns nothing, and plays the phase as it was planned. Phase p has about 2^p
  pulls of each client, and at least one of each arm in its design.""",
    "oful": """\
Each client alone, one layer of optimism. It shows what communication gains: at the paper's
setting `oful` has 11.6 ± 0.1 per client, `fedlinucb` 1.62 ± 0.03. Use it for one player, or as
the line without communication in a comparison of one-layer policies.""",
    "suplinucb": """\
Each client alone, the layered screening, with one player and T // M pulls in its formulas: the
line "no communication" of the paper's second experiment. Use it as the baseline of
[`async`](async.md) and [`sync`](sync.md). Where layers pay for a single player, and where
[`oful`](oful.md) is ahead, is measured in [Comparison with the
baselines](../baselines.md#one-player).""",
    "pe": """\
For arms that never change, each client alone. In phase ℓ every arm that is left is known to
2^-ℓ, by the fewest pulls that a G-optimal design allows, and the theory has √(dT log T)
without a single confidence radius in the loop. It refuses problems whose arms change. With
other clients to talk to, [`fed-pe`](fed-pe.md).""",
    "greedy": """\
`oful` with alpha_scale 0: always the arm with the largest estimate. No guarantee, and on
random contexts hard to beat, as they explore for free. Run it beside whatever you propose: a
problem on which greedy wins tells little about exploration.""",
    "uniform": """\
Any arm, at random. Every run reports the regret of uniform play on the same rounds beside its
own (`result.uniform_regret`). As a policy it can be compared and plotted like any other. Its
parameters change nothing.""",
}

SYNTHETIC = "fsl.SyntheticProblem(dim=10, n_arms=10, n_clients=8, noise_scale=0.1, seed=0)"
FIXED = "fsl.FixedArmsProblem(dim=5, n_arms=20, n_clients=8, noise_scale=0.1, seed=0)"
BOUNDED = 'fsl.SyntheticProblem(dim=10, n_arms=10, n_clients=8, noise="bounded", R=1.0, seed=0)'
CORRUPTED = """fsl.SyntheticProblem(
    dim=10, n_arms=10, n_clients=8, noise="corrupted", noise_scale=0.1, corruption=50, seed=0
)"""
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


# --- what the code says ---------------------------------------------------------------------------


def make_algorithms(name: str) -> dict[str, Algorithm]:
    """Make the algorithm of each preset at the paper's setting, as `fedsuplin variants` does."""
    given = read_build_defaults()
    return {
        preset: build_problem_and_algorithm(name, given | {"preset": preset})[1]
        for preset in PRESETS
    }


def format_value(algorithm: Algorithm, keyword: str) -> str:
    """Return the value of a parameter in an algorithm, as code."""
    holders = [algorithm.setting, *(getattr(algorithm, axis) for axis in AXES)]
    value = next(getattr(holder, keyword) for holder in holders if hasattr(holder, keyword))
    return f"`{value:.4g}`" if isinstance(value, float) else f"`{value!r}`"


def find_bounds(name: str, recipe: Variant) -> tuple[str, str] | None:
    """Return the bounds on regret and communication, as orders of growth."""
    if recipe.claim is None:
        return EXTENSIONS.get(name)
    talks = recipe.claim.communication
    return recipe.claim.regret.text, "none" if talks is None else talks.text


def describe_part(part: Any) -> str:
    """Return the first paragraph of a part's documentation, on one line of a table."""
    return " ".join((type(part).__doc__ or "").partition("\n\n")[0].split()).replace("|", "\\|")


def run_example(source: str) -> str:
    """Run an example and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, "an example", "exec"), {})
    return out.getvalue()


# --- pages ----------------------------------------------------------------------------------------


def format_page(name: str) -> str:
    """Return the page of a variant."""
    recipe = compose_recipe(name, {})[1]
    made = make_algorithms(name)
    sections = [
        f"# `{name}`",
        make_sentence(recipe.summary),
        format_parts(recipe, made["theory"]),
        "## Bound",
        format_bound(name, recipe, made["theory"]),
        "## When to use it",
        WHEN[name],
        "## Parameters",
        "Keywords of `fsl.make`, `fsl.run` and `fsl.compare`; on the command line options, or "
        "`--set KEY=VALUE`. Values are those of the presets at the paper's setting (d = 25, "
        "K = 20, M = 20, T = 40 000, noise 0.1).",
        format_parameters(recipe, made),
        "## Example",
        format_example(name),
        "## Its numbers",
        f"At the paper's setting, for both presets. {ASSUMED.get(name, '')}".strip(),
        f"```bash\nfedsuplin variants {name}\n```",
        "```text\n"
        + "\n\n".join(fold_lines(str(algorithm), WIDTH) for algorithm in made.values())
        + "\n```",
    ]
    return "\n\n".join(sections) + "\n"


def make_sentence(text: str) -> str:
    """Return a summary as a sentence."""
    return text[0].upper() + text[1:] + "."


def format_parts(recipe: Variant, made: Algorithm) -> str:
    """Return the table of a variant's parts."""
    rows = {
        "decides by": describe_part(made.policy),
        "decides from": "its last download alone (lazy)"
        if recipe.lazy
        else "all data that it has (eager)",
        "talks when": describe_part(made.trigger)
        if made.kernel != "phased" or recipe.syncs != "all"
        else "at the end of a phase",
        "who syncs": "no client"
        if recipe.trigger == "never" and recipe.syncs != "all"
        else SYNCS[recipe.syncs],
        "assumes": describe_part(made.noise),
        "weights": describe_part(made.weighting),
    }
    if made.kernel == "phased" and recipe.syncs == "all":
        rows["who syncs"] = "all clients"
    return "| | |\n|---|---|\n" + "\n".join(f"| {what} | {text} |" for what, text in rows.items())


def format_bound(name: str, recipe: Variant, theory: Algorithm) -> str:
    """Return the section on a variant's bound."""
    found = find_bounds(name, recipe)
    if found is None:
        return "None: the paper's Table 1 has no row for it, and no theorem covers it."
    text = f"| regret | communication |\n|---|---|\n| {found[0]} | {found[1]} |\n\n"
    source = f"{recipe.theorem} of the paper" if recipe.theorem else "A row of the paper's Table 1"
    if recipe.claim is None:
        return text + f"{source}, up to logarithms in the regret and constants in both."
    actions = {
        "infinite": "any arms",
        "fixed": "finitely many arms that do not change",
        "adversarial": "finite, adversarially chosen arm sets",
    }
    text += f"{source}, for {actions[recipe.claim.actions]} ({recipe.claim.system}). "
    text += "Orders of growth, up to constants"
    setting = theory.setting
    values = f"{recipe.claim.regret(setting):,.0f}"
    if recipe.claim.communication is not None:
        values += f" and {recipe.claim.communication(setting):,.0f}"
    return f"{text}: with the constant 1 and natural logarithms, at the paper's setting, {values}."


def format_parameters(recipe: Variant, made: dict[str, Algorithm]) -> str:
    """Return the table of a variant's parameters."""
    takes = list_keywords(recipe)
    rows = ["| keyword | symbol | what it is | theory | practical |", "|---|---|---|---|---|"]
    for keyword in sorted(takes, key=list(PARAMETERS).index):
        symbol, meaning = PARAMETERS[keyword]
        values = (format_value(made[preset], keyword) for preset in ("theory", "practical"))
        rows.append(f"| `{keyword}` | {symbol} | {meaning} | {' | '.join(values)} |")
    return "\n".join(rows)


def format_example(name: str) -> str:
    """Return the example of a variant, and what it prints."""
    source = f"""\
import fedsuplin as fsl

problem = {PROBLEMS.get(name, SYNTHETIC)}
for policy in ("{name}", "{BESIDE[name]}"):
    result = fsl.run(policy, problem, horizon=20_000)
    regret = f"regret {{result.regret[-1]:.0f}} of {{result.uniform_regret[-1]:.0f}}"
    print(f"{{policy}}: {{regret}}, communication {{result.communication[-1]}}")
"""
    return f"```python\n{source}```\n\n```text\n{run_example(source)}```"


def format_index() -> str:
    """Return the page that lists all policies."""
    head = """\
# The policies

A policy is a composition of parts under a name: how an arm is chosen, when clients talk and
which of them, what is assumed of the noise, and how much an observation counts. Four are the
paper's; the others are those that it compares with, on the same engine. Each page has the
bound, the parameters with both presets' values, when to use it, and an example. These pages
are made from the code by `python docs/tools/policies.py`; bounds are orders of growth.

Names compose (`"sync+robust"`), and every part can be replaced: [writing a
plugin](../plugins.md).
"""
    rows = ["| policy | what it is | regret | communication |", "|---|---|---|---|"]
    for name in ORDER:
        recipe = compose_recipe(name, {})[1]
        regret, talks = find_bounds(name, recipe) or ("no bound", "none")
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
| adversarially chosen arms, large d, a guarantee matters | [`async`](async.md) |
| clients play in rounds | [`sync`](sync.md), or [`dislinucb`](dislinucb.md) for few messages |
| the noise level of each pull is known | [`variance`](variance.md) |
| rewards may be tampered with | [`robust`](robust.md) |
| the arms never change | [`fed-pe`](fed-pe.md), alone [`pe`](pe.md) |
| something to compare with | [`oful`](oful.md), [`suplinucb`](suplinucb.md), \
[`greedy`](greedy.md), [`uniform`](uniform.md) |
"""


def make_pages() -> dict[str, str]:
    """Return all pages by file name: the index, and one per variant that fedsuplin registers."""
    ours = {
        name
        for source in plugins.sources()
        if source.package == "fedsuplin"
        for kind, name in source.registered
        if kind == "variants"
    }
    if ours != set(ORDER):
        raise SystemExit(f"ORDER, WHEN and BESIDE in {__file__} lack {sorted(ours ^ set(ORDER))}")
    return {"index.md": format_index()} | {f"{name}.md": format_page(name) for name in ORDER}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in make_pages().items():
        (folder / file).write_text(text, encoding="utf-8")
        print(f"wrote {folder / file}")
