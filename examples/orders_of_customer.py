"""All orders of one customer, from a topic whose keys are customers, without reading the whole topic.

    python orders_of_customer.py data orders alice              prints each order: "0 17 2026-01-31T12:00:00Z 3 pears"
    python orders_of_customer.py data orders alice bob --last   prints the last order of each

The first run builds key indexes in `orders.keys` beside the program's data (--index DIR); later ones read only the
records of the customer. The directory of the broker is only read, and nothing is written into it.
"""

import argparse
import sys
from pathlib import Path

import kafkalog


def orders(path: Path, index: Path, customers: list[bytes], last: bool) -> list[kafkalog.Record]:
    """The orders of the customers in one partition."""
    with kafkalog.open(path, key_index=index) as log:
        log.build_key_index()  # only for segments that have none that fits
        if last:
            return [record for record in log.get_many(customers) if record is not None]
        return [record for customer in customers for record in log.history(customer)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("topic")
    parser.add_argument("customers", nargs="+", metavar="CUSTOMER")
    parser.add_argument("--last", action="store_true", help="only the last order of each")
    parser.add_argument("--index", type=Path, default=Path("orders.keys"), metavar="DIR")
    args = parser.parse_args()
    found = 0
    customers = [customer.encode() for customer in args.customers]
    for path in sorted(args.directory.glob(f"{args.topic}-[0-9]*")):
        for record in orders(path, args.index, customers, args.last):
            found += 1
            when = "" if record.datetime is None else f"{record.datetime:%Y-%m-%dT%H:%M:%SZ}"
            value = (record.value or b"-").decode("utf-8", "backslashreplace")
            print(path.name.rpartition("-")[2], record.offset, when, value)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
