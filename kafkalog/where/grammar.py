"""The grammar of expressions, and the parser that makes a tree of a text."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.util.packages import needed
from kafkalog.util.text import shortened
from kafkalog.where.fields import checked_field
from kafkalog.where.nodes import (
    MAX_NUMBER,
    MIRRORED,
    And,
    Compare,
    Constant,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Matches,
    Node,
    Not,
    Or,
    Step,
    Truth,
)  # fmt: skip

if TYPE_CHECKING:
    from lark import Lark, Token

MAX_CHARACTERS: Final = 20_000
MAX_DEPTH: Final = 50
"""Most levels of `and`, `or` and `not` within each other."""
MAX_LITERALS: Final = 1_000
MAX_PATTERN: Final = 1_000
"""Most characters of a regular expression."""
MAX_DIGITS: Final = 50
"""Most digits of a whole number that is kept as an int."""
MAX_EXPONENT: Final = 400
_ALL_DIGITS: Final = Context(prec=MAX_NUMBER)

GRAMMAR: Final = r"""
?start: either
?field_only: field

?either: every | every (_OR every)+     -> either
?every: negated | negated (_AND negated)+    -> every
?negated: predicate | _NOT negated    -> negated
?predicate: "(" either ")"
    | operand COMPARISON operand    -> compare
    | operand _IN "(" literal ("," literal)* ")"    -> among
    | operand _NOT _IN "(" literal ("," literal)* ")"    -> not_among
    | operand _LIKE STRING    -> like
    | operand _NOT _LIKE STRING    -> not_like
    | operand _MATCHES STRING    -> matches
    | operand _NOT _MATCHES STRING    -> not_matches
    | operand _IS _NULL    -> is_null
    | operand _IS _NOT _NULL    -> is_not_null
    | operand    -> truth

?operand: field | literal
field: NAME ("." (NAME | QUOTED) | ELEMENT)*
literal: NUMBER | STRING | BYTES | TRUE | FALSE | _NULL

COMPARISON: "==" | "!=" | "<=" | ">=" | "<" | ">"
_OR.2: /or(?![\w$@-])/i
_AND.2: /and(?![\w$@-])/i
_NOT.2: /not(?![\w$@-])/i
_IN.2: /in(?![\w$@-])/i
_LIKE.2: /like(?![\w$@-])/i
_MATCHES.2: /matches(?![\w$@-])/i
_IS.2: /is(?![\w$@-])/i
_NULL.2: /null(?![\w$@-])/i
TRUE.2: /true(?![\w$@-])/i
FALSE.2: /false(?![\w$@-])/i
NAME: /[^\W\d][\w$@-]*/
ELEMENT: /\[[ \t\r\n]*(?:\*|-?[0-9]{1,9})[ \t\r\n]*\]/
QUOTED: /"(?:[^"]|"")*"/
NUMBER: /-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])/
STRING: /'(?:[^']|'')*'/
BYTES.3: /[xX]'(?:[0-9A-Fa-f]{2})*'/

%ignore /[ \t\r\n]+/
"""
_WORDS: Final = {
    "COMPARISON": "==, !=, <, <=, > or >=", "_OR": "or", "_AND": "and", "_NOT": "not", "_IN": "in", "_LIKE": "like",
    "_MATCHES": "matches", "_IS": "is", "_NULL": "null", "TRUE": "true", "FALSE": "false", "NAME": "a field",
    "QUOTED": "a name in double quotes", "ELEMENT": "[0] or [*]", "NUMBER": "a number",
    "STRING": "a string in single quotes", "BYTES": "x'…'",
    "LPAR": "(", "RPAR": ")", "DOT": ".", "COMMA": ",", "$END": "the end",
}  # fmt: skip
_START: Final = ("NAME", "LPAR", "_NOT")
_FIXES: Final = (
    ("&&", "write and"), ("||", "write or"), ("<>", "write !="), ("=", "write == to compare"), ("!", "write not"),
    ("'", "a string ends with a single quote; a quote inside is doubled"),
    ('"', "a string is in single quotes; double quotes are for names, and must be closed"),
    (";", "give one expression"), ("+", "there is no arithmetic"), ("-", "there is no arithmetic"),
    ("*", "there is no arithmetic"), ("/", "there is no arithmetic"),
    ("[", "[0] and [*] are parts of a path, as in value.items[0].sku; a list of constants is in parentheses"),
)  # fmt: skip


def parse_text(text: str) -> Node:
    """Return the tree of an expression; raise IllegalArgument, with the position, for one that is wrong."""
    return _parse(text, "start")  # type: ignore[no-any-return]


def parse_field_text(text: str) -> Field:
    """Return the field that `text` names, such as `value.order.total`; raise IllegalArgument."""
    return _parse(text, "field_only")  # type: ignore[no-any-return]


def _parse(text: str, start: str) -> Any:
    if not isinstance(text, str):
        raise TypeError(f"an expression is text, got {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise IllegalArgument(f"the expression has {len(text):,} characters, at most {MAX_CHARACTERS:,} are read")
    _check_text(text)
    parser = _parser(start)
    from lark.exceptions import UnexpectedInput

    try:
        return parser.parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error, start) from None


def _check_text(text: str) -> None:
    """Raise IllegalArgument for half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _refused(error.start, "this is no character that UTF-8 has", None) from None


