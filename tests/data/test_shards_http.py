"""Shards from a web server that behaves badly: dropped connections, errors, no ranges, other objects."""

import fcntl
import http.server
import io
import json
import os
import pathlib
import socket
import ssl
import subprocess
import tarfile
import threading
import time

import pytest

TOOL = os.path.join(os.environ["BRIM_BIN_DIR"], "shard_tool")


class Server:
    """Serves `files`; `plans[path]` holds what to do with the next requests for it, a word each:
    "drop:N" (close after N bytes of the body), "stall:N" (then say nothing more), "STATUS",
    "whole" (ignore Range), "move:URL", "endless:STATUS" (a body without end), "" (behave)."""

    def __init__(self, certificate=None):
        self.files, self.etags, self.plans, self.requests = {}, {}, {}, []
        self.done = threading.Event()
        self.read_to_the_end = False
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                owner.answer(self)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
            self.url = self.url.replace("http://", "https://")
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.done.set()
        self.http.shutdown()
        self.http.server_close()

    def answer(self, request):
        path = request.path.split("?")[0]
        self.requests.append((path, request.headers.get("Range")))
        plan = self.plans.get(path, [])
        word = plan.pop(0) if plan else ""
        kind, _, value = word.partition(":")
        if kind == "move":
            request.send_response(302)
            request.send_header("Location", value)
            return self.finish(request, b"moved")
        if kind == "endless":
            return self.send_without_end(request, int(value))
        if kind.isdigit() or path not in self.files:
            request.send_response(int(kind) if kind else 404)
            return self.finish(request, b"an error page that must never reach a file")
        content, start = self.files[path], 0
        etag = self.etags.get(path)
        range_header = request.headers.get("Range")
        matches = etag is not None and request.headers.get("If-Range") == etag
        if range_header and kind != "whole" and matches:
            start = int(range_header.removeprefix("bytes=").removesuffix("-"))
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            request.send_response(200)
        if etag:
            request.send_header("ETag", etag)
        if kind in ("drop", "stall"):
            request.send_header("Content-Length", str(len(content) - start))
            request.end_headers()
            request.wfile.write(content[start:][: int(value)])
            request.wfile.flush()
            if kind == "stall":
                self.done.wait(60)
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return None
        return self.finish(request, content[start:])

    def send_without_end(self, request, status):
        """Until the client hangs up; 64 MiB stand for no end."""
        request.send_response(status)
        request.send_header("Connection", "close")
        request.end_headers()
        try:
            for _ in range(64):
                request.wfile.write(bytes(1 << 20))
            self.read_to_the_end = True
        except OSError:
            pass

    def finish(self, request, body):
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def put(self, name, content, etag='"v1"'):
        self.files["/" + name] = content
        if etag:
            self.etags["/" + name] = etag
        return f"{self.url}/{name}"

    def asked(self, name):
        return [ranges for path, ranges in self.requests if path == "/" + name]


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


def start(*words, **variables):
    """With "" an environment variable is as good as not set."""
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
                   "CURL_CA_BUNDLE": "", "SSL_CERT_FILE": "", **variables}
    return subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, env=environment, timeout=300)


def shard(first, count):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for i in range(first, first + count):
            for name, content in (f"{i:04}.jpg", bytes([i % 256]) * (3000 + i)), (f"{i:04}.cls", str(i % 5).encode()):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def names(done):
    assert done.returncode == 0, done.stderr
    return [line.split(": ")[1] for line in done.stdout.splitlines()]


def expected(first, count):
    return [f"{i:04}.jpg" for i in range(first, first + count)]


CONTENT = bytes(range(256)) * 1000


@pytest.mark.parametrize(
    "plan,ranges",
    [
        ([], [None]),
        (["drop:100000"], [None, "bytes=100000-"]),
        (["drop:100000", "drop:50000", "drop:0"], [None, "bytes=100000-", "bytes=150000-", "bytes=150000-"]),
        (["drop:100000", "whole"], [None, "bytes=100000-"]),
        (["drop:100000", "500", "503"], [None] + ["bytes=100000-"] * 3),
        (["500", "429"], [None, None, None]),
        (["drop:100000", "416"], [None, "bytes=100000-", None]),
        (["stall:70000"], [None, "bytes=70000-"]),
    ],
    ids=str,
)
def test_a_download_ends_whole(server, tmp_path, plan, ranges):
    url = server.put("a.bin", CONTENT)
    server.plans["/a.bin"] = plan
    done = start("download", url, tmp_path / "a", 8)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert server.asked("a.bin") == ranges


