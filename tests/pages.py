"""Content of a page, read as a browser would: open tags, names, attributes, text."""

from html.parser import HTMLParser


class Shape(HTMLParser):
    """Tags that were opened and never closed, those that are there, attributes that could fetch, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def shape_of(html: str) -> Shape:
    shape = Shape()
    shape.feed(html)
    shape.close()
    return shape
