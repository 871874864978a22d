"""Conditions on records: one small expression language, evaluated on Arrow columns (docs/where.md).

`parse` returns an Expression, `parse_field` a Field; `Expression.mask` evaluates it on a record batch, and
`Expression.bounds` is what follows from it. `Expression.names` are Names.

>>> from kafkalog import where
>>> expression = where.parse("offset >= 100 and key like 'eu-%'")
>>> expression.columns, expression.bounds().offsets
(('key', 'offset'), ((100, 9223372036854775808),))
"""

from kafkalog.where.bounds import Bounds
from kafkalog.where.expression import Expression, Names, parse, parse_field
from kafkalog.where.nodes import Field

__all__ = ["Bounds", "Expression", "Field", "Names", "parse", "parse_field"]