def test_without_a_version_nothing_is_resumed(server, tmp_path):
    for etag in None, 'W/"weak"':
        url = server.put("a.bin", CONTENT, etag)
        server.plans["/a.bin"] = ["drop:100000"]
        assert start("download", url, tmp_path / "a", 8).stdout == "done\n"
        assert (tmp_path / "a").read_bytes() == CONTENT
    assert server.asked("a.bin") == [None] * 4


LARGE = bytes(3 << 20)  # a try may bring more than counts as progress


def test_a_server_that_always_drops_is_given_up(server, tmp_path):
    """What can't be kept is no progress, however much of it there is."""
    url = server.put("a.bin", LARGE, None)
    server.plans["/a.bin"] = ["drop:2000000"] * 12
    done = start("download", url, tmp_path / "a", 4)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert f"{url}: " in done.stderr and "(4 tries)" in done.stderr
    assert "without an ETag or Last-Modified by which to resume" in done.stderr
    assert server.asked("a.bin") == [None] * 4


def test_an_object_that_always_changes_is_given_up(server, tmp_path):
    url = server.put("a.bin", LARGE)
    plain = server.answer

    def change(request):
        served = len(server.requests)
        server.plans["/a.bin"] = [] if served == 12 else ["drop:100" if served % 2 else "drop:2000000"]
        plain(request)
        server.put("a.bin", LARGE, f'"changed {served}"')

    server.answer = change
    done = start("download", url, tmp_path / "a", 4)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert len(server.asked("a.bin")) == 5


def test_a_large_file_over_bad_connections_is_resumed(server, tmp_path):
    """Progress that is kept counts: more tries than are allowed without."""
    content = bytes(range(256)) * (20 << 12)
    url = server.put("a.bin", content)
    server.plans["/a.bin"] = ["drop:2000000"] * 9
    assert start("download", url, tmp_path / "a", 3).stdout == "done\n"
    assert (tmp_path / "a").read_bytes() == content


def test_a_body_without_end_keeps_to_the_budget(server, tmp_path):
    url = server.put("s.tar", LARGE)
    for name, plan in ("s.tar", "endless:200"), ("s.tar.index", "endless:200"), ("s.tar", ""):
        server.plans = {f"/{name}": [plan]}
        done = start("list", url, tmp_path / "cache", 2 << 20)
        assert done.returncode == 3, (done.stdout, done.stderr)
        assert f"error[data]: {server.url}/{name}: expected at most 2.0 MiB, found " in done.stderr
        assert not list((tmp_path / "cache").iterdir())


MIB = 1 << 20


def test_a_body_without_end_keeps_to_half_of_the_disk(server, tmp_path):
    """No cap is given, and the server declares no length."""
    url = server.put("s.tar", LARGE)
    server.plans["/s.tar"] = ["endless:200"] * 9
    done = start("list", url, tmp_path / "cache", 0, 8 * MIB)
    assert done.returncode == 5, (done.stdout, done.stderr)
    assert f"error[resource]: {url}: expected at most 4.0 MiB of undeclared length, half of the free " in done.stderr
    assert "data.shard_cache_gib" in done.stderr
    assert server.asked("s.tar") == [None] and not server.read_to_the_end
    assert not list((tmp_path / "cache").iterdir())


def test_bodies_without_end_are_refused_together(server, tmp_path):
    for i in range(8):
        server.plans[f"/s-{i}.tar"] = ["endless:200"] * 9
    done = start("list", server.url + "/s-{0..7}.tar", tmp_path / "cache", 0, 20 * MIB)
    assert done.returncode == 5, (done.stdout, done.stderr)  # one has its half, or all leave just the reserve
    assert "error[resource]" in done.stderr and not server.read_to_the_end
    assert not list((tmp_path / "cache").iterdir())


def test_an_index_without_end_leaves_the_reserve(server, tmp_path):
    url = server.put("s.tar", LARGE)
    server.plans["/s.tar.index"] = ["endless:200"] * 9
    done = start("list", url, tmp_path / "cache", 0, 20 * MIB)
    assert done.returncode == 5 and f"{url}.index: expected 2.0 MiB of the disk to stay free" in done.stderr
    assert not list((tmp_path / "cache").iterdir())


