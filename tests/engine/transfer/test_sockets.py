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


def test_what_the_kernel_holds_back_for_a_slow_receiver_counts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before = sockets()
        with socket.create_connection(listener.getsockname()) as sender, listener.accept()[0]:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**21)
            sender.setblocking(False)
            given = sender.send(bytes(2**21))
            assert given > 2**20, "more than the receiver has room for"
            assert given <= sent_bytes(sockets() - before) < 1.1 * given, "what was sent again counts"


def receive(receiver: socket.socket, num_bytes: int) -> None:
    while num_bytes:
        num_bytes -= len(receiver.recv(min(num_bytes, 2**20)))
