"""Prefect's server application for this machine: it answers to the loopback names only.

Prefect itself answers to any Host header and takes events over a websocket from any page.
"""

from __future__ import annotations

from lexmill.base.allowed_hosts import LOOPBACK, AllowedHosts, App


def create_app() -> App:
    """Return the application, as `prefect server start` makes it."""
    from prefect.server.api.server import create_app as prefect_application

    return AllowedHosts(prefect_application(final=True), LOOPBACK)
