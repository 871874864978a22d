"""Filters of ListTransactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kafkalog.server.txns.states import BY_TITLE, TransactionState
from kafkalog.server.txns.transaction import Transaction


def unknown_states(titles: Iterable[str]) -> list[str]:
    """Return the titles that are not names of states."""
    return [title for title in titles if title not in BY_TITLE]


def listed(
    transactions: Iterable[Transaction],
    titles: Collection[str],
    producer_ids: Collection[int],
    duration_ms: int,
    now_ms: int,
) -> Iterator[Transaction]:
    """Yield the transactions that pass all filters; an empty or negative filter accepts all (KIP-664, KIP-994).

    `duration_ms` accepts transactions that began more than this time ago, whether or not they have ended.
    """
    states = {BY_TITLE[title] for title in titles if title in BY_TITLE}
    for transaction in transactions:
        if transaction.state == TransactionState.DEAD:
            continue
        if titles and transaction.state not in states:
            continue
        if producer_ids and transaction.producer_id not in producer_ids:
            continue
        if duration_ms >= 0 and now_ms - transaction.start_ms <= duration_ms:
            continue
        yield transaction