@cache
def _parser(start: str) -> Lark:
    needed("lark", "expressions need the package lark, which is not installed", "arrow")
    from lark import Lark

    return Lark(GRAMMAR, start=start, parser="lalr", lexer="contextual", transformer=_maker(), maybe_placeholders=False)


def _syntax_error(text: str, error: Any, start: str) -> IllegalArgument:
    at = error.pos_in_stream
    token = getattr(error, "token", None)
    is_end = at is None or at < 0 or at >= len(text) or (token is not None and token.type == "$END")
    known = set(error.accepts or ()) if token is not None and error.accepts else set(getattr(error, "expected", ()))
    known |= set(getattr(error, "allowed", None) or ())
    wanted = [words for name, words in _WORDS.items() if name in known]
    if set(_START) <= known:
        hint: str | None = "a condition is expected, such as offset > 5"
    elif start == "field_only":
        hint = "give a field, such as value.order.total"
    else:
        hint = f"expected {', '.join(wanted[:-1])}{' or ' if len(wanted) > 1 else ''}{wanted[-1]}" if wanted else None
    if is_end:
        return _refused(len(text), "the expression ends too early" if text.strip() else "the expression is empty", hint)
    rest = text[at:]
    fix = next((words for sign, words in _FIXES if rest.startswith(sign)), None)
    return _refused(at, f"unexpected {_next_word(rest)}", fix or hint)


def _next_word(rest: str) -> str:
    """Return the next word of a text for an error message."""
    return repr(shortened((rest.split(None, 1) or [rest])[0], 20))


def _refused(at: int, what: str, hint: str | None) -> IllegalArgument:
    return IllegalArgument(f"{what}, at character {at + 1} of the expression", hint=hint)


def _maker() -> Any:
    """Return the callbacks that make the nodes; Lark is imported on first use."""
    from lark import Transformer, v_args

    @v_args(inline=True)
    class Maker(Transformer):  # type: ignore[type-arg]
        """Makes nodes of what the grammar found, from the inside out."""

        def either(self, *parts: Node) -> Node:
            return _shallow(Or(parts))

        def every(self, *parts: Node) -> Node:
            return _shallow(And(parts))

        def negated(self, part: Node) -> Node:
            return _shallow(Not(part))

        def compare(self, left: Field | Literal, sign: Token, right: Field | Literal) -> Node:
            return _compare(left, str(sign), right)

        def among(self, left: Field | Literal, *values: Literal) -> Node:
            return In(_of_field(left, "in"), _few(values))

        def not_among(self, left: Field | Literal, *values: Literal) -> Node:
            return Not(self.among(left, *values))

        def like(self, left: Field | Literal, pattern: Token) -> Node:
            return _like(_of_field(left, "like"), _string(pattern), pattern.start_pos or 0)

        def not_like(self, left: Field | Literal, pattern: Token) -> Node:
            return Not(self.like(left, pattern))

        def matches(self, left: Field | Literal, pattern: Token) -> Node:
            return _matches(_of_field(left, "matches"), _string(pattern), pattern.start_pos or 0)

        def not_matches(self, left: Field | Literal, pattern: Token) -> Node:
            return Not(self.matches(left, pattern))

        def is_null(self, left: Field | Literal) -> Node:
            return IsNull(_of_field(left, "is null"))

        def is_not_null(self, left: Field | Literal) -> Node:
            return Not(self.is_null(left))

        def truth(self, left: Field | Literal) -> Node:
            return Truth(_of_field(left, "a condition"))

        def field(self, *names: Token) -> Field:
            path = tuple(_name(one) for one in names)
            return checked_field(path, names[0].start_pos or 0)

        def literal(self, *tokens: Token) -> Literal:
            return _literal(tokens[0]) if tokens else Literal(None)

    return Maker()


