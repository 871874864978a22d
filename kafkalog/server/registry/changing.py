"""Requests that change a registry: each is decided from its content, as the records to append and the answer."""

from __future__ import annotations

from kafkalog.server.registry.content import Content
from kafkalog.server.registry.errors import INVALID_SCHEMA, RestError, invalid_schema, no_subject, no_version
from kafkalog.server.registry.levels import LEVELS, compared, level_incompatibilities
from kafkalog.server.registry.parsing import Parsed, parsed
from kafkalog.server.registry.records import (
    Stored,
    TopicRecord,
    config_record,
    delete_subject_record,
    noop_record,
    removal_record,
    schema_record,
)
from kafkalog.server.registry.requests import Given, Plan, Request, version_number
from kafkalog.values.schemas.source import PROTOBUF, Reference

_WRITABLE = ("READWRITE", "IMPORT")


def parsed_stored(content: Content, one: Stored) -> Parsed:
    """Return a stored version, parsed. RestError if it is no schema, which another registry may have stored."""
    return parsed(content, one.kind, one.text, one.references)


def check_writable(content: Content, subject: str | None) -> None:
    """Raise RestError 42205 if the mode forbids changes."""
    mode = content.mode(subject)
    if mode not in _WRITABLE:
        raise RestError(42205, f"Subject {subject} is in {mode.lower().replace('_', '-')} mode")


def given_schema(content: Content, request: Request, *, is_new: bool) -> Given:
    """Return the schema of a request; the number of the latest version stands for -1 in its references.

    RestError 42201 for a reference to the latest version of no subject, or if a new schema refers to a version that is
    marked as deleted.
    """
    given = request.schema()
    return given._replace(references=tuple(_numbered(content, one, is_new=is_new) for one in given.references))


def _numbered(content: Content, one: Reference, *, is_new: bool) -> Reference:
    if one.version == -1:
        versions = content.versions(one.subject) or content.versions(one.subject, deleted=not is_new)
        if not versions:
            raise invalid_schema(f"the latest version of {one.subject} is missing")
        return one._replace(version=versions[-1].version)
    found = content.version(one.subject, one.version)
    if is_new and found is not None and found.is_deleted:
        raise invalid_schema(f"version {one.version} of {one.subject} is marked as deleted")
    return one


def same_schema(content: Content, given: Given, made: Parsed, known: list[Stored], *, normal: bool) -> Stored | None:
    """Return the latest of these versions that has the given schema. Spaces of Protobuf text do not matter."""
    alike = [one for one in reversed(known) if (one.kind, one.references) == (given.kind, given.references)]
    texts = (made.text, made.normal if normal else made.text)
    found = next((one for one in alike if one.text in texts), None)
    if found is None and (normal or given.kind == PROTOBUF):
        found = next((one for one in alike if _has_normal_form(content, one, made.normal)), None)
    return found


def _has_normal_form(content: Content, one: Stored, form: str) -> bool:
    """Return True if this is the normal form of a stored version; one that is no schema has none."""
    try:
        return parsed_stored(content, one).normal == form
    except RestError as error:
        if error.code != INVALID_SCHEMA:
            raise
        return False


def register(content: Content, subject: str, request: Request) -> Plan:
    """Decide `POST /subjects/S/versions`: a new version, unless the subject has the schema already."""
    given, normal = given_schema(content, request, is_new=True), request.flag("normalize")
    made = parsed(content, given.kind, given.text, given.references)
    known = content.versions(subject)
    found = same_schema(content, given, made, known, normal=normal)
    if found is not None and given.id in (None, found.id):
        return Plan({"id": found.id})
    check_writable(content, subject)
    if given.id is not None and content.mode(subject) != "IMPORT":
        raise RestError(42205, f"Subject {subject} is not in import mode, so that an id cannot be given")
    level = content.level(subject)
    earlier = [parsed_stored(content, one) for one in compared(level, known)]
    if problems := level_incompatibilities(level, made, earlier):
        text = f"Schema being registered is incompatible with an earlier schema for subject \"{subject}\""
        raise RestError(409, f"{text}, details: [{'; '.join(problems[:20])}]")
    new = Stored(subject, 0, 0, made.kind, made.normal if normal else made.text, given.references)
    number = _new_number(content, subject, given)
    id = given.id or content.id_of(new) or content.last_id + 1
    if given.id is not None and any(one.schema != new.schema for one in content.with_id(id)):
        raise RestError(42205, f"Overwrite new schema with id {id} is not permitted.")
    return Plan({"id": id}, (schema_record(new._replace(version=number, id=id)),))


