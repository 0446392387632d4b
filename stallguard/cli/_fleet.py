"""The option of verbs that work with the jobs of a fleet too."""

from __future__ import annotations

import click

in_fleet = click.option(
    "--store", "store_url", metavar="URL", help="The jobs of this store.  [that of the fleet file]"
)
