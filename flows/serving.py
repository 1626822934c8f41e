"""Serve the flow: a deployment with a schedule and an event, with runs as child processes."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.events import DeploymentEventTrigger, Event
from prefect.events.clients import get_events_client
from prefect.events.schemas.events import Resource
from prefect.runner import Runner
from prefect.schedules import Cron, Interval, Schedule
from prefect.server.schemas.schedules import CronSchedule
from prefect.types.entrypoint import EntrypointType

from flows.pipeline import pipeline
from lexmill.base.errors import Terminated, UserError
from lexmill.commands.schedule import Timetable

CHANGED = "lexmill.corpus.changed"
# Prefect starts a second copy of a late or overlapping run otherwise.
ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)


def deployment_name(root: Path) -> str:
    """Return a workspace's deployment name, distinct so that workspaces on a shared server do not mix."""
    place = hashlib.sha256(f"{socket.gethostname()}:{root}".encode()).hexdigest()[:6]
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', root.name)}-{place}"


def when(timetable: Timetable) -> Schedule:
    """Return the timetable as a Prefect schedule; raise `UserError` for a bad cron expression, or one of no date."""
    if timetable.cron is None:
        assert timetable.interval is not None
        return Interval(timedelta(seconds=timetable.interval))
    try:
        schedule = Cron(timetable.cron, timezone=timetable.timezone)
    except ValueError as error:
        raise UserError(f"--cron '{timetable.cron}': {error}") from None
    try:
        asyncio.run(CronSchedule(cron=timetable.cron, timezone=timetable.timezone).get_dates(1))
    except ValueError:
        raise UserError(f"--cron '{timetable.cron}': there is no such date; give a day that the month has") from None
    return schedule


def serve(schedule: Schedule, parameters: dict[str, Any], root: Path) -> None:
    """Start the flow on its schedule, and at each `lexmill.corpus.changed`, until a signal.

    Raises:
        Terminated: SIGTERM; what ran was ended in order.
        KeyboardInterrupt: Ctrl-C, as before.
    """
    runner = Runner(name="lexmill")
    runner.add_flow(
        pipeline,
        name=deployment_name(root),
        schedule=schedule,
        parameters=parameters,
        concurrency_limit=ONE_AT_A_TIME,
        triggers=[DeploymentEventTrigger(name=f"{CHANGED}: {deployment_name(root)}", expect={CHANGED})],
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    asyncio.run(runner.start())
    raise Terminated("terminated")


def tell_changed(corpus: str) -> None:
    """Send the event that starts the scheduled deployments."""
    asyncio.run(_send(Event(event=CHANGED, resource=Resource({"prefect.resource.id": f"lexmill.corpus.{corpus}"}))))


async def _send(event: Event) -> None:
    async with get_events_client() as client:
        await client.emit(event)