def test_a_shard_that_does_not_fit_is_refused_before_it_is_fetched(server, tmp_path):
    url = server.put("s.tar", LARGE)
    done = start("list", url, tmp_path / "cache", 0, 2 * MIB)
    assert done.returncode == 5
    assert f"error[resource]: {url}: expected room for its 3.0 MiB and 204.8 KiB that stay free" in done.stderr
    assert not list((tmp_path / "cache").iterdir())


def test_a_body_longer_than_declared_is_refused(server, tmp_path):
    """It breaks off, and is then continued without end."""
    url = server.put("s.tar", LARGE)
    plain, served = server.answer, []

    def answer(request):
        if request.path != "/s.tar" or not server.asked("s.tar"):
            server.plans["/s.tar"] = ["drop:100000"]
            return plain(request)
        served.append(request.headers["Range"])
        request.send_response(206)
        request.send_header("ETag", '"v1"')
        request.send_header("Content-Range", f"bytes 100000-{len(LARGE) - 1}/{len(LARGE)}")
        request.send_header("Connection", "close")
        request.end_headers()
        try:
            for _ in range(64):
                request.wfile.write(bytes(MIB))
            server.read_to_the_end = True
        except OSError:
            pass
        return None

    server.answer = answer
    done = start("list", url, tmp_path / "cache", 0)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert f"error[data]: {url}: expected the 3,145,728 bytes that the server declared, found more" in done.stderr
    assert served == ["bytes=100000-"] and not server.read_to_the_end
    assert not list((tmp_path / "cache").iterdir())


def test_a_shard_that_was_too_large_is_not_fetched_again(server, tmp_path):
    """As data.on_error = "skip" would, for each of its samples."""
    url = server.put("s.tar", LARGE)
    server.plans["/s.tar"] = ["endless:200"] * 9
    done = start("reopen", url, tmp_path / "cache", 2 * MIB, 3)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and len(set(lines)) == 1, done.stdout
    assert lines[0].startswith(f"data: {url}: expected at most 2.0 MiB, found more")
    assert server.asked("s.tar") == [None]


def test_the_text_of_an_error_is_not_read_without_end(server, tmp_path):
    url = server.put("a.bin", LARGE)
    server.plans["/a.bin"] = ["endless:500", "endless:404"]
    assert start("download", url, tmp_path / "a", 8).stdout == "missing\n"
    assert not server.read_to_the_end


def test_an_object_that_changes_is_fetched_from_its_start(server, tmp_path):
    url = server.put("a.bin", CONTENT)
    other = bytes(reversed(CONTENT)) + b"longer"
    drop = server.answer

    def change(request):
        drop(request)
        server.put("a.bin", other, '"v2"')

    server.answer = change
    server.plans["/a.bin"] = ["drop:100000"]
    assert start("download", url, tmp_path / "a", 8).stdout == "done\n"
    assert (tmp_path / "a").read_bytes() == other


def test_a_range_of_another_version_is_not_appended(server, tmp_path):
    """A server that minds no If-Range: it sends a part of the new object under the new ETag."""
    url = server.put("a.bin", CONTENT)
    other = bytes(reversed(CONTENT))
    asked = []

    def answer(request):
        asked.append(request.headers.get("Range"))
        first = len(asked) == 1
        content, etag = (CONTENT, '"v1"') if first else (other, '"v2"')
        begin = int(asked[-1].removeprefix("bytes=").removesuffix("-")) if asked[-1] else 0
        request.send_response(206 if begin else 200)
        request.send_header("ETag", etag)
        if begin:
            request.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        request.send_header("Content-Length", str(len(content) - begin))
        request.end_headers()
        request.wfile.write(content[begin:] if not first else content[:100000])
        if first:
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)

    server.answer = answer
    assert start("download", url, tmp_path / "a", 8).stdout == "done\n"
    assert (tmp_path / "a").read_bytes() == other
    assert asked == [None, "bytes=100000-", None]


