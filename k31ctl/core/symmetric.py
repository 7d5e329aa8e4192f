"""Symmetric positive definite systems of a few dozen unknowns."""

from collections.abc import Sequence
from math import sqrt

Matrix = list[list[float]]


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solution of a system, by Cholesky decomposition."""
    return _solved(cholesky(matrix), right)


def inverse(matrix: Sequence[Sequence[float]]) -> Matrix:
    """The inverse, symmetric to the last bit."""
    lower, size = cholesky(matrix), len(matrix)
    rows = [_solved(lower, [float(i == j) for j in range(size)]) for i in range(size)]
    return [[(rows[i][j] + rows[j][i]) / 2 for j in range(size)] for i in range(size)]


def inverse_diagonal(matrix: Sequence[Sequence[float]]) -> list[float]:
    """The diagonal of the inverse."""
    return [row[i] for i, row in enumerate(inverse(matrix))]


def cholesky(matrix: Sequence[Sequence[float]]) -> Matrix:
    """The lower factor; raises ValueError where the matrix is not positive definite."""
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            if i == j and rest <= 0:
                raise ValueError("not positive definite")
            lower[i][j] = sqrt(rest) if i == j else rest / lower[j][j]
    return lower


def quadratic(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> float:
    """The value of the quadratic form for a vector."""
    return sum(
        a * b * value
        for a, row in zip(vector, matrix, strict=True)
        if a
        for b, value in zip(vector, row, strict=True)
    )


def _solved(lower: Matrix, right: Sequence[float]) -> list[float]:
    size = len(right)
    y: list[float] = []
    for i in range(size):
        y.append((right[i] - sum(lower[i][k] * y[k] for k in range(i))) / lower[i][i])
    x = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(lower[k][i] * x[k] for k in range(i + 1, size))
        x[i] = (y[i] - rest) / lower[i][i]
    return x
