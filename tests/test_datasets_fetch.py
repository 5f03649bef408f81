"""fetch.get against a server on this machine; nothing here leaves it."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import fetch

BODY = b"an archive" * 50_000
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        requests.append(self.path)
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unsized":
            self.send_header("Content-Length", str(len(BODY) + (self.path == "/cut")))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:
        pass


requests: list[str] = []


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    requests.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()
        thread.join()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_with_the_right_checksum_is_kept_and_not_fetched_again(server: str, tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    path = fetch.get(
        "bibtex",
        tmp_path,
        url=f"{server}/ok",
        sha256=SHA256.upper(),
        progress=lambda done, total: steps.append((done, total)),
    )
    assert path == tmp_path / "bibtex" / "bibtex.rar"
    assert path.read_bytes() == BODY
    assert files(tmp_path) == ["bibtex.rar"]
    assert steps[-1] == (len(BODY), len(BODY))
    assert fetch.get("bibtex", tmp_path, url=f"{server}/ok", sha256=SHA256) == path
    assert requests == ["/ok"]


def test_a_damaged_file_is_fetched_again(server: str, tmp_path: Path) -> None:
    (tmp_path / "bibtex").mkdir()
    (tmp_path / "bibtex" / "bibtex.rar").write_bytes(b"damaged")
    assert fetch.get("bibtex", tmp_path, url=f"{server}/unsized", sha256=SHA256).read_bytes() == BODY


def test_a_wrong_checksum_leaves_nothing_behind(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"the file has sha256 {SHA256}, not {'0' * 64}; it was removed\.$"):
        fetch.get("bibtex", tmp_path, url=f"{server}/ok", sha256="0" * 64)
    assert files(tmp_path) == []


def test_an_unknown_checksum_is_reported_and_nothing_is_kept(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"no checksum is known .* If you trust it, pass sha256='{SHA256}'\.$"):
        fetch.get("bibtex", tmp_path, url=f"{server}/ok")
    assert files(tmp_path) == []


def test_a_file_above_the_limit_is_refused(server: str, tmp_path: Path) -> None:
    for path in ("ok", "unsized"):
        with pytest.raises(DataError, match=r"above the limit of 1000( bytes)?; raise `max_bytes`\.$"):
            fetch.get("bibtex", tmp_path, url=f"{server}/{path}", sha256=SHA256, max_bytes=1000)
    assert files(tmp_path) == []


def test_errors_of_the_network_are_one_sentence(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/missing: the server answered 404 Not Found\.$"):
        fetch.get("bibtex", tmp_path, url=f"{server}/missing", sha256=SHA256)
    with pytest.raises(DataError, match=r"/cut: the download stopped"):
        fetch.get("bibtex", tmp_path, url=f"{server}/cut", sha256=SHA256)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/x"
        with pytest.raises(DataError, match=r"/x: cannot be reached \(.*\)\.$"):
            fetch.get("bibtex", tmp_path, url=nobody, sha256=SHA256)
    assert files(tmp_path) == []


def test_name_folder_and_address_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match=r"^there is no original 'x'; known are bibtex, delicious, "):
        fetch.get("x", tmp_path)
    with pytest.raises(ParameterError, match=r"^`url` must begin with http:// or https://; got file:///etc/hosts\.$"):
        fetch.get("bibtex", tmp_path, url="file:///etc/hosts")
    monkeypatch.delenv("RIPML_DATA", raising=False)
    with pytest.raises(ParameterError, match="there is no folder to download into; pass `folder` or set RIPML_DATA"):
        fetch.get("bibtex")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written \(Not a directory\)\.$"):
        fetch.get("bibtex", tmp_path / "file")


def test_every_listed_original_has_a_secure_address_and_a_plain_file_name() -> None:
    for original in fetch.ORIGINALS.values():
        assert original.url.startswith("https://")
        assert Path(original.file).name == original.file
