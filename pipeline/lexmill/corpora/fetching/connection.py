"""HTTP as pip would do it: pip's proxy, certificates, credentials, timeout and retries, for every kind of source.

Settings come from `pip config list` (pip's files and PIP_* variables), so a machine set up for pip is set up for
lexmill. Temporary failures (no connection, time-out, 408, 429, 5xx) are retried with a growing pause, and end in a
`RetryableError`.
"""

from __future__ import annotations

import ast
import logging
import os
import random
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers.sync import PyPIClient

from lexmill.base.addresses import filled, redact
from lexmill.base.budgets import MAX_ANSWER_BYTES, MIB
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.outside import parse_json

FIRST_PAUSE = 0.5  # seconds
LONGEST_PAUSE = 30.0  # seconds
_OF_THE_WIRE = ("content-encoding", "content-length", "transfer-encoding")  # of a body that is unpacked by now
_PASSING = {408, 425, 429, 500, 502, 503, 504}
BROKEN = (httpx2.TransportError, httpx2.InvalidURL, httpx2.TooManyRedirects)  # a request without an answer: `explain`


@dataclass(frozen=True)
class PipSettings:
    """Where and how to download, from pip's configuration."""

    index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float = 15.0
    retries: int = 5


def pip_settings() -> PipSettings:
    """Return the settings of `pip download`; raise `UserError` when pip cannot read its own files."""
    values: dict[str, str] = {}
    listed = _pip_config()
    for section in ("global", "download", ":env:"):  # pip's own order, the last one wins
        for key, value in listed.items():
            place, _, name = key.rpartition(".")
            if place == section and value.strip():
                values[name] = value
    index = [values.get("index-url", "").strip() or _default_index(), *values.get("extra-index-url", "").split()]
    if values.get("no-index", "").lower() in ("1", "true", "yes", "on", "y", "t"):
        index = []
    try:
        timeout = float(values.get("timeout", values.get("default-timeout", "15")))
        retries = int(values.get("retries", "5"))
    except ValueError as error:
        message = f"pip's configuration: timeout or retries is not a number ({error}); see `pip config list`"
        raise UserError(message) from None
    return PipSettings(
        index_urls=tuple(index),
        find_links=tuple(values.get("find-links", "").split()),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=values.get("cert"),
        client_cert=values.get("client-cert"),
        proxy=values.get("proxy"),
        timeout=timeout,
        retries=retries,
    )


def _pip_config() -> dict[str, str]:
    """`section.name` -> value, as `pip config list` prints it; only the PIP_* variables without pip."""
    if os.environ.get("PIP_CONFIG_FILE") == os.devnull:  # pip's way to say "no file"
        return _pip_variables()
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "config", "list"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode != 0:
        if "No module named pip" in done.stderr:
            return _pip_variables()
        last = (f"{done.stdout}\n{done.stderr}".strip().splitlines() or ["no message"])[-1]
        raise UserError(f"pip cannot read its configuration: {last}; `pip config debug` shows the files")
    values = {}
    for line in done.stdout.splitlines():
        key, sign, value = line.partition("=")
        if sign:
            values[key.strip()] = str(ast.literal_eval(value))
    return values


def _pip_variables() -> dict[str, str]:
    names = [name for name in os.environ if name.startswith("PIP_")]
    return {f":env:.{name[4:].lower().replace('_', '-')}": os.environ[name] for name in names}


def _default_index() -> str:
    from unearth import PackageFinder

    return str(PackageFinder().sources[0]["url"])


class Attempts:
    """Counts failures of one request and pauses between them: 0.5, 1, 2, 4 ... seconds, plus up to a tenth."""

    def __init__(self, retries: int) -> None:
        self._retries, self._failures = retries, 0

    def progressed(self) -> None:
        """Start counting again: some bytes arrived."""
        self._failures = 0

    def failed(self, problem: str, retry_after: str | None = None) -> None:
        """Pause before the next try; raise `RetryableError` with `problem` after the last."""
        self._failures += 1
        if self._failures > self._retries:
            tries = f" ({self._failures} tries)" if self._failures > 1 else ""
            raise RetryableError(f"{problem}{tries}; run it again later")
        pause = FIRST_PAUSE * 2.0 ** (self._failures - 1) * (1 + random.random() / 10)
        if retry_after is not None and retry_after.isdigit():
            pause = max(pause, float(retry_after))
        time.sleep(min(pause, LONGEST_PAUSE))


