"""Take the pictures of the console that the docs show, of the project that its tests make.

`python docs/draw_console.py` needs Spark, and Chromium; it writes `console.png` and
`console_view.png`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent / "tests" / "console"))

from console_project import make, report, serving  # noqa: E402

from windrow.spark.session import local_session  # noqa: E402

PICTURES = {"console.png": ("", 900), "console_view.png": ("view?name=ranked", 900)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = make(Path(folder) / "shop", local_session("console", cores="2"))
        for day in range(1, 13):
            report(Path(workspace.root), f"202405{day:02}T020000Z", different=2 * (day == 8))
        with serving(workspace) as address, sync_playwright() as running:
            browser = running.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1180, "height": 900}, color_scheme="light")
            for name, (place, height) in PICTURES.items():
                page.goto(f"{address}/console/{place}")
                clip = {"x": 0, "y": 0, "width": 1180, "height": height}
                page.screenshot(path=FOLDER / name, clip=clip, full_page=True)
            browser.close()


if __name__ == "__main__":
    main()
