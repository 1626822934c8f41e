"""Registries on loopback, from one folder: a PyPI simple index, an npm registry, a flat Debian repository, plain files.

    made = make_sdist(folder, "plays", "1.0", {"plays/one.txt": b"..."})
    with PackageIndex(folder) as index:
        subprocess.run([...], env={**os.environ, **index.environment()})

Every file of the folder is served under /files/; sdists (.tar.gz) and wheels also as a simple index under /simple/, npm
tarballs (.tgz) under /npm/, Debian packages (.deb) under /debian/. Range requests work. A test may plan errors.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import lzma
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote


class Made(NamedTuple):
    """A made package file."""

    path: Path
    sha256: str


class Error(NamedTuple):
    """What one request gets instead of its answer: another status, or the first bytes and a broken connection."""

    status: int = 200
    cut_after: int | None = None
    ignore_range: bool = False
    retry_after: str | None = None


# ---------------------------------------------------------------- made packages


def tar_bytes(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    """An uncompressed tar; `links` maps names to where symbolic links lead."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, place in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, place
            archive.addfile(info)
    return out.getvalue()


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=zipfile.ZIP_DEFLATED)
    return out.getvalue()


def deb_bytes(data_tar: bytes, suffix: str) -> bytes:
    """An `ar` archive as deb(5) describes it, around a data.tar."""
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", gzip.compress(tar_bytes({"./control": b"Package: made\n"}), mtime=0)),
        (f"data.tar{suffix}", data_tar),
    ]
    out = b"!<arch>\n"
    for name, data in members:
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return out


def _write(path: Path, data: bytes) -> Made:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Made(path, hashlib.sha256(data).hexdigest())


def make_sdist(folder: Path, name: str, version: str, files: Mapping[str, bytes]) -> Made:
    """A source distribution with a setup.py that would fail loudly if it were ever run."""
    top = f"{name}-{version}"
    inside = {f"{top}/setup.py": b"raise SystemExit('this package was run')\n"}
    inside |= {f"{top}/{path}": data for path, data in files.items()}
    return _write(folder / f"{top}.tar.gz", gzip.compress(tar_bytes(inside), mtime=0))


def make_wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes], tags: str = "py3-none-any") -> Made:
    plain = name.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    inside = {**files, f"{plain}-{version}.dist-info/METADATA": metadata}
    return _write(folder / f"{plain}-{version}-{tags}.whl", zip_bytes(inside))


def make_npm(folder: Path, name: str, version: str, files: Mapping[str, bytes]) -> Made:
    package = json.dumps({"name": name, "version": version}).encode()
    inside = {"package/package.json": package, **{f"package/{path}": data for path, data in files.items()}}
    plain = name.removeprefix("@").replace("/", "-")
    return _write(folder / f"{plain}-{version}.tgz", gzip.compress(tar_bytes(inside), mtime=0))


def compress_nothing(data: bytes) -> bytes:
    return data


def compress_zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": compress_nothing,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".xz": lzma.compress,
    ".zst": compress_zstd,
}


def make_deb(folder: Path, name: str, version: str, files: Mapping[str, bytes], suffix: str = ".xz") -> Made:
    """A Debian package; `suffix` says how its data.tar is compressed."""
    data = tar_bytes({f"./{path}": data for path, data in files.items()})
    return _write(folder / f"{name}_{version}_all.deb", deb_bytes(COMPRESSORS[suffix](data), suffix))


# ---------------------------------------------------------------- the server


