"""Draw the badges of the README from pyproject.toml: `python docs/figures/make_badges.py`."""

import tomllib

from canvas import HERE, SANS

PROJECT = HERE.parents[1] / "pyproject.toml"


def badges() -> dict[str, str]:
    """The text of each badge, from the project's metadata."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    return {"license": project["license"], "python": project["requires-python"].replace(">=", "") + " or newer"}


def draw(name: str, value: str) -> str:
    """A badge: a name on grey, a value on blue."""
    left, right = 7 * len(name) + 14, 7 * len(value) + 14
    size = f'width="{left + right}" height="20"'
    text = f'y="14" text-anchor="middle" fill="#fff" font-size="11.5" font-family="{SANS}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{name}: {value}</title>'
        f'<rect {size} rx="4" fill="#4b5563"/><path d="M{left} 0H{left + right - 4}a4 4 0 0 1 4 4V16a4 4 0 0 1-4 4'
        f'H{left}z" fill="#0b6e9e"/><text x="{left / 2}" {text}>{name}</text>'
        f'<text x="{left + right / 2}" {text}>{value}</text></svg>\n'
    )


if __name__ == "__main__":
    for name, value in badges().items():
        (HERE / f"badge-{name}.svg").write_text(draw(name, value))
