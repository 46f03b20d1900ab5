"""A bar on stderr while a file is sent or copied; nothing where stderr is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def sending(file: Path) -> Iterator[Callable[[int], None]]:
    """Gives what is to be called with the bytes of the file that have been sent."""
    total = file.stat().st_size
    with _bar(f"sending {file.name}") as (bar, task):

        def sent(done: int) -> None:
            bar.update(task, completed=done, total=total)
            if done >= total:
                bar.update(task, description="the service is applying them")

        yield sent


@contextmanager
def copying(file: Path) -> Iterator[Callable[[int, int], None]]:
    """Gives what is to be called with how much of the file has been copied, and of how much."""
    with _bar(f"copying {file.name}") as (bar, task):
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _bar(description: str) -> Iterator[tuple[Progress, TaskID]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        yield bar, bar.add_task(description, total=None)