def test_what_stays_wrong_is_said(server, tmp_path):
    url = server.put("a.bin", CONTENT)
    server.plans["/a.bin"] = ["500"] * 3
    done = start("download", url, tmp_path / "a", 3)
    assert done.returncode == 3
    assert done.stderr == f"error[data]: {url}: the server answers with status 500 (3 tries)\n"
    server.plans["/a.bin"] = ["401"]
    done = start("download", url.replace("//", "//me:secret@") + "?token=secret", tmp_path / "a", 3)
    assert done.stderr == f"error[data]: {url}: the server answers with status 401\n"
    assert start("download", server.url + "/none", tmp_path / "a", 3).stdout == "missing\n"
    for answer in ("400", "405", "409"):  # of gateways, for names that they do not know
        server.plans["/a.bin"] = [answer]
        assert start("download", url, tmp_path / "a", 3).stdout == "missing\n"
    assert server.asked("none") == [None]


def test_redirects_stay_on_the_web(server, tmp_path):
    server.put("a.bin", CONTENT)
    server.plans["/b"] = ["move:/a.bin"]
    assert start("download", server.url + "/b", tmp_path / "a", 3).stdout == "done\n"
    assert (tmp_path / "a").read_bytes() == CONTENT
    server.plans["/b"] = ["move:file:///etc/passwd"]
    done = start("download", server.url + "/b", tmp_path / "a", 3)
    assert done.returncode == 3 and "rotocol" in done.stderr


def test_shards_come_by_way_of_the_cache(server, tmp_path):
    for i in range(3):
        server.put(f"s-{i}.tar", shard(10 * i, 10))
    server.plans["/s-1.tar"] = ["drop:20000"]
    done = start("list", server.url + "/s-{0..2}.tar", tmp_path, 0)
    assert names(done) == expected(0, 30)
    assert done.stderr.count("has no index") == 1
    assert server.asked("s-1.tar") == [None, "bytes=20000-"]
    assert server.asked("s-0.tar") == [None] and server.asked("s-0.tar.index") == [None]
    assert not list(tmp_path.glob("*.part"))
    before = len(server.requests)
    assert start("list", server.url + "/s-{0..2}.tar", tmp_path, 0).stdout == done.stdout
    assert len(server.requests) == before  # all of it is here


def test_an_index_beside_the_shard_saves_its_download(server, tmp_path):
    for i in range(2):
        (tmp_path / f"s-{i}.tar").write_bytes(shard(10 * i, 10))
    names(start("list", tmp_path, tmp_path / "c", 0))  # makes the indexes
    for path in tmp_path.glob("s-*"):
        server.put(path.name, path.read_bytes())
    server.plans["/s-1.tar"] = ["404"]
    done = start("list", server.url + "/s-{0..1}.tar", tmp_path / "cache", 0)
    assert done.returncode == 3  # the indexes were enough to open them; reading was not
    assert "s-1.tar: the server has no such shard" in done.stderr
    assert len(done.stdout.splitlines()) == 10
    assert server.asked("s-0.tar") == [None]


def test_an_index_that_is_none_or_of_another_shard(server, tmp_path):
    server.put("s.tar", shard(0, 10))
    server.put("s.tar.index", b"<html>not found</html>")
    done = start("list", server.url + "/s.tar", tmp_path / "a", 0)
    assert names(done) == expected(0, 10)
    assert "damaged index" in done.stderr
    (tmp_path / "other.tar").write_bytes(shard(0, 7))
    names(start("list", tmp_path / "other.tar", tmp_path, 0))
    server.put("s.tar.index", (tmp_path / "other.tar.index").read_bytes())
    done = start("list", server.url + "/s.tar", tmp_path / "b", 0)
    assert done.returncode == 3 and "s.tar" in done.stderr and "bytes" in done.stderr


def test_damaged_shards_are_not_trusted(server, tmp_path):
    server.put("s.tar", shard(0, 10)[:20000])
    done = start("list", server.url + "/s.tar", tmp_path, 0)
    assert done.returncode == 3
    assert f"error[data]: {server.url}/s.tar: at byte" in done.stderr and "truncated" in done.stderr


def test_what_is_no_shard_is_not_kept(server, tmp_path):
    server.put("s.tar", b"<html>log in</html>")
    done = start("list", server.url + "/s.tar", tmp_path, 0)
    assert done.returncode == 3 and f"removed from {tmp_path} and fetched again" in done.stderr
    server.put("s.tar", shard(0, 10))
    assert names(start("list", server.url + "/s.tar", tmp_path, 0)) == expected(0, 10)


