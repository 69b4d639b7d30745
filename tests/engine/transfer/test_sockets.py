"""The kernel's count of what this process sends."""

from __future__ import annotations

import socket
import threading

from weir.engine.transfer.sockets import sent_bytes, sockets


def test_the_bytes_of_the_named_sockets_are_counted_and_no_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before = sockets()
        with socket.create_connection(listener.getsockname()) as sender, listener.accept()[0] as receiver:
            opened = sockets() - before
            assert sent_bytes(opened) == 0
            reading = threading.Thread(target=receive, args=(receiver, 3_000_000))
            reading.start()
            sender.sendall(bytes(3_000_000))
            reading.join()
            assert 3_000_000 <= sent_bytes(opened) < 3_300_000, "what was sent again counts"
            assert sent_bytes(before) == sent_bytes(before - opened)
        assert sent_bytes(opened) == 0, "they are closed"


def receive(receiver: socket.socket, num_bytes: int) -> None:
    while num_bytes:
        num_bytes -= len(receiver.recv(min(num_bytes, 2**20)))