class PackageIndex:
    """Serves a folder's packages on a free port of loopback.

    Args:
        folder: the package files; it is read anew at each request.
        promise_hashes: whether index pages name the sha256 of each file.
    """

    def __init__(self, folder: Path, promise_hashes: bool = True) -> None:
        self.folder, self.promise_hashes = folder, promise_hashes
        self.npm_files = ""  # the host that npm documents name for tarballs, where it is another one
        self.yanked: set[str] = set()  # file names that the simple index marks so
        self.logins: set[str] = set()  # `name:password`, one of which each request must bring; empty: none needed
        self.validators = False  # whether files come with an ETag, and a request that knows it gets 304
        self.commits: dict[str, str] = {}  # hub data sets, `someone/some` or `someone/some/revision/main` -> commit
        self._scheme = "http"
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.queries: list[str] = []
        self._errors: dict[str, list[Error]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> PackageIndex:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def wrap(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "https"

    def environment(self) -> dict[str, str]:
        """The variables that make this the only registry of all kinds, whatever this machine is set to."""
        return {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{self.address}/simple",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_NO_INDEX": "",
            "PIP_PROXY": "",
            "PIP_RETRIES": "3",
            "npm_config_registry": f"{self.address}/npm",
            "LEXMILL_DEBIAN_MIRROR": f"{self.address}/debian",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def plan(self, path: str, *errors: Error) -> None:
        """The next requests of `path` get these errors, one each; later ones are answered well."""
        self._errors.setdefault(path, []).extend(errors)

    def next_error(self, path: str) -> Error | None:
        waiting = self._errors.get(path)
        return waiting.pop(0) if waiting else None

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """(content type, body) for a path, or None."""
        parts = [part for part in path.split("/") if part]
        match parts:
            case ["files" | "debian", name] if (self.folder / name).is_file():
                return "application/octet-stream", (self.folder / name).read_bytes()
            case ["simple", name]:
                return self._simple(name)
            case ["debian", "Packages"]:
                return "text/plain", self._packages().encode()
            case ["npm", *name]:
                return self._npm("/".join(name))
            case ["api", "datasets", *name] if (commit := self.commits.get("/".join(name))) is not None:
                return "application/json", json.dumps({"id": "/".join(name[:2]), "sha": commit}).encode()
        return None

    def _simple(self, name: str) -> tuple[str, bytes] | None:
        links = []
        for path in sorted(self.folder.iterdir()):
            if path.name.endswith(".whl"):
                project = path.name.split("-")[0]
            elif path.name.endswith((".tar.gz", ".zip")):
                project = path.name.rpartition("-")[0]
            else:
                continue
            if project.lower().replace("_", "-") == name:
                hashed = f"#sha256={_sha256(path)}" if self.promise_hashes else ""
                about = 'data-requires-python="&gt;=99"' + (' data-yanked="bad"' if path.name in self.yanked else "")
                links.append(f'<a href="/files/{path.name}{hashed}" {about}>{path.name}</a>')
        return ("text/html", "<br>".join(links).encode()) if links else None

    def _npm(self, name: str) -> tuple[str, bytes] | None:
        versions: dict[str, Any] = {}
        for path in sorted(self.folder.glob("*.tgz")):
            with tarfile.open(path) as archive:
                package = archive.extractfile("package/package.json")
                assert package is not None
                about = json.load(package)
            if about["name"] == name:
                versions[about["version"]] = {
                    **about,
                    "dist": {"tarball": f"{self.npm_files or self.address}/files/{path.name}"},
                }
        document = {"name": name, "dist-tags": {"latest": max(versions, default="")}, "versions": versions}
        return ("application/json", json.dumps(document).encode()) if versions else None

    def _packages(self) -> str:
        text = ""
        for path in sorted(self.folder.glob("*.deb")):
            name, version, architecture = path.stem.split("_")
            text += (
                f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nDescription: made\n with care\n"
            )
            text += f"Filename: ./{path.name}\nSHA256: {_sha256(path)}\n\n"
        return text


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _handler(index: PackageIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            path = unquote(path)
            index.queries.append(query)
            index.requests.append((path, dict(self.headers)))
            error = index.next_error(path) or Error()
            if index.logins and self.headers.get("Authorization") not in map(_basic, index.logins):
                error = Error(401)
            found = index.answer(path) if error.status == 200 else ("text/plain", b"planned")
            status = error.status
            if found is None:
                status, found = 404, ("text/plain", b"not here")
            kind, body = found
            etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"' if index.validators and status == 200 else None
            if etag is not None and self.headers.get("If-None-Match") == etag:
                self.send_response(304)
                self.send_header("ETag", etag)
                self.end_headers()
                return
            start = self._start(body) if status == 200 and not error.ignore_range else 0
            if start > 0 and start >= len(body):
                status, body, start = 416, b"", 0
            self.send_response(206 if start else status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) - start))
            if etag is not None:
                self.send_header("ETag", etag)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            if error.retry_after is not None:
                self.send_header("Retry-After", error.retry_after)
            self.end_headers()
            if error.cut_after is None:
                self.wfile.write(body[start:])
            else:
                self.wfile.write(body[start : start + error.cut_after])
                self.close_connection = True

        def _start(self, body: bytes) -> int:
            asked = self.headers.get("Range", "")
            return int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler
