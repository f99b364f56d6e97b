"""Small line figures as SVG, in the colours of the page: they follow its light and dark theme."""

from collections.abc import Sequence


def drawing(name: str, own: Sequence[float], other: Sequence[float], kind: str, small: bool = False) -> str:
    """A method's curve beside FedAvg's.

    Args:
        name: the method.
        own: its accuracy after every round.
        other: that of FedAvg.
        kind: "accuracy", or "personal" for the accuracy of personal models.
        small: without axes and words.
    """
    wide, high = (220, 64) if small else (480, 190)
    left, top, right, bottom = (2, 4, 2, 4) if small else (40, 10, 12, 30)
    base = f"M{left} {high - bottom}H{wide - right}"
    steps = max(len(own), len(other)) - 1 or 1

    def x(step: float) -> float:
        return left + (wide - left - right) * step / steps

    def y(value: float) -> float:
        return top + (high - top - bottom) * (1 - value)

    def path(values: Sequence[float]) -> str:
        return "M" + "L".join(f"{x(i):.1f} {y(value):.1f}" for i, value in enumerate(values))

    label = f"{name}: {kind} {own[-1]:.0%} after {len(own)} rounds, FedAvg {other[-1]:.0%}"
    parts = [
        f'<svg class="curve" viewBox="0 0 {wide} {high}" role="img" aria-label="{label}">',
        f"<title>{label}</title>",
        f'<path class="axis" d="{base}"/>',
    ]
    if not small:
        parts += [f'<path class="axis" d="M{left} {y(v):.1f}H{wide - right}"/>' for v in (0.5, 1)]
        parts += [f'<text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.0%}</text>' for v in (0, 0.5, 1)]
        rounds = ((0, "start", "1"), (steps, "end", f"round {len(own)}"))
        parts += [f'<text x="{x(s):.1f}" y="{high - 10}" text-anchor="{a}">{text}</text>' for s, a, text in rounds]
    if name != "fedavg":
        parts += [f'<path class="other" d="{path(other)}"/>']
    return "".join([*parts, f'<path class="own" d="{path(own)}"/>', "</svg>"])
