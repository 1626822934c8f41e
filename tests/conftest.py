"""For every test: signals as a terminal has them, and the environment as it was found."""

import os
import signal
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """A background job of a shell inherits an ignored Ctrl-C; tests that send it need it back."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Commands called in this process quieten libraries by the environment; the next test must not see that."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
