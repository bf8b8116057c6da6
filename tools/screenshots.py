"""Draw the pictures of the documentation: what `headwater demo` really prints, and the page: `make screenshots`."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tools.pagepictures import photograph

__all__ = ["drawn", "proof", "running", "screens"]

IMAGES = Path(__file__).parents[1] / "docs" / "images"
_SECONDS = 20
_COLUMNS, _ROWS = 100, 50
_CONTROL = re.compile(r"(\r|\n|\x1b\[\??[0-9;]*[A-Za-ln-z])")  # cursor and erasing; colours (m) stay with their text
_ERASE = "\x1b[2K"

# Rich's own template loads its font from another host; a picture in a repository should not.
_SVG = """\
<svg class="headwater" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@dataclass
class _Screen:
    """As much of a terminal as rich's live display uses: whole lines, the cursor up, a line erased."""

    lines: list[str]
    row: int = 0

    def feed(self, piece: str) -> None:
        if piece == "\n":
            self.row += 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif piece == _ERASE:
            self.lines[self.row] = ""
        elif up := re.fullmatch(r"\x1b\[(\d*)A", piece):
            self.row = max(0, self.row - int(up[1] or 1))
        elif not _CONTROL.fullmatch(piece):
            self.lines[self.row] += piece

    def __str__(self) -> str:
        return "\n".join(self.lines).rstrip()


def screens(output: str) -> Iterator[str]:
    """What the terminal showed, each time before it was erased to draw again, and at the end."""
    screen = _Screen([""])
    drawn_since = False
    for piece in filter(None, _CONTROL.split(output)):
        if piece == _ERASE and drawn_since:
            yield str(screen)
            drawn_since = False
        drawn_since = drawn_since or not _CONTROL.fullmatch(piece)
        screen.feed(piece)
    yield str(screen)


def running(shown: list[str]) -> str:
    """The last screen on which the demo was mirroring."""
    return [each for each in shown if "headwater · mirroring" in each][-1]


def proof(shown: list[str]) -> str:
    """The last screen, up to the end of the summary: what follows has paths of this machine."""
    before, verified, after = shown[-1].partition("verify: OK")
    return before + verified + after.split("\n\n")[0]


def drawn(screen: str, title: str) -> str:
    """The screen as an SVG that names no other host."""
    console = Console(width=_COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen), soft_wrap=False)
    return console.export_svg(title=title, code_format=_SVG, unique_id="headwater")


def _recorded(command: list[str]) -> str:
    """Run it on a terminal of fixed size; what it wrote there. CalledProcessError if it failed."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(_COLUMNS), "LINES": str(_ROWS), "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **size}) as process:
        os.close(theirs)
        written = b""
        try:
            while piece := os.read(ours, 1 << 16):
                written += piece
        except OSError:  # Linux says EIO when the last writer is gone
            pass
    os.close(ours)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, written)
    return written.decode()


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headwater-") as home:
        folder = str(Path(home, "shop"))
        command = [sys.executable, "-m", "headwater", "demo", "--seconds", str(_SECONDS), "--dir", folder]
        shown = [each.replace(home, "~") for each in screens(_recorded(command))]
    for name, screen in (("demo", running(shown)), ("demo-proof", proof(shown))):
        path = IMAGES / f"{name}.svg"
        path.write_text(drawn(screen, "headwater demo"))
        _say(path)
    for path in photograph(IMAGES):
        _say(path)


def _say(path: Path) -> None:
    print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    main()