@pytest.mark.parametrize("body", [b"<html>log in</html>", b""])
def test_what_is_no_shard_is_not_kept_beside_a_good_index(body, server, tmp_path):
    (tmp_path / "local.tar").write_bytes(shard(0, 10))
    names(start("list", tmp_path / "local.tar", tmp_path, 0))
    server.put("s.tar.index", (tmp_path / "local.tar.index").read_bytes())
    server.put("s.tar", body)
    cache = tmp_path / "cache"
    done = start("list", server.url + "/s.tar", cache, 0)
    assert done.returncode == 3 and f"found {len(body)}, which is removed from the cache" in done.stderr
    assert not list(cache.glob("*.tar"))
    server.put("s.tar", shard(0, 10))
    assert names(start("list", server.url + "/s.tar", cache, 0)) == expected(0, 10)


def test_a_fetch_that_takes_long_is_told_of(server, tmp_path):
    url = server.put("s.tar", shard(0, 10))
    server.plans["/s.tar.index"] = ["404"]
    server.plans["/s.tar"] = ["stall:5120"]
    process = subprocess.Popen([TOOL, "list", url, str(tmp_path), "0"], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"})
    told = next((line for line in process.stderr if "fetched in" in line), "")
    process.kill()
    process.communicate()
    assert told.startswith(f"brim: {url}: 5.0 KiB of "), told


@pytest.mark.parametrize("damage", ["cut short", "written over"])
def test_a_damaged_copy_is_fetched_again(server, tmp_path, damage):
    server.put("s.tar", shard(0, 10))
    cache = tmp_path / "cache"
    assert names(start("list", server.url + "/s.tar", cache, 0)) == expected(0, 10)
    copy, = cache.glob("*.tar")
    body = copy.read_bytes()
    time.sleep(0.01)  # a copy's time tells that it was written
    copy.write_bytes(body[:5000] if damage == "cut short" else body[:512] + b"?" * (len(body) - 512))
    done = start("list", server.url + "/s.tar", cache, 0)
    assert names(done) == expected(0, 10)
    assert done.stderr.count("the copy in the cache is fetched again") == 1
    assert copy.read_bytes() == body


def test_an_index_of_another_shard_of_the_same_size_is_refused(server, tmp_path):
    first, second = shard(0, 10), shard(1, 10)  # tarfile fills up to a whole number of 10 KiB
    assert len(first) == len(second)
    (tmp_path / "s.tar").write_bytes(first)
    names(start("list", tmp_path / "s.tar", tmp_path, 0))
    server.put("s.tar", second)
    server.put("s.tar.index", (tmp_path / "s.tar.index").read_bytes())
    done = start("list", server.url + "/s.tar", tmp_path / "c", 0)
    assert done.returncode == 3 and "its samples are not those of its index: the shard or" in done.stderr
    # The shard is here now; its own index is made.
    assert names(start("list", server.url + "/s.tar", tmp_path / "c", 0)) == expected(1, 10)


def test_a_shard_that_was_replaced_after_its_removal_is_noticed(server, tmp_path):
    for i in range(2):
        server.put(f"s-{i}.tar", shard(2 * i, 10))
    pattern = server.url + "/s-{0..1}.tar"
    assert names(start("list", pattern, tmp_path, 0)) == expected(0, 10) + expected(2, 10)
    for path in tmp_path.glob("*.tar"):
        path.unlink()  # as trim() does; their indexes stay
    for i in range(2):
        server.put(f"s-{i}.tar", shard(2 * i + 1, 10))
    assert start("list", pattern, tmp_path, 0).returncode == 3
    assert names(start("list", pattern, tmp_path, 0)) == expected(1, 10) + expected(3, 10)


def test_the_cache_keeps_to_its_budget(server, tmp_path):
    for i in range(6):
        server.put(f"s-{i}.tar", shard(10 * i, 10))
    size = len(server.files["/s-0.tar"])
    budget = size * 5 // 2
    done = start("list", server.url + "/s-{0..5}.tar", tmp_path, budget)
    assert names(done) == expected(0, 60)
    kept = sorted(path.name[33:] for path in tmp_path.glob("*.tar"))
    assert kept == ["s-4.tar", "s-5.tar"]  # those read last
    assert len(list(tmp_path.glob("*.index"))) == 6  # indexes stay
    (tmp_path / "mine.tar").write_bytes(b"x" * size)  # not the cache's
    assert names(start("list", server.url + "/s-{0..1}.tar", tmp_path, size)) == expected(0, 20)
    assert (tmp_path / "mine.tar").exists()


def test_processes_share_a_cache(server, tmp_path):
    server.put("s.tar", shard(0, 40))
    words = [TOOL, "list", server.url + "/s.tar", str(tmp_path), "0"]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    outputs = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(outputs) == 1 and len(outputs.pop().splitlines()) == 40
    assert server.asked("s.tar") == [None]  # one fetch for all


def test_a_fetch_that_others_read_at_once_makes_none_wait(server, tmp_path):
    """Two ranks want a shard; the one that fetched it holds it open, and waits for the other."""
    url = server.put("s.tar", shard(0, 40))
    names(start("list", url, tmp_path, 0))
    (kept,) = tmp_path.glob("*.tar")
    part = kept.with_name(f"{kept.name}.part")
    kept.rename(part)
    with open(part, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = subprocess.Popen([TOOL, "list", url, str(tmp_path), "0"], stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not any(os.path.samefile(fd, part) for fd in pathlib.Path(f"/proc/{waiting.pid}/fd").iterdir() if fd.exists()):
            assert waiting.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        part.rename(kept)
        fcntl.flock(file, fcntl.LOCK_SH)
        assert len(waiting.communicate(timeout=60)[0].splitlines()) == 40
    assert list(tmp_path.glob("*.part")) == []


def test_what_a_killed_fetch_left_is_overwritten(server, tmp_path):
    url = server.put("s.tar", shard(0, 10))
    names(start("list", url, tmp_path, 0))
    (kept,) = tmp_path.glob("*.tar")
    kept.rename(pathlib.Path(f"{kept}.part"))
    with open(f"{kept}.part", "r+b") as part:
        part.truncate(1000)
    assert names(start("list", url, tmp_path, 0)) == expected(0, 10)


def test_what_killed_processes_left_in_the_cache_is_removed(server, tmp_path):
    """Of other shards, too; but not what a live process writes, nor what is not the cache's."""
    url = server.put("a.tar", shard(0, 10))
    server.put("b.tar", shard(10, 10))
    server.plans["/b.tar"] = ["stall:5000"]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    words = [TOOL, "list", server.url + "/b.tar", str(tmp_path), "0"]

    def begun():
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        for _ in range(3000):
            parts = [part for part in tmp_path.glob("*-b.tar.part") if part.stat().st_size]
            if parts:
                return running, parts[0]
            time.sleep(0.01)
        raise AssertionError("no part of b.tar")

    running, part = begun()
    digest = part.name[:32]
    for name in f"{digest}-b.tar.index.tmp.4194304", "mine.tmp.4194304", "mine.part":
        (tmp_path / name).write_bytes(b"torn")
    young = tmp_path / f"{digest}-c.tar.index.tmp.4194304"
    young.write_bytes(b"torn")

    def names_after_a_start():
        for path in {*tmp_path.iterdir()} - {young}:
            os.utime(path, (0, 0))
        names(start("list", url, tmp_path, 0))
        return {path.name for path in tmp_path.iterdir() if "-a.tar" not in path.name}

    kept = {"mine.tmp.4194304", "mine.part", young.name}
    left = {name for name in names_after_a_start() if "pack.json" not in name}
    running.kill()
    running.wait()
    assert left == {*kept, part.name}
    assert {name for name in names_after_a_start() if "pack.json" not in name} == kept


def test_classes_have_the_names_that_the_pack_gave_them(server, tmp_path):
    for i in range(2):
        server.put(f"s-{i}.tar", shard(10 * i, 10))
    server.put("pack.json", json.dumps({"classes": ["ant", "bee", "cat", "dog", "elk"]}).encode())
    address = server.url + "/s-{0..1}.tar?token=1"
    for _ in range(2):  # the second time all of it is here
        done = start("classes", address, tmp_path)
        assert done.stdout.split() == ["ant", "bee", "cat", "dog", "elk"], done.stderr
        server.plans["/pack.json"] = ["500"] * 9
    assert server.asked("pack.json") == [None]
    names(start("list", address, tmp_path, len(server.files["/s-0.tar"])))
    assert len(list(tmp_path.glob("*-pack.json"))) == 1  # no shard: it stays


@pytest.mark.parametrize("answer", [b"<html>welcome</html>", b'{"classes": [1]}', b'{"classes": ["one"]}', None])
def test_without_names_classes_have_numbers(server, tmp_path, answer):
    url = server.put("s.tar", shard(0, 10))
    if answer is not None:
        server.put("pack.json", answer)
    for _ in range(2):
        done = start("classes", url, tmp_path)
        assert done.stdout.split() == ["0", "1", "2", "3", "4"] and "warning" not in done.stderr
    assert server.asked("pack.json") == [None]


def test_names_that_cannot_be_had_end_no_run(server, tmp_path):
    url = server.put("s.tar", shard(0, 10))
    server.plans["/pack.json"] = ["500", "500"]
    server.put("pack.json", json.dumps({"classes": list("abcde")}).encode())
    done = start("classes", url, tmp_path)
    assert done.stdout.split() == ["0", "1", "2", "3", "4"]
    assert f"{server.url}/pack.json: the server answers with status 500 (2 tries); classes are " in done.stderr
    assert start("classes", url, tmp_path).stdout.split() == list("abcde")


def test_a_folder_that_cannot_be_written_is_a_resource_error(server, tmp_path):
    url = server.put("s.tar", shard(0, 1))
    (tmp_path / "file").write_text("in the way")
    done = start("list", url, tmp_path / "file", 0)
    assert done.returncode == 5 and str(tmp_path / "file") in done.stderr


def certificate(folder, name):
    """A file with a new key and a certificate, which is its own authority, for a server of that name."""
    file = folder / f"{name.replace(':', '_')}.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-subj", "/CN=brim test", "-addext", f"subjectAltName={name}", "-keyout", "-", "-out", "-"],
        check=True, capture_output=True)
    file.write_bytes(made.stdout)
    return str(file)


@pytest.fixture
def secure(tmp_path):
    """A server at https://127.0.0.1 and the file with its certificate."""
    trusted = certificate(tmp_path, "IP:127.0.0.1")
    server = Server(trusted)
    yield server, trusted
    server.close()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "CURL_CA_BUNDLE"])
