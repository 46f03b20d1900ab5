"""What came of rule tests: text for people, JUnit XML for machines. Not for: deciding anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from service.rules.comparison import Line
from service.rules.play import Failure, FileResult, Played

#: What XML 1.0 cannot hold, however it is escaped.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT = " " * 6


def told(result: FileResult) -> Iterator[str]:
    """The lines for one file that could be played."""
    if all(played.passed for played in result.played):
        yield f"ok    {result.path}: {_count(len(result.played), 'scenario')}"
        return
    for played in result.played:
        if not played.passed:
            kind = "FAIL " if played.crash is None else "ERROR"
            yield f"{kind} {result.path}:{played.scenario.line}: {played.scenario.name}"
            yield from _failures(result, played)


def _failures(result: FileResult, played: Played) -> Iterator[str]:
    for failure in played.failures:
        yield f"{_INDENT}{result.path}:{failure.line}: {failure.what}"
        yield from _diff(failure)
    if played.crash is not None:
        yield f"{_INDENT}{result.path}:{played.crash.line}: the service failed: {played.crash.what}"


def _diff(failure: Failure) -> Iterator[str]:
    return (_INDENT + _line(line) for line in failure.diff)


def _line(line: Line) -> str:
    return f"    {line.text}" if line.sign == "@" else f"  {line.sign} {line.text}"


def summary(results: Sequence[FileResult]) -> str:
    """One line about all files."""
    played = [one for result in results for one in result.played]
    failed = sum(not one.passed for one in played)
    invalid = sum(result.error is not None for result in results)
    text = f"{_count(len(played), 'scenario')}: {len(played) - failed} passed, {failed} failed"
    return text + (f"; {_count(invalid, 'file')} not valid" if invalid else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def junit(results: Sequence[FileResult]) -> bytes:
    """A JUnit report: a suite a file, a case a scenario; a file that is not valid is a case with an error,
    and so is a scenario in which the service fails."""
    suites = ElementTree.Element("testsuites", name="rangewatch test")
    for result in results:
        suites.append(_suite(result))
    for count in ("tests", "failures", "errors"):
        suites.set(count, str(sum(int(suite.get(count, 0)) for suite in suites)))
    suites.set("time", _seconds(one.seconds for result in results for one in result.played))
    ElementTree.indent(suites)
    written: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written


def _suite(result: FileResult) -> ElementTree.Element:
    name = _xml(str(result.path))
    cases = [_case(result, played) for played in result.played]
    if result.error is not None:
        case = ElementTree.Element("testcase", name="is a rule test", classname=name, file=name, time="0.000")
        case.set("line", str(result.error.line))
        ElementTree.SubElement(case, "error", message=_xml(str(result.error)), type="invalid")
        cases.append(case)
    suite = ElementTree.Element("testsuite", name=name, file=name, tests=str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("errors", str(sum(case.find("error") is not None for case in cases)))
    suite.set("time", _seconds(played.seconds for played in result.played))
    suite.extend(cases)
    return suite


def _case(result: FileResult, played: Played) -> ElementTree.Element:
    name, file = _xml(played.scenario.name), _xml(str(result.path))
    case = ElementTree.Element("testcase", name=name, classname=file, file=file)
    case.set("line", str(played.scenario.line))
    case.set("time", _seconds([played.seconds]))
    if played.crash is not None:
        error = ElementTree.SubElement(case, "error", message=_xml(played.crash.what), type="crash")
        error.text = _xml("\n".join((*_failures(result, played), played.crash.trace)))
    elif played.failures:  # readers of this format know one failure a case
        first = f"{result.path}:{played.failures[0].line}: {played.failures[0].what}"
        failure = ElementTree.SubElement(case, "failure", message=_xml(first), type="difference")
        failure.text = _xml("\n".join(line.removeprefix(_INDENT) for line in _failures(result, played)))
    return case


def _seconds(seconds: Iterator[float] | Sequence[float]) -> str:
    return f"{sum(seconds):.3f}"


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
