"""A conversation about share groups, the same with a broker and with kafkalog's server; each step yields its answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.interop.group_members import LIMIT_S, asked
from tests.interop.share_calls import Link, Talker, as_dict

Step = tuple[str, Any]
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def conversation(talker: Talker) -> Iterator[Step]:
    """Everything, in order."""
    talker.topic_id = talker.make_topic()
    talker.set_group("g", share_auto_offset_reset="earliest", share_delivery_count_limit="3")
    with Link(talker.bootstrap) as link, Link(talker.bootstrap) as other:
        yield from _joining(talker, link)
        yield from _sessions(talker, link)
        yield from _acknowledging(talker, link, other)
        yield from _delivery_counts(talker, link)
        yield from _limits(talker, link)
        yield from _renewals(talker, link)
    yield from _leaving(talker)
    yield from _offsets(talker)
    for topic, copies in (("dlq.bare", "false"), ("dlq.copied", "true")):
        yield from _dead_letters(talker, topic, copies)
    yield from _without_the_feature(talker)


def _joining(talker: Talker, link: Link) -> Iterator[Step]:
    beat = talker.beat
    asked(talker.bootstrap, "list_groups", 5, {"states_filter": [], "types_filter": []})  # until groups are loaded
    yield "no group id", as_dict(beat(link, "m", 0, "t", group=""))
    yield "no member id", as_dict(beat(link, "", 0, "t"))
    yield "no topics", as_dict(beat(link, "m", 0))
    yield "empty rack", as_dict(beat(link, "m", 0, "t", rack=""))
    yield "epoch -2", as_dict(beat(link, "m", -2, "t"))
    yield "unknown group", as_dict(beat(link, "m", 3, "t"))
    yield "leaving an unknown group", as_dict(beat(link, "m", -1))
    joined = talker.join(link, "m1", "t")
    yield "the next heartbeat", _without_epoch(beat(link, "m1", joined))
    yield "a member epoch that is to come", as_dict(beat(link, "m1", joined + 5))["error_code"]
    yield "an epoch of long ago", as_dict(beat(link, "m1", -5))
    yield "a stranger", as_dict(beat(link, "stranger", joined))
    yield "described", _without_epoch(asked(talker.bootstrap, "share_group_describe", 1, {
        "group_ids": ["g", "none"], "include_authorized_operations": True,
    }))  # fmt: skip
    yield "listed", as_dict(asked(talker.bootstrap, "list_groups", 5, {"states_filter": [], "types_filter": ["share"]}))


def _without_epoch(answer: Any) -> Any:
    """Return the answer without the members' epochs, which depend on how fast states are stored."""
    def strip(one: Any) -> Any:
        if isinstance(one, dict):
            return {name: strip(value) for name, value in one.items() if name != "member_epoch"}
        return [strip(value) for value in one] if isinstance(one, list) else one

    return strip(as_dict(answer))


def _sessions(talker: Talker, link: Link) -> Iterator[Step]:
    fetch, acknowledge = talker.fetch, talker.acknowledge
    yield "no session", as_dict(fetch(link, "m1", 3))
    yield "no session to end", as_dict(fetch(link, "m1", -1))
    yield "no session to acknowledge in", as_dict(acknowledge(link, "m1", 1, (0, 0, ACCEPT)))
    yield "acknowledged with epoch 0", as_dict(acknowledge(link, "m1", 0, (0, 0, ACCEPT)))
    yield "acknowledged in the first fetch", as_dict(fetch(link, "m1", 0, (0, 0, ACCEPT)))
    yield "without a member", as_dict(fetch(link, "", 0))
    yield "a member id that is too long", as_dict(fetch(link, "m" * 37, 0))
    yield "the first fetch", as_dict(fetch(link, "m1", 0))["error_code"]
    yield "an epoch that is to come", as_dict(fetch(link, "m1", 2))
    yield "nothing to read", as_dict(fetch(link, "m1", 1))
    yield "an epoch that is used", as_dict(fetch(link, "m1", 1))


