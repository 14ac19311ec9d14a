"""The endpoint for Prometheus over real sockets, read by Prometheus's own parser; clients that are
slow, rude or many."""
import json
import os
import pathlib
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "telemetry_tool"
LIMIT_S = 60  # only to catch a hang
LINE = {"step": 20, "loss": 0.5, "step_s": 0.25, "phases_s": {"forward": 0.1, "backward": 0.15},
        "memory": {"peak_bytes": 1 << 40}}


class Tool:
    """telemetry_tool prometheus TARGET, fed line by line."""

    def __init__(self, target=":0"):
        self.process = subprocess.Popen([TOOL, "prometheus", target], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0
        self.process.stdout.close()
        self.process.stderr.close()

    def said(self):
        return self.process.stderr.readline()

    def take(self, line=LINE):
        self.process.stdin.write(json.dumps(line) + "\n")
        assert self.process.stdout.readline() == "taken\n"


@pytest.fixture
def served():
    with Tool() as tool:
        tool.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/metrics", tool.said())[1])
        yield tool


def fetch(port, path="/metrics", method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
        return response.headers, response.read().decode()


def samples(text):
    return {(sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples}


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)


def answer(port, request):
    with connect(port) as client:
        client.sendall(request)
        return everything(client)


def everything(client):
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts).decode()


def memory_kib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


def test_prometheus_reads_the_newest_figures(served):
    headers, text = fetch(served.port)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert samples(text) == {("brim_run_info", ("run", 'a "quoted" \\ name\nof two lines')): 1}
    served.take()
    served.take({**LINE, "step": 40, "loss": 0.25})
    found = samples(fetch(served.port)[1])
    assert found[("brim_step",)] == 40 and found[("brim_loss",)] == 0.25
    assert found[("brim_step_seconds",)] == 0.25
    assert found[("brim_phase_seconds", ("phase", "backward"))] == 0.15
    assert found[("brim_memory_peak_bytes",)] == 1 << 40
    types = {family.name: family.type for family in text_string_to_metric_families(fetch(served.port)[1])}
    assert set(types.values()) == {"gauge"}


def test_head_has_no_body_and_a_query_changes_nothing(served):
    headers, text = fetch(served.port, method="HEAD")
    assert text == "" and int(headers["Content-Length"]) == len(fetch(served.port)[1])
    assert fetch(served.port, "/metrics?name[]=brim_step")[1] == fetch(served.port)[1]


def test_the_first_page_says_where_there_is_more(served):
    assert fetch(served.port, "/")[1] == ("/metrics has this run's newest metrics. A live page of it: "
                                          "trainer watch runs/x\n")


@pytest.mark.parametrize("request_, status", [
    (b"GET /x HTTP/1.1\r\n\r\n", "404 Not Found"),
    (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
    (b"\x16\x03\x01\x02\x00\n", "400 Bad Request"),
    (b"GET /" + 9000 * b"x", "431 Request Header Fields Too Large"),
    (b"GET / HTTP/1.1\r\n" + 2000 * b"a: b\r\n", "431 Request Header Fields Too Large"),
])
def test_what_is_no_request_for_figures_is_refused(served, request_, status):
    assert answer(served.port, request_).startswith(f"HTTP/1.1 {status}\r\n")
    fetch(served.port)


def test_a_request_may_come_in_pieces(served):
    with connect(served.port) as client:
        for byte in b"GET /metrics HTTP/1.1\r\n\r\n":
            client.sendall(bytes([byte]))
        assert "brim_run_info" in everything(client)


def test_silent_clients_are_put_out_and_hold_nobody_up(served):
    silent = [connect(served.port) for _ in range(40)]
    for client in silent[:10]:
        client.sendall(b"GET /metr")
    served.take()  # whoever feeds it does not wait
    # More than it keeps: the last ones wait for the first to be put out, and then are served.
    assert "brim_step 20" in fetch(served.port)[1]
    assert everything(silent[0]) == ""
    for client in silent:
        client.close()


def test_the_oldest_silent_client_makes_room(served):
    served.take()
    silent = [connect(served.port) for _ in range(16)]
    assert "brim_step 20" in fetch(served.port)[1]
    assert everything(silent[0]) == ""
    silent[-1].setblocking(False)
    with pytest.raises(BlockingIOError):  # it is still served
        silent[-1].recv(1)
    for client in silent:
        client.close()


def test_who_does_not_read_or_sends_without_end_takes_no_memory(served):
    served.take()
    before = memory_kib(served.process)
    deaf = [connect(served.port) for _ in range(8)]
    for client in deaf:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    with connect(served.port) as rude, pytest.raises(OSError):
        for _ in range(1000):  # up to 64 MB
            rude.sendall(65536 * b"x")
    assert "brim_step 20" in fetch(served.port)[1]
    assert memory_kib(served.process) - before < 8192
    for client in deaf:
        client.close()


def test_a_flood_of_requests_is_served_slowly_and_then_all_is_well(served):
    start = time.monotonic()
    for _ in range(60):
        fetch(served.port)
    assert time.monotonic() > start
    served.take()
    assert "brim_step 20" in fetch(served.port)[1]


def test_only_this_machine_is_served_unless_told_otherwise(served):
    table = pathlib.Path("/proc/net/tcp").read_text()
    (listening,) = re.findall(rf"\s(\w+):{served.port:04X} 00000000:0000 0A", table)
    assert listening == "0100007F"  # 127.0.0.1


def test_a_port_in_use_is_a_warning_and_work_goes_on(served):
    with Tool(f":{served.port}") as second:
        said = second.said()
        assert f"cannot listen on 127.0.0.1:{served.port}: Address already in use" in said
        assert "training continues" in said
        second.take()


def test_the_port_is_free_again_at_once():
    with Tool() as tool:
        port = int(re.search(r":(\d+)/metrics", tool.said())[1])
        fetch(port)
    with Tool(f":{port}") as again:
        assert f":{port}/metrics" in again.said()
        fetch(port)


def test_a_host_that_is_none_is_a_warning():
    with Tool("no-such-host.invalid:9400") as tool:
        assert "cannot listen on no-such-host.invalid:9400" in tool.said()
        tool.take()


def test_a_file_for_node_exporter(tmp_path):
    path = tmp_path / "brim.prom"
    with Tool(f"file:{path}") as tool:
        tool.take()
        end = time.monotonic() + LIMIT_S
        while not path.exists() or "brim_step" not in path.read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        assert samples(path.read_text())[("brim_step",)] == 20
    assert list(tmp_path.iterdir()) == []  # the run has ended


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path):
    with Tool(f"file:{tmp_path}/gone/brim.prom") as tool:
        assert "no metrics for Prometheus from here on" in tool.said()
        tool.take()
