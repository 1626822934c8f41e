"""Options that several commands of the command line share."""

from __future__ import annotations

from typing import Annotated

import typer

Targets = Annotated[list[str] | None, typer.Argument(metavar="[STAGE]...", help="Stages or groups; default all.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, max=64, help="Light stages side by side.")]