def _acknowledging(talker: Talker, link: Link, other: Link) -> Iterator[Step]:
    fetch, acknowledge = talker.fetch, talker.acknowledge
    talker.produce(4, 6)
    yield "ten records", as_dict(fetch(link, "m1", 2, max_wait=5000))
    yield "no more", as_dict(fetch(link, "m1", 3))
    talker.join(other, "m2", "t")
    yield "nothing for another", as_dict(fetch(other, "m2", 0))
    yield "of another member", as_dict(acknowledge(other, "m2", 1, (0, 1, ACCEPT)))
    yield "no types", as_dict(acknowledge(link, "m1", 4, (0, 1)))
    yield "too few types", as_dict(acknowledge(link, "m1", 5, (0, 2, ACCEPT, ACCEPT)))
    yield "an unknown type", as_dict(acknowledge(link, "m1", 6, (0, 1, 7)))
    yield "the wrong way round", as_dict(acknowledge(link, "m1", 7, (3, 1, ACCEPT)))
    yield "overlapping", as_dict(acknowledge(link, "m1", 8, (0, 3, ACCEPT), (2, 4, ACCEPT)))
    yield "behind the end", as_dict(acknowledge(link, "m1", 9, (20, 21, ACCEPT)))
    yield "over the end", as_dict(acknowledge(link, "m1", 10, (8, 12, ACCEPT)))
    yield "an unknown topic", as_dict(acknowledge(link, "m1", 11, (0, 0, ACCEPT), topic_id=_other_id(talker.topic_id)))
    yield "an unknown partition", as_dict(acknowledge(link, "m1", 12, (0, 0, ACCEPT), index=7))
    yield "each type", as_dict(acknowledge(link, "m1", 13, (0, 3, ACCEPT, RELEASE, REJECT, 0), (4, 5, ACCEPT)))
    yield "again", as_dict(acknowledge(link, "m1", 14, (0, 0, ACCEPT)))
    yield "acquired and not", as_dict(acknowledge(link, "m1", 15, (5, 6, ACCEPT)))
    yield "the start moves", as_dict(talker.offsets())
    yield "the released one, for another", as_dict(fetch(other, "m2", 2))
    yield "not any more", as_dict(acknowledge(link, "m1", 16, (1, 1, ACCEPT)))
    yield "with a fetch", as_dict(fetch(other, "m2", 3, (1, 1, ACCEPT)))
    yield "the start has moved", as_dict(talker.offsets())
    yield "the end of a session", as_dict(acknowledge(other, "m2", -1))
    yield "it has ended", as_dict(acknowledge(other, "m2", 4, (6, 6, ACCEPT)))
    yield "unknown partition", as_dict(fetch(link, "m1", 17, index=9))
    yield "unknown topic", as_dict(fetch(link, "m1", 18, topic_id=_other_id(talker.topic_id)))


def _other_id(topic_id: Any) -> Any:
    return type(topic_id)(int=topic_id.int ^ 1)


def _delivery_counts(talker: Talker, link: Link) -> Iterator[Step]:
    fetch, acknowledge = talker.fetch, talker.acknowledge
    yield "the last four are released", as_dict(acknowledge(link, "m1", 19, (6, 9, RELEASE)))
    yield "the second time", as_dict(fetch(link, "m1", 20))
    yield "ending releases them", as_dict(fetch(link, "m1", -1))
    found, epoch = talker.first_records(link, "m1")
    yield "the second time again", as_dict(found)
    yield "released", as_dict(acknowledge(link, "m1", epoch, (6, 9, RELEASE)))
    for offset in range(6, 10):  # the third time, one by one, the first of them with the fetch before
        max_wait = 5000 if offset < 9 else 0
        yield f"the one after {offset} comes alone", as_dict(fetch(link, "m1", epoch + 1, max_wait=max_wait))
        yield f"{offset} is released for good", as_dict(acknowledge(link, "m1", epoch + 2, (offset, offset, RELEASE)))
        epoch += 2
    yield "no fourth time", as_dict(fetch(link, "m1", epoch + 1))
    talker.epoch = epoch + 1
    yield "the lag is 0", as_dict(talker.offsets())


