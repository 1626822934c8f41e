"""The pipeline as a Prefect flow."""

import lexmill  # noqa: F401  # before any library: it puts the present folder behind the installed packages