def _new_number(content: Content, subject: str, given: Given) -> int:
    """Return the number of a new version. Only an import may choose it, and none replaces a version that there is."""
    versions = content.versions(subject, deleted=True)
    number = versions[-1].version + 1 if versions else 1
    wanted = number if given.version is None else given.version
    if wanted != number and content.mode(subject) != "IMPORT":
        raise invalid_schema("Version is not one more than previous version")
    if content.version(subject, wanted) is not None:
        raise RestError(42205, f"Subject {subject} has a version {wanted}, which cannot be replaced")
    return wanted


def found_version(content: Content, subject: str, text: str, *, deleted: bool = False) -> Stored:
    """Return a version by number or "latest". RestError 40401, 40402, 42202."""
    number = version_number(text)
    known = content.versions(subject, deleted=deleted)
    if not known:
        raise no_subject(subject)
    # the latest is one marked as deleted only if there is no other
    one = (content.versions(subject) or known)[-1] if number is None else content.version(subject, number)
    if one is None or (one.is_deleted and not deleted):
        raise no_version(text)
    return one


def _check_unused(content: Content, versions: list[Stored]) -> None:
    for one in versions:
        if content.users_of(one.subject, one.version):
            key = f"{{magic=1,keytype=SCHEMA,subject={one.subject},version={one.version}}}"
            raise RestError(42206, f"One or more references exist to the schema {key}.")


def _removals(content: Content, versions: list[Stored]) -> tuple[TopicRecord, ...]:
    """Return the records that remove versions; compaction drops all of them but the first, which keeps the last id."""
    return noop_record(content.last_id), *(removal_record(one) for one in versions)


def delete_version(content: Content, subject: str, text: str, request: Request) -> Plan:
    """Decide `DELETE /subjects/S/versions/V`."""
    permanent = request.flag("permanent")
    one = found_version(content, subject, text, deleted=True)
    check_writable(content, subject)
    _check_unused(content, [one])
    if permanent:
        if not one.is_deleted:
            raise RestError(40407, f"Subject '{subject}' Version {one.version} was not deleted first before being "
                                   "permanently deleted")  # fmt: skip
        return Plan(one.version, _removals(content, [one]))
    if one.is_deleted:
        raise RestError(40406, f"Subject '{subject}' Version {one.version} was soft deleted. Set permanent=true to "
                               "delete permanently")  # fmt: skip
    return Plan(one.version, (schema_record(one._replace(is_deleted=True)),))


def delete_subject(content: Content, subject: str, request: Request) -> Plan:
    """Decide `DELETE /subjects/S`: mark its versions as deleted, or remove them for good."""
    versions = content.versions(subject, deleted=True)
    current = content.versions(subject)
    if not versions:
        raise no_subject(subject)
    check_writable(content, subject)
    _check_unused(content, versions)
    if request.flag("permanent"):
        if current:
            raise RestError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        return Plan([one.version for one in versions], _removals(content, versions))
    if not current:
        raise RestError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")
    records = [delete_subject_record(subject, current[-1].version)]
    if subject in content.levels:
        records.append(config_record(subject, None))
    return Plan([one.version for one in current], tuple(records))


def put_level(content: Content, subject: str | None, request: Request) -> Plan:
    """Decide `PUT /config`."""
    level = request.content().get("compatibility")
    name = level.upper() if isinstance(level, str) else ""
    if name not in LEVELS:
        raise RestError(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
    check_writable(content, subject)
    return Plan({"compatibility": name}, (config_record(subject, name),))


def delete_level(content: Content, subject: str | None) -> Plan:
    """Decide `DELETE /config`: answer with the level that applied until then."""
    if subject is None:
        level = content.levels.get(None, "BACKWARD")
        return Plan({"compatibility": level}, (config_record(None, None),) if None in content.levels else ())
    if subject not in content.levels:
        raise RestError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
    check_writable(content, subject)
    return Plan({"compatibility": content.levels[subject]}, (config_record(subject, None),))