class Client:
    """An HTTP client that retries, with the interface of an `unearth` fetcher; sends `headers` with each request."""

    def __init__(self, settings: PipSettings, headers: Mapping[str, str] | None = None) -> None:
        self.settings = settings
        self._headers = dict(headers or {})

    @cached_property
    def _http(self) -> PyPIClient:
        settings = self.settings
        names = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
        cert = settings.cert or next((os.environ[name] for name in names if os.environ.get(name)), None)
        context = _ssl_context(cert, settings.client_cert)
        hosts = settings.trusted_hosts if settings.proxy else ()
        mounts = {f"all://{host}": httpx2.HTTPTransport(verify=False, proxy=settings.proxy) for host in hosts}
        try:
            return PyPIClient(
                trusted_hosts=settings.trusted_hosts,
                verify=context,
                timeout=settings.timeout,
                proxy=settings.proxy,
                mounts=mounts,
                follow_redirects=True,
                headers=self._headers,
                auth=MultiDomainBasicAuth(prompting=False, index_urls=list(settings.index_urls)),
            )
        except (ValueError, httpx2.InvalidURL) as error:
            raise UserError(f"pip's proxy setting cannot be used: {error}; see `pip config list`") from None

    def attempts(self) -> Attempts:
        return Attempts(self.settings.retries)

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        """Fetch a small document; the caller checks for a permanent error status."""
        return self._request("GET", url, headers)

    def head(self, url: str, *, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        return self._request("HEAD", url, headers)

    def get_stream(
        self, url: str, *, headers: Mapping[str, str] | None = None
    ) -> AbstractContextManager[httpx2.Response]:
        """Fetch a large document, in one try; the caller retries."""
        return self._http.stream("GET", filled(url), headers=headers)

    def iter_secure_origins(self) -> Iterable[tuple[str, str, str]]:
        yield from self._http.iter_secure_origins()

    def close(self) -> None:
        if "_http" in self.__dict__:
            self._http.close()

    def _request(self, method: str, url: str, headers: Mapping[str, str] | None) -> httpx2.Response:
        attempts = self.attempts()
        while True:
            try:
                with self._http.stream(method, filled(url), headers=headers) as stream:
                    response = _whole(stream, url)
            except BROKEN as error:
                attempts.failed(explain(error, url, self.settings))
                continue
            if not passing(response.status_code):
                return response
            attempts.failed(status_text(url, response.status_code), response.headers.get("Retry-After"))


def _whole(stream: httpx2.Response, url: str) -> httpx2.Response:
    """Return a response with its whole body; raise `UserError` where that is no document's."""
    body = bytearray()
    for piece in stream.iter_bytes():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise UserError(
                f"{redact(url)} sends more than {MAX_ANSWER_BYTES // MIB} MiB, which no index has; is the registry's"
                " address right?"
            )
    headers = [(key, value) for key, value in stream.headers.multi_items() if key.lower() not in _OF_THE_WIRE]
    return httpx2.Response(stream.status_code, headers=headers, content=bytes(body), request=stream.request)


def passing(status: int) -> bool:
    """Whether an HTTP status is a temporary failure."""
    return status in _PASSING


def status_text(url: str, status: int) -> str:
    return f"{redact(url)} answered HTTP {status}"


def refused(url: str, status: int) -> UserError:
    """The error for a permanent HTTP status."""
    advice = {
        401: "it asks for a login; give one in pip's index-url, ~/.netrc or the keyring",
        403: "it refuses access; check the login, and the mirror's or proxy's rules",
        404: "there is no such file; correct the name, version or address",
        407: "the proxy asks for a login; give one in pip's `proxy` setting",
        410: "the file is gone; choose another version or address",
    }
    return UserError(f"{status_text(url, status)}: {advice.get(status, 'correct the address')}")


def explain(error: Exception, url: str, settings: PipSettings) -> str:
    """Describe a failed connection; raise `UserError` where no retry helps: an untrusted certificate, a bad address."""
    place, text = urlsplit(url).hostname or redact(url), " ".join(str(error).split())
    if "CERTIFICATE_VERIFY_FAILED" in text:
        raise UserError(
            f"the certificate of {place} is not trusted ({text.rpartition('] ')[2]}); give your organisation's"
            " certificates with `pip config set global.cert FILE`"
        ) from None
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL | httpx2.TooManyRedirects):
        raise UserError(f"{redact(url)} is not an address that can be fetched: {text}") from None
    if isinstance(error, httpx2.TimeoutException):
        return f"{place} did not answer within {settings.timeout:g} s"
    if isinstance(error, httpx2.ProxyError):
        return f"the proxy did not let us reach {place}: {text}"
    if isinstance(error, httpx2.ConnectError):
        return f"no connection to {place}: {text}; is the network there, is pip's proxy or index right?"
    return f"the connection to {place} broke: {text or type(error).__name__}"


@cache  # reading a bundle of certificates takes a tenth of a second
def _ssl_context(cert: str | None, client_cert: str | None) -> ssl.SSLContext:
    try:
        if cert is None:
            context = httpx2.create_ssl_context()
        elif Path(cert).is_dir():
            context = ssl.create_default_context(capath=cert)
        else:
            context = ssl.create_default_context(cafile=cert)
        if client_cert is not None:
            context.load_cert_chain(client_cert)
    except (OSError, ssl.SSLError) as error:
        message = f"pip's certificate setting (cert {cert}, client-cert {client_cert}) cannot be used: {error}"
        raise UserError(message) from None
    return context


def lines(text: str) -> Iterator[str]:
    """Lines without their end, split at '\\n' only."""
    for line in text.split("\n"):
        yield line.rstrip("\r")


def json_document(response: httpx2.Response, url: str) -> Any:
    """Return the JSON of a response; raise `UserError` for another status or invalid JSON."""
    if response.status_code != 200:
        raise refused(url, response.status_code)
    try:
        return parse_json(response.content)
    except UserError:
        raise UserError(f"{redact(url)} did not return JSON; is the registry's address right?") from None


@contextmanager
def heard(logger_name: str) -> Iterator[list[str]]:
    """Collect the warnings that a library would print, so that one error can report them."""
    notes: list[str] = []

    class _Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if "404" not in text:  # logged for each further index that lacks the package
                notes.append(text)

    logger, listener = logging.getLogger(logger_name), _Listener(logging.WARNING)
    before = logger.propagate, logger.disabled
    logger.addHandler(listener)
    # Libraries that configure logging from a file (alembic, under MLflow) switch off all existing loggers.
    logger.propagate = logger.disabled = False
    try:
        yield notes
    finally:
        logger.removeHandler(listener)
        logger.propagate, logger.disabled = before
