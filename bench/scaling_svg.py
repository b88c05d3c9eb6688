"""Draws the table of bench_scaling (stdin) as two charts with logarithmic axes (SVG on stdout)."""

import math
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 300, 60, 40, 90
COLOURS = {"dense": "#b5422c", "tiled": "#2c6fb5"}


def rows():
    for line in sys.stdin:
        cell = [part.strip() for part in line.strip().strip("|").split("|")]
        if cell[0] in COLOURS:
            yield cell[0], int(cell[1]), float(cell[2]), float(cell[3])


def text(x, y, words, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {extra}>{words}</text>'


def chart(at, title, points):
    """One panel of {name: [(T, value)]}: T doubles, and the value grows tenfold, a step."""
    xs = [math.log2(T) for line in points.values() for T, _ in line]
    ys = [math.log10(v) for line in points.values() for _, v in line]
    low, high = math.floor(min(ys)), math.ceil(max(ys))
    x = lambda T: at + (math.log2(T) - min(xs)) / (max(xs) - min(xs)) * WIDTH
    y = lambda v: TOP + HEIGHT - (math.log10(v) - low) / (high - low) * HEIGHT
    yield text(at, TOP - 16, title, 'font-weight="bold"')
    for n in range(low, high + 1):
        yield f'<path d="M{at} {y(10 ** n):.1f}h{WIDTH}" stroke="#ddd"/>'
        yield text(at - 6, y(10 ** n) + 4, f"{10 ** n:g}", 'text-anchor="end"')
    for T, _ in next(iter(points.values())):
        yield text(x(T), TOP + HEIGHT + 18, T, 'text-anchor="middle"')
    for name, line in points.items():
        path = "L".join(f"{x(T):.1f} {y(v):.1f}" for T, v in line)
        yield f'<path d="M{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>'
        T, v = line[-1]
        yield text(x(T) - 4, y(v) - 8, name, f'text-anchor="end" fill="{COLOURS[name]}"')


def main():
    time, memory = {}, {}
    for name, T, ms, megabytes in rows():
        time.setdefault(name, []).append((T, ms))
        memory.setdefault(name, []).append((T, megabytes))
    wide, high = 2 * (LEFT + WIDTH) + GAP, TOP + HEIGHT + 40
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
          'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>')
    print("\n".join(chart(LEFT, "milliseconds by sequence length", time)))
    print("\n".join(chart(2 * LEFT + WIDTH + 30, "megabytes by sequence length", memory)))
    print("</svg>")


if __name__ == "__main__":
    main()
