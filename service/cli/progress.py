"""A bar on stderr while a file is sent; nothing where stderr is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def sending(file: Path) -> Iterator[Callable[[int], None]]:
    """Gives what is to be called with the bytes of the file that have been sent."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
    total = file.stat().st_size
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(f"sending {file.name}", total=total)

        def sent(done: int) -> None:
            bar.update(task, completed=done)
            if done >= total:
                bar.update(task, description="the service is applying them")

        yield sent
