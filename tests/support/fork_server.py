"""Starts a program many times that is loaded once: see fork_server.cpp."""
import atexit
import contextlib
import ctypes
import os
import pathlib
import socket
import struct
import subprocess

LIBRARY = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "libbrim_fork_server.so"
# What is read while a program is loaded: with other values it is started.
AT_LOAD = ("GOMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "TORCH_")
PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def taking_orphans():
    """Meanwhile grandchildren whose parent ends become this process's children."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def at_load(env):
    return {name: value for name, value in env.items() if name.startswith(AT_LOAD)}


class Forked(subprocess.Popen):
    """A process as Popen starts it, of a server's program."""

    def __init__(self, server, args, **options):
        self.server = server
        super().__init__(args, **options)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,
                       shell, *rest):
        assert preexec_fn is None and not pass_fds and not rest[11], "the server knows no more of Popen's options"
        pipes = rest[:6]
        streams = [theirs if theirs != -1 else own for own, theirs in enumerate((pipes[0], pipes[3], pipes[5]))]
        try:
            self.pid = self.server.fork(args[1:], cwd, env, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


class ForkServer:
    """`preload`: further libraries that the program is loaded with."""

    def __init__(self, program, env, *preload):
        assert LIBRARY.exists(), f"{LIBRARY} is missing; build the target brim_fork_server"
        self.program, self.env = program, env
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen([program], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env={
                **env, "LD_PRELOAD": ":".join(map(str, [LIBRARY, *preload])), "BRIM_FORK_SERVER": str(theirs.fileno())})
        atexit.register(self.end)

    def end(self):
        self.socket.close()
        self.process.wait()

    def fork(self, args, cwd, env, streams):
        words = [cwd or os.getcwd(), str(len(args)), *args, *(f"{name}={value}" for name, value in env.items())]
        with taking_orphans():
            socket.send_fds(self.socket, [b"".join(os.fsencode(word) + b"\0" for word in words)], streams)
            return struct.unpack("i", self.socket.recv(4))[0]

    def popen(self, *args, env=None, **options):
        """subprocess.Popen of the program."""
        env, args = self.env if env is None else env, [str(self.program), *map(str, args)]
        if at_load(env) == at_load(self.env):
            return Forked(self, args, env=env, **options)
        return subprocess.Popen(args, env=env, **options)

    def run(self, *args, timeout=None, **options):
        """subprocess.run() of the program, with its output as text and no input."""
        with self.popen(*args, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        **options) as process:
            try:
                output = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, *output)
