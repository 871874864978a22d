"""A server process of a test: its configuration and the test's calls come through one socket, a line of JSON each."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.net.endpoints import parse_endpoint
from kafkalog.server.running import loop_factory, raise_descriptor_limit
from kafkalog.server.security.users import add_user
from kafkalog.server.serving import serving
from kafkalog.server.settings.config import ServerConfig
from kafkalog.testing.inside.clock import MovableTimers, MovedClock
from kafkalog.testing.inside.commands import Commands
from kafkalog.testing.inside.counts import RuleCounts
from kafkalog.testing.inside.disk import TestDisk

if TYPE_CHECKING:
    from kafkalog.server.requests.telemetry import Receiver
    from kafkalog.server.serving import Server
    from kafkalog.testing.inside.registry import NodeRegistry

MAX_LINE_BYTES: Final = 64 << 20
STOP: Final = "stop"
_SAME_SIGNAL_S: Final = 0.5


def serve(control: socket.socket) -> None:
    """Serve as the first line of the socket says, until the test asks for the end or has ended itself."""
    for number in (signal.SIGINT, signal.SIGHUP):  # they are for the test, which then stops its server
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", force=True)
    raise_descriptor_limit()
    home: list[str] = []
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            is_orphaned = runner.run(_serve(control, home))
    except KafkalogError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    if is_orphaned:
        for path in home:
            shutil.rmtree(path, ignore_errors=True)


async def _serve(control: socket.socket, home: list[str]) -> bool:
    """Serve, then return True if the test's process ended and so cannot remove the directory."""
    reader, writer = await asyncio.open_unix_connection(sock=control, limit=MAX_LINE_BYTES)
    first = await reader.readline()
    if not first:
        return True
    given = json.loads(first)
    if given["home"]:
        home.append(given["home"])
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    config = ServerConfig(given["settings"])
    for name, password in given["users"].items():
        add_user(given["directories"][0], name, password)
    clock = MovedClock(given["ahead_ms"])
    timers = MovableTimers(clock)
    disk = TestDisk(syncs=given["syncs"])
    counts = RuleCounts(given["counts"])
    async with (
        serving(given["directories"], config, fs=disk, clock=clock, later=timers.later, log_metrics=_metrics,
                worker_ports={int(one): ports for one, ports in given["worker_ports"].items()},
                telemetry=_receiver(given["pushed"])) as server,  # fmt: skip
        _registry(server, given) as registry,
    ):
        for name, partitions in given["topics"].items():
            if server.node.topics.get(name) is None:
                await server.node.topics.create(name, partitions)
        commands = Commands(
            server, given["directory"], counts, clock, timers, disk, None if registry is None else registry.registry
        )
        for command, values in given["commands"]:
            await commands.run(command, values)
        ports = {"registry_port": None if registry is None else registry.port}
        writer.write(_line({"result": _started(server) | ports}))
        answering = asyncio.create_task(_answer(reader, writer, commands))
        waiting = asyncio.create_task(stopping.wait())
        await asyncio.wait((answering, waiting), return_when=asyncio.FIRST_COMPLETED)
        is_orphaned = answering.done() and answering.result()
        is_signalled = not answering.done()
        for task in (answering, waiting):
            task.cancel()
    if is_signalled:  # perhaps the whole process group, as `timeout` does: then the test is about to end, too
        with suppress(OSError, TimeoutError):
            is_orphaned = not await asyncio.wait_for(reader.read(1), _SAME_SIGNAL_S)
    writer.close()
    return is_orphaned


def _registry(server: Server, given: Mapping[str, Any]) -> AbstractAsyncContextManager[NodeRegistry | None]:
    port = given["registry_port"]
    if port is None:
        return nullcontext(None)
    from kafkalog.testing.inside.registry import NodeRegistry  # few tests need it

    return NodeRegistry.serving(port, server, {int(node): one for node, one in given["registry_ports"].items()})


def _receiver(path: str | None) -> Receiver | None:
    if path is None:
        return None
    from kafkalog.testing.pushed import append  # few tests need it

    return partial(append, path)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, commands: Commands) -> bool:
    """Answer the test's calls until it asks for the end; return True if the test ended instead."""
    with suppress(OSError):
        while line := await reader.readline():
            call = json.loads(line)
            if call["call"] == STOP:
                return False
            try:
                answer: dict[str, Any] = {"result": await commands.run(call["call"], call["given"])}
            except (KafkalogError, OSError, TimeoutError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            except Exception as error:
                logging.getLogger(__name__).exception("the test's call %s failed", call["call"])
                answer = {"error": f"{type(error).__name__}: {error}"}
            writer.write(_line({**answer, "number": call["number"]}))
            await writer.drain()
    return True


def _metrics() -> str:
    from kafkalog.metrics import prometheus_text  # few tests ask for it

    return prometheus_text()


def _line(content: Mapping[str, object]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _started(server: Server) -> dict[str, object]:
    """Return the properties of the started server that the test needs."""
    ports = {one: server.ports.get(parse_endpoint(one).name) for one in server.config["listeners"]}
    listeners = ",".join(f"{one.strip().rpartition(':')[0]}:{port}" for one, port in ports.items() if port is not None)
    return {
        "ports": server.ports, "worker_ports": {} if server.node.workers is None else server.node.workers.ports,
        "listeners": listeners, "bootstrap": next(iter(server.addresses.values())),
        "http_port": None if server.http is None else server.http.port, "slips": server.config.slips(),
    }  # fmt: skip


def main(descriptor: int) -> None:
    """Run as a separate process, with the control socket at this descriptor."""
    serve(socket.socket(fileno=descriptor))