def _limits(talker: Talker, link: Link) -> Iterator[Step]:
    fetch, epochs = talker.fetch, count(talker.epoch + 1)
    talker.produce(3, 3, 3)
    yield "a batch at least", as_dict(fetch(link, "m1", next(epochs), max_records=1, batch_size=1))
    for which in ("first", "second"):
        found = fetch(link, "m1", next(epochs), max_records=1, batch_size=1, share_acquire_mode=1)
        yield f"exactly one, the {which} time", as_dict(found)
    yield "the rest in rows", as_dict(fetch(link, "m1", next(epochs), max_records=100, batch_size=1))
    yield "all accepted", as_dict(talker.acknowledge(link, "m1", next(epochs), (10, 18, ACCEPT)))
    talker.epoch = next(epochs) - 1


def _renewals(talker: Talker, link: Link) -> Iterator[Step]:
    acknowledge, fetch, epochs = talker.acknowledge, talker.fetch, count(talker.epoch + 1)
    talker.produce(2)
    renewal = (19, 20, RENEW)
    yield "two", as_dict(fetch(link, "m1", next(epochs), max_wait=5000))
    yield "renewed", as_dict(acknowledge(link, "m1", next(epochs), renewal, is_renew_ack=True))
    yield "renewed without the flag", as_dict(acknowledge(link, "m1", next(epochs), renewal))
    nothing = {"max_bytes": 0, "max_records": 0, "min_bytes": 0, "batch_size": 0}
    yield "renewed in a fetch", as_dict(fetch(link, "m1", next(epochs), renewal, is_renew_ack=True, **nothing))
    epoch = next(epochs)
    yield "renewed in a fetch that wants records", as_dict(fetch(link, "m1", epoch, renewal, is_renew_ack=True))
    yield "in an older version", as_dict(acknowledge(link, "m1", epoch, renewal, version=1))
    talker.set_group("g", share_renew_acknowledge_enable="false")
    yield "not enabled", as_dict(acknowledge(link, "m1", next(epochs), renewal, is_renew_ack=True))
    yield "accepted", as_dict(acknowledge(link, "m1", next(epochs), (19, 20, ACCEPT)))


def _leaving(talker: Talker) -> Iterator[Step]:
    with Link(talker.bootstrap) as link:
        start = [{"partition_index": 0, "start_offset": 3}]
        alter = {"group_id": "g", "topics": [{"topic_name": "t", "partitions": start}]}
        delete = {"group_id": "g", "topics": [{"topic_name": "t"}]}
        yield "alter while it is used", as_dict(link.ask("alter_share_group_offsets", 0, alter))
        yield "delete while it is used", as_dict(link.ask("delete_share_group_offsets", 0, delete))
        yield "delete a group in use", as_dict(asked(talker.bootstrap, "delete_groups", 2, {"groups_names": ["g"]}))
        for member in ("m1", "m2"):
            yield f"{member} leaves", as_dict(talker.beat(link, member, -1))
        yield "m1 leaves again", as_dict(talker.beat(link, "m1", -1))
        yield "empty", as_dict(asked(talker.bootstrap, "share_group_describe", 1, {
            "group_ids": ["g"], "include_authorized_operations": False,
        }))  # fmt: skip