def test_shards_come_over_tls(secure, tmp_path, variable):
    server, trusted = secure
    for i in range(3):
        server.put(f"s-{i}.tar", shard(10 * i, 10))
    server.plans["/s-1.tar"] = ["drop:20000"]
    done = start("list", server.url + "/s-{0..2}.tar", tmp_path / "cache", 0, **{variable: trusted})
    assert names(done) == expected(0, 30)
    assert server.asked("s-1.tar") == [None, "bytes=20000-"]


def test_a_server_that_nobody_vouches_for_is_refused(secure, tmp_path):
    server, trusted = secure
    url = server.put("a.bin", CONTENT)
    other = certificate(tmp_path, "IP:127.0.0.2")
    for authorities in "", other, str(tmp_path / "none.pem"):
        done = start("download", url, tmp_path / "a", 8, CURL_CA_BUNDLE=authorities)
        assert done.returncode == 3
        assert done.stderr.startswith(f"error[data]: {url}: not to be trusted: ")
        assert "CURL_CA_BUNDLE" in done.stderr and "tries" not in done.stderr
        assert (tmp_path / "a").read_bytes() == b""
    assert server.requests == []


def test_a_certificate_of_another_server_is_refused(tmp_path):
    trusted = certificate(tmp_path, "DNS:elsewhere.example")
    server = Server(trusted)
    try:
        url = server.put("a.bin", CONTENT)
        done = start("download", url, tmp_path / "a", 8, SSL_CERT_FILE=trusted)
        assert done.returncode == 3 and "not to be trusted" in done.stderr and "127.0.0.1" in done.stderr
        assert server.requests == []
    finally:
        server.close()


def test_a_redirect_may_not_leave_tls(secure, server, tmp_path):
    behind, trusted = secure
    server.put("a.bin", CONTENT)
    behind.plans["/a.bin"] = [f"move:{server.url}/a.bin"]
    done = start("download", behind.url + "/a.bin", tmp_path / "a", 3, SSL_CERT_FILE=trusted)
    assert done.returncode == 3 and "rotocol" in done.stderr
    assert server.requests == []
