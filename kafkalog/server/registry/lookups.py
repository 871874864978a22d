"""Requests that ask a registry, and change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kafkalog.server.registry.changing import found_version, given_schema, parsed_stored, same_schema
from kafkalog.server.registry.content import DEFAULT_LEVEL, Content
from kafkalog.server.registry.errors import INVALID_SCHEMA, RestError, no_schema, no_subject, no_version
from kafkalog.server.registry.levels import compared, level_incompatibilities
from kafkalog.server.registry.parsing import KINDS, parsed, serialized
from kafkalog.server.registry.records import Stored, references_json
from kafkalog.server.registry.requests import Request, version_number
from kafkalog.values.schemas.source import AVRO, PROTOBUF


def _schema_json(one: Stored) -> dict[str, Any]:
    made: dict[str, Any] = {"schema": one.text}
    if one.kind != AVRO:
        made["schemaType"] = one.kind
    if one.references:
        made["references"] = references_json(one.references)
    return made


def version_json(one: Stored) -> dict[str, Any]:
    """Return a version as the interface answers with it."""
    return {"subject": one.subject, "version": one.version, "id": one.id, **_schema_json(one)}


def _formatted(content: Content, one: Stored, request: Request) -> Stored:
    """Return a version with its text in the format that is asked for; only Protobuf has another one."""
    if one.kind == PROTOBUF and request.query.get("format") == "serialized":
        return one._replace(text=serialized(parsed_stored(content, one)))
    return one


def _chosen(content: Content, request: Request) -> list[Stored]:
    """Return the versions of the subjects that the query names: `subjectPrefix`, `deleted`, `deletedOnly`."""
    prefix, only = request.query.get("subjectPrefix", ""), request.flag("deletedOnly")
    return [
        one
        for one in content.all_versions()
        if one.subject.startswith(prefix)
        and (one.is_deleted if only else request.flag("deleted") or not one.is_deleted)
    ]


def _part(found: list[Any], request: Request) -> list[Any]:
    """Return the part of a list that `offset` and `limit` of the query choose."""
    numbers = {name: request.query.get(name, "-1") for name in ("offset", "limit")}
    for name, text in numbers.items():
        if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 19:
            raise RestError(422, f"The {name} is no number")
    start, limit = max(0, int(numbers["offset"])), int(numbers["limit"])
    return found[start:] if limit < 0 else found[start : start + limit]


def subjects(content: Content, request: Request) -> list[str]:
    """Answer `GET /subjects`."""
    chosen = _chosen(content, request)
    if request.flag("deletedOnly"):
        chosen = [one for one in chosen if not content.versions(one.subject)]
    return _part(list(dict.fromkeys(one.subject for one in chosen)), request)


def schemas(content: Content, request: Request) -> list[dict[str, Any]]:
    """Answer `GET /schemas`."""
    found = _chosen(content, request)
    if request.flag("latestOnly"):
        found = list({one.subject: one for one in found}.values())
    return _part([version_json(one) for one in found], request)


def versions(content: Content, subject: str, request: Request) -> list[int]:
    """Answer `GET /subjects/S/versions`."""
    only, deleted = request.flag("deletedOnly"), request.flag("deleted")
    known = content.versions(subject, deleted=only or deleted)
    found = [one.version for one in known if one.is_deleted or not only]
    if not found:
        raise no_subject(subject)
    return _part(found, request)


def version(content: Content, subject: str, text: str, request: Request) -> dict[str, Any]:
    """Answer `GET /subjects/S/versions/V`."""
    return version_json(
        _formatted(content, found_version(content, subject, text, deleted=request.flag("deleted")), request)
    )


def version_schema(content: Content, subject: str, text: str, request: Request) -> Any:
    """Answer `GET /subjects/S/versions/V/schema`: the schema alone."""
    one = found_version(content, subject, text, deleted=request.flag("deleted"))
    return _alone(_formatted(content, one, request))


def _alone(one: Stored) -> Any:
    if one.kind == PROTOBUF:
        return one.text
    try:
        return json.loads(one.text)
    except ValueError:  # the name of a type alone
        return one.text


def referenced_by(content: Content, subject: str, text: str) -> list[int]:
    """Answer `GET /subjects/S/versions/V/referencedby`: ids of schemas."""
    one = found_version(content, subject, text)
    return sorted({user.id for user in content.users_of(subject, one.version)})


def lookup(content: Content, subject: str, request: Request) -> dict[str, Any]:
    """Answer `POST /subjects/S`: the version that has a schema."""
    given = given_schema(content, request, is_new=False)
    known = content.versions(subject, deleted=request.flag("deleted"))
    if not known:
        raise no_subject(subject)
    made = parsed(content, given.kind, given.text, given.references)
    found = same_schema(content, given, made, known, normal=request.flag("normalize"))
    if found is None:
        raise no_schema()
    return version_json(found)


def compatibility(content: Content, subject: str, text: str | None, request: Request) -> dict[str, Any]:
    """Answer `POST /compatibility/subjects/S/versions/V`, or without V against all that the level asks for."""
    is_verbose = request.flag("verbose")
    earlier = content.versions(subject) if text is None else _compared_version(content, subject, text)
    try:
        given = given_schema(content, request, is_new=True)
        made = parsed(content, given.kind, given.text, given.references)
    except RestError as error:
        if not is_verbose or error.code != INVALID_SCHEMA:
            raise
        problems = [error.message]
    else:
        name = content.level(subject)
        others = [parsed_stored(content, one) for one in compared(name, earlier)]
        problems = level_incompatibilities(name, made, others)
    answer: dict[str, Any] = {"is_compatible": not problems}
    if is_verbose:
        answer["messages"] = problems
    return answer


def _compared_version(content: Content, subject: str, text: str) -> list[Stored]:
    """Return the version to compare a schema with, none for the latest of a subject that has none. RestError 40402."""
    if content.versions(subject):
        return [found_version(content, subject, text)]
    if version_number(text) is not None:
        raise no_version(text)
    return []


def _with_id(content: Content, text: str) -> list[Stored]:
    if not text.isdecimal() or not text.isascii() or len(text) > 10:
        raise no_schema(f"Schema {text:.60}")
    found = content.with_id(int(text))
    if not found:
        raise no_schema(f"Schema {text}")
    return found


def schema_of_id(content: Content, text: str, request: Request) -> dict[str, Any]:
    """Answer `GET /schemas/ids/N`, also for a version that is marked as deleted."""
    found = _with_id(content, text)[0]
    answer = _schema_json(_formatted(content, found, request))
    if request.flag("fetchMaxId"):
        answer["maxId"] = content.last_id
    return answer


def text_of_id(content: Content, text: str, request: Request) -> Any:
    """Answer `GET /schemas/ids/N/schema`."""
    return _alone(_formatted(content, _with_id(content, text)[0], request))


def _alive(found: Iterable[Stored], request: Request) -> list[Stored]:
    wanted = request.query.get("subject", "")
    return [
        one
        for one in found
        if (request.flag("deleted") or not one.is_deleted) and (not wanted or one.subject == wanted)
    ]


def subjects_of_id(content: Content, text: str, request: Request) -> list[str]:
    """Answer `GET /schemas/ids/N/subjects`."""
    return list(dict.fromkeys(one.subject for one in _alive(_with_id(content, text), request)))


def versions_of_id(content: Content, text: str, request: Request) -> list[dict[str, Any]]:
    """Answer `GET /schemas/ids/N/versions`."""
    found = _alive(_with_id(content, text), request)
    return [{"subject": one.subject, "version": one.version} for one in found]


def level(content: Content, subject: str | None, request: Request) -> dict[str, str]:
    """Answer `GET /config`."""
    if subject is None:
        return {"compatibilityLevel": content.levels.get(None, DEFAULT_LEVEL)}
    if subject not in content.levels and not request.flag("defaultToGlobal"):
        raise RestError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
    return {"compatibilityLevel": content.level(subject)}


def mode(content: Content, subject: str | None, request: Request) -> dict[str, str]:
    """Answer `GET /mode`."""
    if subject is not None and subject not in content.modes and not request.flag("defaultToGlobal"):
        raise RestError(40409, f"Subject '{subject}' does not have subject-level mode configured")
    return {"mode": content.mode(subject)}


def types() -> list[str]:
    """Answer `GET /schemas/types`."""
    return sorted(KINDS, reverse=True)