def _shallow(node: Node) -> Node:
    """Return the node; raise IllegalArgument if it is nested too deeply, or has too many parts."""
    level: list[Node] = [node]
    depth = 0
    while level := [part for one in level for part in _parts(one)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise IllegalArgument(f"the expression is nested more than {MAX_DEPTH} levels deep")
        if len(level) > MAX_LITERALS:
            raise IllegalArgument(f"the expression has more than {MAX_LITERALS:,} parts")
    return node


def _parts(node: Node) -> Iterable[Node]:
    if isinstance(node, (And, Or)):
        return node.parts
    return (node.part,) if isinstance(node, Not) else ()


def _few(values: tuple[Literal, ...]) -> tuple[Literal, ...]:
    if len(values) > MAX_LITERALS:
        raise IllegalArgument(f"a list has {len(values):,} values, at most {MAX_LITERALS:,} are read")
    return values


def _of_field(left: Field | Literal, what: str) -> Field:
    if isinstance(left, Field):
        return left
    raise _refused(left.position, f"{left} is a constant", f"{what} needs a field on its left, such as value.total")


def _compare(left: Field | Literal, sign: str, right: Field | Literal) -> Node:
    for one in (left, right):
        if isinstance(one, Literal) and one.value is None:
            raise IllegalArgument(f"nothing is {sign} null", hint="write is null, or is not null")
    if isinstance(left, Field):
        return Compare(sign, left, right)
    return Compare(MIRRORED[sign], _of_field_right(right, left), left)


def _of_field_right(right: Field | Literal, left: Literal) -> Field:
    if isinstance(right, Field):
        return right
    raise _refused(left.position, f"{left} and {right} are constants", "one side of a comparison is a field")


def _name(token: Token) -> str:
    if token.type == "ELEMENT":
        text = token[1:-1].strip()
        return Step(None if text == "*" else int(text))
    if token.type == "QUOTED":
        name = token[1:-1].replace('""', '"')
        if not name:
            raise _refused(token.start_pos or 0, "a name is empty", None)
        return name
    return str(token)


def _string(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _literal(token: Token) -> Literal:
    at = token.start_pos or 0
    value: Constant
    if token.type == "STRING":
        value = _string(token)
    elif token.type == "BYTES":
        value = bytes.fromhex(token[2:-1])
    elif token.type == "NUMBER":
        value = _number(str(token), at)
    else:
        value = token.type == "TRUE"
    return Literal(value, at)


def _number(text: str, at: int) -> int | Decimal:
    """Return an int where the text is a whole number; limits keep every later computation small."""
    if len(text) > MAX_NUMBER:
        raise _refused(at, f"a number has {len(text)} characters", f"at most {MAX_NUMBER} are read")
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("Infinity")
    if not number.is_finite() or (number and abs(number.adjusted()) > MAX_EXPONENT):
        raise _refused(at, f"{text} is beyond every type", f"exponents go from -{MAX_EXPONENT} to {MAX_EXPONENT}")
    if number == number.to_integral_value() and number.adjusted() < MAX_DIGITS:
        return int(number)
    return number.normalize(_ALL_DIGITS) if number.adjusted() < MAX_DIGITS else number


def _like(field: Field, pattern: str, at: int) -> Node:
    place = 0
    while (place := pattern.find("\\", place)) >= 0:
        if pattern[place + 1 : place + 2] not in ("\\", "%", "_"):
            raise _refused(
                at + 1 + place, "a backslash in a pattern of like stands before %, _ or another backslash",
                r"write \\ for a backslash",
            )  # fmt: skip
        place += 2
    return Like(field, pattern, at)


def _matches(field: Field, pattern: str, at: int) -> Node:
    if len(pattern) > MAX_PATTERN:
        raise _refused(at, f"a regular expression has {len(pattern):,} characters", f"at most {MAX_PATTERN:,} are read")
    return Matches(field, pattern, at)
