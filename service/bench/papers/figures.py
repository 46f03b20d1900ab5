"""What figures of the papers have in common: curves over a parameter, judged by themselves alone.

Not for: what is measured, and how (each paper's own modules).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from service.bench.experiment import Result

Curves = Mapping[str, Sequence[float]]
"""By the name of a curve, what was measured, setting by setting."""
Judge = Callable[[Sequence[float], Curves], tuple[bool, str]]
"""From the values of the parameter and the curves: whether the finding holds, and what was found."""
Series = Mapping[str, Sequence[tuple[float, float]]]


def series(x: Sequence[float], curves: Curves) -> Series:
    """The curves as points."""
    return {name: list(zip(x, curve, strict=True)) for name, curve in curves.items()}


def judged(
    parameter: str,
    drawn: str,
    x: Sequence[float],
    curves: Curves,
    rows: Sequence[Mapping[str, float | int | str]],
    digest: str,
    judge: Judge,
) -> Result:
    """The outcome of a figure that draws ``drawn`` over a parameter, both axes logarithmic."""
    agrees, verdict = judge(x, curves)
    return Result(parameter, drawn, series(x, curves), rows, digest, agrees, verdict, log_x=True, log_y=True)
