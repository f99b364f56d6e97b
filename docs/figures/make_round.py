"""Draw a round: `python docs/figures/make_round.py` writes round-light.svg and round-dark.svg.

The slots in the picture are those of `undrift.Algorithm`; a slot that is missing, or that does not exist, is an error.
"""

from dataclasses import fields

from canvas import DARK, HERE, LIGHT, Canvas, Theme

from undrift import Algorithm

LOOP = (
    (("perturbation", "spectral"), "where the gradient is taken"),
    (("objective",), "gradient of one batch: loss and penalty"),
    (("spectral",), "filter, then clip, the data gradient"),
    (("drift", "momentum", "objective"), "correct the gradient"),
    (("local_optimizer",), "w \u2190 w \u2212 lr \u00b7 direction"),
)


def draw(theme: Theme) -> str:
    """The figure in the colours of a theme."""
    canvas = Canvas(1000, 470, theme, "A round: broadcast, local training, gate, exact sum, server step")
    client, server, guard = theme.marks[1], theme.marks[2], theme.marks[3]
    shown: set[str] = set()

    def chips(x: float, y: float, slots: tuple[str, ...], colour: str) -> float:
        for slot in slots:
            shown.add(slot)
            width = 7.8 * len(slot) + 12
            canvas.box(x, y, width, 24, theme.back, colour)
            canvas.text(x + width / 2, y + 16.5, slot, size=12.5, mono=True, fill=colour, anchor="middle")
            x += width + 6
        return x

    # 1. the server chooses and sends
    canvas.box(20, 60, 200, 150, theme.panel, theme.line)
    canvas.text(36, 88, "1  Server sends", bold=True, size=15)
    chips(30, 102, ("selection", "schedule"), server)
    canvas.text(36, 148, "who begins, and when;", size=13, fill=theme.soft)
    canvas.text(36, 167, "broadcast: the model", size=13, fill=theme.soft)
    canvas.text(36, 186, "and what blocks send", size=13, fill=theme.soft)

    # 2. clients train; further clients behind the first
    for shift in (16, 8):
        canvas.box(270 + shift, 60 - shift, 440, 372, theme.back, theme.line)
    canvas.box(270, 60, 440, 372, theme.panel, theme.line)
    canvas.text(286, 88, "2  Each client of the cohort trains", bold=True, size=15)
    right = chips(286, 102, ("personalization",), client)
    canvas.text(right + 2, 119, "its shared and private parts; begin", size=13, fill=theme.soft)
    canvas.box(300, 140, 394, 226, theme.back, client, dashed=True)
    canvas.text(314, 160, "every local step", size=13, bold=True, fill=client)
    for row, (slots, words) in enumerate(LOOP):
        y = 170 + 38 * row
        right = chips(314, y, slots, client)
        canvas.text(right + 2, y + 16.5, words, size=13, fill=theme.soft)
    canvas.path("M300 350 C 280 345 280 165 296 160", theme.soft, arrow=True)
    right = chips(286, 374, ("release",), client)
    canvas.text(right + 2, 391, "delta = w \u2212 w0, without the private part", size=13, fill=theme.soft)
    canvas.text(286, 418, "finish: every block's upload and new client state", size=13, fill=theme.soft)

    # 3. gate and exact sum
    canvas.box(760, 60, 220, 108, theme.panel, theme.line)
    canvas.text(776, 88, "3  Gate", bold=True, size=15, fill=guard)
    for row, words in enumerate(("every upload is validated;", "an invalid one is rejected,", "with a reason")):
        canvas.text(776, 110 + 19 * row, words, size=13, fill=theme.soft)
    canvas.box(760, 200, 220, 100, theme.panel, theme.line)
    canvas.text(776, 228, "4  Exact sum", bold=True, size=15, fill=guard)
    chips(776, 240, ("aggregation",), guard)
    canvas.text(776, 285, "any order gives the same bits", size=13, fill=theme.soft)

    # 5. the server's step
    canvas.box(760, 332, 220, 100, theme.panel, theme.line)
    canvas.text(776, 360, "5  Server step", bold=True, size=15)
    chips(776, 370, ("server_optimizer",), server)
    canvas.text(776, 415, "moves the global model", size=13, fill=theme.soft)

    canvas.path("M220 135H266", theme.soft, arrow=True, wide=2)
    canvas.path("M726 114H756", theme.soft, arrow=True, wide=2)
    canvas.path("M870 168V197", theme.soft, arrow=True, wide=2)
    canvas.path("M870 300V329", theme.soft, arrow=True, wide=2)
    canvas.path("M870 432V452H120V214", theme.soft, arrow=True, wide=2)
    canvas.text(36, 240, "one round", size=13, bold=True, fill=theme.soft)
    canvas.text(20, 32, "One round, and the twelve slots of a method", bold=True, size=17)

    missing = {slot.name for slot in fields(Algorithm)} ^ shown
    if missing:
        raise SystemExit(f"make_round.py: slots in the picture differ from those of Algorithm: {sorted(missing)}")
    return canvas.svg()


if __name__ == "__main__":
    for theme in (LIGHT, DARK):
        (HERE / f"round-{theme.name}.svg").write_text(draw(theme))
