"""`fedsuplin tokens`: make the tokens of a federation's clients."""

from __future__ import annotations

from pathlib import Path

import click

from .._shared.terminal import print_json
from ..errors import InvalidInput
from ..federation.credentials import make_tokens, write_token, write_token_hashes
from .manuals import TOKENS
from .options import FILE_PATH, JSON_OPTION, output_option
from .sections import SectionedCommand, add_options, make_option_factory


@click.command(
    "tokens",
    cls=SectionedCommand,
    manual=TOKENS,
)
@click.argument("file", type=FILE_PATH)
@add_options(
    [
        make_option_factory("For whom")(
            "--clients",
            type=click.IntRange(1, 1_000_000),
            required=True,
            metavar="M",
            help="Number of clients; their ids are 0 to M - 1.",
        ),
        output_option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="FOLDER",
            help="Write one file per client into this folder, readable by you alone. "
            "[default: the tokens are printed]",
        ),
        output_option(
            "--replace",
            is_flag=True,
            help="Replace the tokens in FILE, which are void from then on.",
        ),
        *JSON_OPTION,
    ]
)
def tokens_command(
    file: Path, clients: int, out: Path | None, replace: bool, as_json: bool
) -> None:
    """Make a token for each client.

    FILE gets the hashes of the tokens, which is all that a server needs. The tokens themselves
    are printed, one line per client, or written to --out. They are stored nowhere else: keep
    them.
    """
    if file.exists() and not replace:
        raise InvalidInput(
            f"{file} already exists, and new tokens would void those in it: "
            "give another name, or --replace"
        )
    tokens = make_tokens(range(clients))
    paths = {} if out is None else write_token_files(out, tokens, replace)
    write_token_hashes(file, tokens)
    if as_json:
        print_json({"file": file, "tokens": None if paths else tokens, "files": paths})
        return
    if out is not None:
        click.echo(f"wrote {file} and {clients} tokens to {out}")
        return
    for client_id, token in tokens.items():
        click.echo(f"{client_id} {token}")


def write_token_files(out: Path, tokens: dict[int, str], replace: bool) -> dict[int, Path]:
    """Write a token file for each client, as `fedsuplin tokens` does; return their paths."""
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = {client_id: out / f"client-{client_id}.token" for client_id in tokens}
    for path in paths.values():
        if replace:
            path.unlink(missing_ok=True)
        elif path.exists():
            raise InvalidInput(f"{path} already exists: give another folder, or --replace")
    for client_id, token in tokens.items():
        write_token(paths[client_id], token)
    return paths
