"""For every test: signals as a terminal has them."""

import signal


def pytest_configure() -> None:
    """A background job of a shell inherits an ignored Ctrl-C; tests that send it need it back."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
