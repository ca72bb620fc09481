"""The coefficients of 2^f in src/engine_types.h: print them, and the error they leave.

    python bench/exp2_coefficients.py

2^f = 1 + f·(c_0 + c_1·f + …) on [-1/2, 1/2] is fitted by least squares of the relative
error on Chebyshev nodes, in DIGITS digits, and the coefficients are rounded to double.
"""

import math
from decimal import Decimal, localcontext

DIGITS = 60
N_NODES = 64  # the same coefficients, to the last bit, from 20 on
N_CHECKED = 1001

N_COEFFICIENTS = {"double": 10, "float": 6}


def fit(n_coefficients):
    """Fit so many coefficients c."""
    with localcontext(prec=DIGITS):
        rows, targets = [], []
        for k in range(N_NODES):
            f = Decimal(math.cos((2 * k + 1) * math.pi / (2 * N_NODES)) / 2)
            # Σ c_j·f^(j+1) / 2^f should be 1 - 1 / 2^f
            rows.append([f ** (j + 1) / 2**f for j in range(n_coefficients)])
            targets.append(1 - 1 / 2**f)
        columns = list(zip(*rows, strict=True))
        normal = [[dot(a, b) for b in columns] for a in columns]
        return [float(c) for c in solve(normal, [dot(a, targets) for a in columns])]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def solve(A, b):
    """Solve A·x = b for a positive definite A, by elimination without pivots."""
    rows = [[*row, right] for row, right in zip(A, b, strict=True)]
    for i, pivot in enumerate(rows):
        pivot[:] = [entry / pivot[i] for entry in pivot]
        for row in rows[:i] + rows[i + 1 :]:
            row[:] = [x - row[i] * y for x, y in zip(row, pivot, strict=True)]
    return [row[-1] for row in rows]


def largest_error(coefficients):
    """The largest relative error on [-1/2, 1/2], but for rounding by the engine."""
    with localcontext(prec=DIGITS):
        worst = Decimal(0)
        for k in range(N_CHECKED):
            f = Decimal(k) / (N_CHECKED - 1) - Decimal("0.5")
            power = Decimal(0)
            for c in reversed(coefficients):
                power = power * f + Decimal(c)
            worst = max(worst, abs((power * f + 1) / 2**f - 1))
        return float(worst)


def main():
    for name, n_coefficients in N_COEFFICIENTS.items():
        coefficients = fit(n_coefficients)
        print(f"{name}: largest relative error {largest_error(coefficients):.2g}")
        for c in coefficients:
            print(f"    {c.hex()}{'f' * (name == 'float')}")


if __name__ == "__main__":
    main()
