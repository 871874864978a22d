"""A REST catalog on loopback: another catalog behind the calls of the protocol that a sync makes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest

STATUSES = {CommitFailedException: 409, NoSuchTableError: 404, NoSuchNamespaceError: 404}


def respond(catalog: Catalog, method: str, parts: list[str], body: bytes) -> dict[str, Any]:
    """The response to a call."""
    if parts == ["v1", "config"]:
        return {"defaults": {}, "overrides": {}}
    namespace = parts[2] if len(parts) > 2 else ""
    if parts[1:] == ["namespaces"]:
        catalog.create_namespace(tuple(json.loads(body)["namespace"]))
        return json.loads(body) | {"properties": {}}
    if len(parts) == 3:
        return {"namespace": [namespace], "properties": catalog.load_namespace_properties(namespace)}
    if len(parts) == 4:
        asked = CreateTableRequest.model_validate({"location": None, "write-order": None} | json.loads(body))
        table: Any = catalog._create_staged_table(  # type: ignore[attr-defined]
            f"{namespace}.{asked.name}", asked.table_schema, asked.location,
            asked.partition_spec or UNPARTITIONED_PARTITION_SPEC, properties=asked.properties,
        )  # fmt: skip
        return {"metadata": json.loads(table.metadata.model_dump_json()), "config": {}}
    name = f"{namespace}.{parts[4]}"
    if method == "POST":
        request, table = CommitTableRequest.model_validate_json(body), Named(namespace, parts[4])
        done = catalog.commit_table(table, request.requirements, request.updates)  # type: ignore[arg-type]
        return {
            "metadata-location": done.metadata_location, "metadata": json.loads(done.metadata.model_dump_json()),
        }  # fmt: skip
    table = catalog.load_table(name)
    return {
        "metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }  # fmt: skip


class Named(NamedTuple):
    """A table that a commit changes or creates."""

    namespace: str
    table: str

    def name(self) -> tuple[str, ...]:
        return tuple(self)


@contextmanager
def rest_catalog(catalog: Catalog) -> Iterator[str]:
    """The URI at which the catalog is served."""
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0].strip("/").split("/")
            try:
                with one_at_a_time:
                    status, tree = 200, respond(catalog, self.command, path, body)
            except Exception as error:
                status = STATUSES.get(type(error), 500)
                tree = {"error": {"message": str(error), "type": type(error).__name__, "code": status}}
            content = b"" if self.command == "HEAD" else json.dumps(tree).encode()
            self.send_response(204 if status == 200 and self.command == "HEAD" else status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_HEAD = answer

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
