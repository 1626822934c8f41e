"""What a machine set up for pip and npm is set up for: mirrors, proxies, certificates, logins."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lexmill.base.errors import RetryableError, UserError
from lexmill.corpora.fetching import connection
from lexmill.corpora.fetching.connection import Client, PipSettings, pip_settings, redact
from lexmill.corpora.fetching.npm import npm_config
from lexmill.params.corpora import PackageSource
from tests.support.fetching import bring, registries
from tests.support.package_index import PackageIndex, make_npm, make_sdist


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own and no setting of this machine."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().startswith("npm_config_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.001)
    return tmp_path


def test_pips_files_and_variables_are_read_as_pip_reads_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "pip.conf").write_text(
        "[global]\nindex-url = https://mirror.invalid/simple\nextra-index-url =\n    https://one.invalid/s\n"
        "    https://two.invalid/s\ntimeout = 7\ncert = /global.pem\nproxy = http://proxy.invalid:3128\n"
        "trusted-host = a.invalid b.invalid:8080\nretries = 2\n"
        "[download]\ncert = /download.pem\nfind-links = /links\nclient-cert = /me.pem\n[install]\ncert = /install.pem\n"
    )
    monkeypatch.setenv("PIP_TIMEOUT", "9")
    monkeypatch.setenv("PIP_FIND_LINKS", "/other /links")
    assert pip_settings() == PipSettings(
        index_urls=("https://mirror.invalid/simple", "https://one.invalid/s", "https://two.invalid/s"),
        find_links=("/other", "/links"),
        trusted_hosts=("a.invalid", "b.invalid:8080"),
        cert="/download.pem",
        client_cert="/me.pem",
        proxy="http://proxy.invalid:3128",
        timeout=9,
        retries=2,
    )


def test_without_settings_it_is_pips_own_index(home: Path) -> None:
    settings = pip_settings()
    assert len(settings.index_urls) == 1
    assert settings.index_urls[0].startswith("https://")
    assert (settings.timeout, settings.retries, settings.proxy) == (15, 5, None)


def test_no_index_and_errors_of_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    assert pip_settings().index_urls == ()
    monkeypatch.setenv("PIP_TIMEOUT", "soon")
    with pytest.raises(UserError, match="timeout"):
        pip_settings()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(UserError, match="not a number"):
        pip_settings()
    monkeypatch.setenv("PIP_CONFIG_FILE", str(home / "pip.conf"))
    monkeypatch.delenv("PIP_TIMEOUT")
    (home / "pip.conf").write_text("no section\n")
    with pytest.raises(UserError, match="pip cannot read its configuration"):
        pip_settings()


def test_a_bad_certificate_setting_is_reported(home: Path) -> None:
    with pytest.raises(UserError, match=r"cert /no\.pem.*cannot be used"):
        Client(PipSettings(cert="/no.pem")).get("https://127.0.0.1:1/")
    with pytest.raises(UserError, match="proxy setting cannot be used"):
        Client(PipSettings(proxy="gopher://x")).get("https://127.0.0.1:1/")


def test_addresses_in_messages_hold_no_secret() -> None:
    assert redact("https://me:hush@host:1/a/b?token=hush#hush") == "https://host:1/a/b"
    assert "hush" not in redact("http://me:hush@[bad/x")


class _Proxy(BaseHTTPRequestHandler):
    """A proxy that answers everything itself with a package's file."""

    seen: list[str]
    body: bytes

    def do_GET(self) -> None:
        self.seen.append(self.path)
        page = b'<a href="/p/plays-1.0.tar.gz">plays-1.0.tar.gz</a>'
        body = self.body if self.path.endswith(".gz") else page
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def test_pips_proxy_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_sdist(home / "made", "plays", "1.0", {"a.txt": b"a"})
    handler = type("Handler", (_Proxy,), {"seen": [], "body": made.path.read_bytes()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        monkeypatch.setenv("PIP_PROXY", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("PIP_INDEX_URL", "http://mirror.invalid/simple")
        monkeypatch.setenv("PIP_TRUSTED_HOST", "mirror.invalid")
        source = PackageSource("package", "pypi", "plays", "1.0", made.sha256, ("a.txt",), "sdist")
        assert bring(source, home) == {"a.txt": b"a"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert handler.seen == ["http://mirror.invalid/simple/plays/", "http://mirror.invalid/p/plays-1.0.tar.gz"]


def test_an_index_without_encryption_must_be_trusted_as_for_pip(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://mirror.invalid/simple")
    with pytest.raises(UserError, match=r"mirror\.invalid/simple/plays/ for not being trusted"):
        bring(PackageSource("package", "pypi", "plays", "1.0", "0" * 64, ("a.txt",), "sdist"), home)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key."""
    path = tmp_path / "own.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=loopback"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def test_private_certificates_are_believed_when_pip_believes_them(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registries(tmp_path, monkeypatch) as index:
        made = make_sdist(index.folder, "plays", "1.0", {"a.txt": b"a"})
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        index.wrap(context)
        for name, value in index.environment().items():
            monkeypatch.setenv(name, value)
        assert index.address.startswith("https://")
        source = PackageSource("package", "pypi", "plays", "1.0", made.sha256, ("a.txt",), "sdist")
        monkeypatch.delenv("PIP_CERT", raising=False)
        with pytest.raises(
            UserError, match=r"certificate of 127\.0\.0\.1 is not trusted .*pip config set global\.cert"
        ):
            bring(source, tmp_path)
        monkeypatch.setenv("PIP_CERT", f"{certificate}.crt")
        assert bring(source, tmp_path) == {"a.txt": b"a"}


# ---------------------------------------------------------------- npm


def test_npms_files_and_variables(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = home / "w"
    workspace.mkdir()
    monkeypatch.setenv("NPM_TOKEN", "hush")
    (home / ".npmrc").write_text(
        "# a comment\nregistry=https://user.invalid/\n//user.invalid/:_authToken=${NPM_TOKEN}\n"
    )
    (workspace / ".npmrc").write_text('registry = "https://project.invalid/"\n@x:registry=https://x.invalid\n')
    config = npm_config(workspace)
    assert config["registry"] == "https://project.invalid/"
    assert config["@x:registry"] == "https://x.invalid"
    assert config["//user.invalid/:_authToken"] == "hush"
    monkeypatch.setenv("npm_config_registry", "https://environment.invalid/")
    assert npm_config(workspace)["registry"] == "https://environment.invalid/"


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageSource:
    made = make_npm(tmp_path / "registry", "plays", "1.0", {"a.txt": b"a"})
    return PackageSource("package", "npm", "plays", "1.0", made.sha256, ("a.txt",), "tarball")


def test_the_login_goes_to_its_registry_alone(
    home: Path, tmp_path: Path, npm: PackageSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with PackageIndex(tmp_path / "registry") as registry, PackageIndex(tmp_path / "registry") as other:
        place = f"{registry.address.removeprefix('http:')}/npm"
        (home / ".npmrc").write_text(f"registry={registry.address}/npm/\n{place}/:_authToken=hush\n")
        registry.npm_files = other.address  # the document names another host's tarball
        assert bring(npm, tmp_path) == {"a.txt": b"a"}
        assert [headers.get("Authorization") for _, headers in registry.requests] == ["Bearer hush"] * 2
        assert [headers.get("Authorization") for _, headers in other.requests] == [None]


def test_without_npm_and_without_a_registry_the_error_says_what_to_set(
    home: Path, npm: PackageSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(UserError, match="set npm_config_registry"):
        bring(npm, home)


def test_npm_is_asked_where_it_is_there(home: Path, npm: PackageSource, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "bin" / "npm"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$1 $2 $3" = "config get registry" ] && echo http://127.0.0.1:1/\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(RetryableError, match=r"no connection to 127\.0\.0\.1"):
        bring(npm, home)