def _offsets(talker: Talker) -> Iterator[Step]:
    with Link(talker.bootstrap) as link:
        rows = [{"partition_index": index, "start_offset": 3} for index in (0, 5)]
        topics = [{"topic_name": "t", "partitions": rows}, {"topic_name": "x", "partitions": rows[:1]}]
        for group in ("g", "none"):
            tree = {"group_id": group, "topics": topics}
            yield f"alter {group}", as_dict(link.ask("alter_share_group_offsets", 0, tree))
            wanted = [{"topic_name": "t", "partitions": [0]}, {"topic_name": "x", "partitions": [0]}]
            yield f"offsets of {group}", as_dict(talker.offsets(group, wanted))
        talker.join(link, "m3", "t", group="none")
        yield "from there", as_dict(talker.first_records(link, "m3", group_id="none")[0])
        yield "left", as_dict(talker.beat(link, "m3", -1, group="none"))
        for start in (-(2**63), -2, 100, 2**63 - 1):
            tree = {"group_id": "none", "topics": [_starts(start)]}
            yield f"alter to {start}", as_dict(link.ask("alter_share_group_offsets", 0, tree))
            yield f"the lag from {start}", as_dict(talker.offsets("none"))
        for group in ("g", "none", "nobody"):
            tree = {"group_id": group, "topics": [{"topic_name": "t"}, {"topic_name": "x"}]}
            yield f"delete offsets of {group}", as_dict(link.ask("delete_share_group_offsets", 0, tree))
        yield "no offsets", as_dict(talker.offsets())
        groups = {"groups_names": ["g", "none", "nobody"]}
        yield "deleted", as_dict(asked(talker.bootstrap, "delete_groups", 2, groups))
        yield "gone", as_dict(talker.offsets())


def _dead_letters(talker: Talker, topic: str, copies: str) -> Iterator[Step]:
    source, group = f"from-{topic}", f"group-{topic}"
    talker.make_topic(topic, 2, errors_deadletterqueue_group_enable="true")
    of_it = {"topic_id": talker.make_topic(source), "group_id": group}
    talker.set_group(group, errors_deadletterqueue_topic_name=topic, errors_deadletterqueue_copy_record_enable=copies,
                     share_auto_offset_reset="earliest", share_delivery_count_limit="2")  # fmt: skip
    talker.produce(6, topic=source)
    with Link(talker.bootstrap) as link:
        talker.join(link, "m1", source, group=group)
        found, epoch = talker.first_records(link, "m1", **of_it)
        yield f"six for {topic}", as_dict(found)
        given = (0, 1, REJECT), (2, 2, ACCEPT), (3, 5, RELEASE)
        yield f"ended for {topic}", as_dict(talker.acknowledge(link, "m1", epoch, *given, **of_it))
        yield f"letters in {topic}", talker.letters(topic, 2)
        yield f"three again for {topic}", as_dict(talker.fetch(link, "m1", epoch + 1, max_wait=5000, **of_it))
        given = (3, 3, ACCEPT), (4, 4, REJECT), (5, 5, RELEASE)
        yield f"the last time for {topic}", as_dict(talker.acknowledge(link, "m1", epoch + 2, *given, **of_it))
        yield f"more letters in {topic}", talker.letters(topic, 4)
        yield f"no more for {topic}", as_dict(talker.fetch(link, "m1", epoch + 3, max_wait=0, **of_it))
        deadline = time.monotonic() + LIMIT_S
        while (found := talker.offsets(group)).groups[0].topics[0].partitions[0].lag:
            assert time.monotonic() < deadline, found
        yield f"m1 leaves {group}", as_dict(talker.beat(link, "m1", -1, group=group))
    yield f"{group} is deleted", as_dict(asked(talker.bootstrap, "delete_groups", 2, {"groups_names": [group]}))


def _starts(start: int) -> dict[str, Any]:
    return {"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": start}]}


def _without_the_feature(talker: Talker) -> Iterator[Step]:
    talker.set_feature("share.version", 0)
    with Link(talker.bootstrap) as link:
        deadline = time.monotonic() + LIMIT_S
        while not talker.offsets().groups[0].error_code:  # a broker reads its metadata later
            assert time.monotonic() < deadline, "the feature is still on"
        yield "offsets without the feature", as_dict(talker.offsets())
        tree = {"group_id": "g", "topics": [_starts(0)]}
        yield "alter without the feature", as_dict(link.ask("alter_share_group_offsets", 0, tree))
        tree = {"group_id": "g", "topics": [{"topic_name": "t"}]}
        yield "delete without the feature", as_dict(link.ask("delete_share_group_offsets", 0, tree))
    talker.set_feature("share.version", 2)
    while talker.offsets().groups[0].error_code:
        assert time.monotonic() < deadline, "the feature is still off"
