# SPDX-License-Identifier: GPL-2.0-only
"""Pictures as a part of a page: names of their own, the page's colours, words for the blind."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from nodrop.report.look import COLOURS, FAINT, GRID, INK, PAPER

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_HREF = f"{{{_XLINK}}}href"
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_COLOURS = {
    **{colour: f"var(--{name})" for name, colour in COLOURS.items()},
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
}
_DROPPED = {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}


def _with_page_colours(text: str, colours: Mapping[str, str] = _COLOURS) -> str:
    for colour, variable in colours.items():
        text = text.replace(colour, variable)
    return text


def _own_names(element: ET.Element, prefix: str) -> None:
    """Make the names in a picture differ from those of all others on the page."""
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, prefix + value)
        elif key == _HREF:
            element.set(key, value.replace("#", f"#{prefix}", 1))
        else:
            element.set(key, value.replace("url(#", f"url(#{prefix}"))


def picture(text: str, prefix: str, title: str, description: str) -> str:
    """Return an SVG file's text as an element for a page.

    Args:
        text: what matplotlib wrote.
        prefix: begins all names in it; no other picture of the page has the same.
        title: its name.
        description: what it shows, for those who cannot see it.

    Raises:
        ValueError: it is not an SVG file.
    """
    try:
        root = ET.fromstring(_NOT_XML.sub("\ufffd", text))
    except ET.ParseError as error:
        raise ValueError(f"not an SVG file: {error}") from error
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in _DROPPED:
                parent.remove(child)
    for element in root.iter():
        _own_names(element, prefix)
        # Hatches say their colours in attributes, all else in its style.
        for key in ("style", "fill", "stroke"):
            if key in element.attrib:
                _paint(element, key)
    _name(root, prefix, title, description)
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    return ET.tostring(root, encoding="unicode")


def _paint(element: ET.Element, key: str) -> None:
    """Put the page's colours into a style; an attribute takes no variable and becomes one."""
    value = _with_page_colours(element.attrib[key])
    if key == "style":
        element.set(key, value)
    elif value != element.attrib[key]:
        del element.attrib[key]
        element.set("style", f"{key}: {value}; {element.get('style', '')}".rstrip("; "))


def _name(root: ET.Element, prefix: str, title: str, description: str) -> None:
    _, _, width, height = root.attrib.pop("viewBox").split()
    root.set("viewBox", f"0 0 {width} {height}")
    # Points, as matplotlib says, and no more than there is room for.
    root.set("width", f"{float(width):g}pt")
    root.attrib.pop("height", None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}title {prefix}desc")
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(f"{{{_SVG}}}{tag}", {"id": f"{prefix}{tag}"})
        element.text = _NOT_XML.sub("\ufffd", words)
        root.insert(place, element)
