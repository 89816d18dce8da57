//! The fit itself: weighted least squares by Levenberg and Marquardt's method.

use super::Weighting;

/// The law with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Model {
    pub(super) lambda: f64,
    pub(super) sigma: f64,
    pub(super) kappa: f64,
}

const ROUNDS_MAX: usize = 200;
/// A round that gains less than this part ends it.
const GAIN_MIN: f64 = 1e-12;

impl Model {
    pub(super) fn at(&self, n: f64) -> f64 {
        self.lambda * n / self.slowdown(n)
    }

    fn slowdown(&self, n: f64) -> f64 {
        1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0)
    }

    /// Where the throughput is largest; infinite without a peak.
    pub(super) fn peak_n(&self) -> f64 {
        if self.kappa <= 0.0 || self.sigma >= 1.0 {
            return if self.kappa > 0.0 { 1.0 } else { f64::INFINITY };
        }
        ((1.0 - self.sigma) / self.kappa).sqrt()
    }

    /// Whether it is a throughput at all at every N that was measured.
    fn is_sound(&self, points: &[(f64, f64)]) -> bool {
        self.lambda > 0.0 && points.iter().all(|(n, _)| self.slowdown(*n) > 0.0)
    }

    fn error(&self, points: &[(f64, f64)], weighting: Weighting) -> f64 {
        if !self.is_sound(points) {
            return f64::INFINITY;
        }
        let squares = points.iter().map(|(n, x)| match weighting {
            Weighting::Equal => (x - self.at(*n)).powi(2),
            Weighting::Relative => (x / self.at(*n)).ln().powi(2),
        });
        squares.sum()
    }
}

/// The best fit whose sigma and kappa are not below 0. It is the free one, or one on a border.
pub(super) fn fit(points: &[(f64, f64)], weighting: Weighting) -> Model {
    let free = fit_free(points, weighting);
    if free.sigma >= 0.0 && free.kappa >= 0.0 {
        return free;
    }
    let borders = [[true, false], [false, true], [false, false]];
    let on_borders = borders.map(|varied| descend(points, weighting, varied));
    let is_allowed = |model: &&Model| model.sigma >= 0.0 && model.kappa >= 0.0;
    let allowed = on_borders.iter().filter(is_allowed);
    let errors = allowed.map(|model| (model.error(points, weighting), *model));
    let best = errors.min_by(|one, other| one.0.total_cmp(&other.0));
    best.map_or(free, |(_, model)| model)
}

/// The best fit, whatever the signs.
pub(super) fn fit_free(points: &[(f64, f64)], weighting: Weighting) -> Model {
    descend(points, weighting, [true, true])
}

/// `varied`: sigma, kappa; what is not stays 0.
fn descend(points: &[(f64, f64)], weighting: Weighting, varied: [bool; 2]) -> Model {
    let mut model = start(points, varied);
    let mut error = model.error(points, weighting);
    let mut damping = 1e-3;
    for _ in 0..ROUNDS_MAX {
        let (matrix, right) = normal_equations(points, &model, weighting, varied);
        let Some(step) = solve(damped(matrix, damping), right) else {
            break;
        };
        let next = Model {
            // The logarithm is what is stepped: it stays above 0.
            lambda: model.lambda * step[0].clamp(-2.0, 2.0).exp(),
            sigma: model.sigma + step[1],
            kappa: model.kappa + step[2],
        };
        let next_error = next.error(points, weighting);
        if next_error < error {
            let gain = (error - next_error) / error.max(f64::MIN_POSITIVE);
            (model, error) = (next, next_error);
            damping = (damping / 10.0).max(1e-12);
            if gain < GAIN_MIN {
                break;
            }
        } else {
            damping *= 10.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    model
}

/// Near enough to begin with: `N / X` is a polynomial in N, so this is linear least squares.
fn start(points: &[(f64, f64)], varied: [bool; 2]) -> Model {
    let best = points.iter().map(|(n, x)| x / n).fold(0.0, f64::max);
    let plain = Model {
        lambda: best,
        sigma: if varied[0] { 0.01 } else { 0.0 },
        kappa: if varied[1] { 1e-6 } else { 0.0 },
    };
    let (mut matrix, mut right) = ([[0.0; 3]; 3], [0.0; 3]);
    for (n, x) in points {
        let row = [1.0, n - 1.0, n * (n - 1.0)];
        let row = masked(row, varied);
        // `N / X` has noise that grows with it.
        let weight = (x / n).powi(2);
        for (index, one) in row.iter().enumerate() {
            right[index] += weight * one * n / x;
            for (other_index, other) in row.iter().enumerate() {
                matrix[index][other_index] += weight * one * other;
            }
        }
    }
    let solved = solve(with_fixed(matrix, varied), right);
    let linear = solved.map(|[first, second, third]| Model {
        lambda: 1.0 / first,
        sigma: second / first,
        kappa: third / first,
    });
    linear
        .filter(|model| model.is_sound(points))
        .unwrap_or(plain)
}

/// Of the parameters `ln lambda`, sigma, kappa.
fn normal_equations(
    points: &[(f64, f64)],
    model: &Model,
    weighting: Weighting,
    varied: [bool; 2],
) -> ([[f64; 3]; 3], [f64; 3]) {
    let (mut matrix, mut right) = ([[0.0; 3]; 3], [0.0; 3]);
    for (n, x) in points {
        let (fitted, slowdown) = (model.at(*n), model.slowdown(*n));
        // Of the logarithm of the throughput.
        let slopes = [1.0, -(n - 1.0) / slowdown, -n * (n - 1.0) / slowdown];
        let (scale, residual) = match weighting {
            Weighting::Equal => (fitted, x - fitted),
            Weighting::Relative => (1.0, (x / fitted).ln()),
        };
        let slopes = masked(slopes.map(|slope| slope * scale), varied);
        for (index, one) in slopes.iter().enumerate() {
            right[index] += one * residual;
            for (other_index, other) in slopes.iter().enumerate() {
                matrix[index][other_index] += one * other;
            }
        }
    }
    (with_fixed(matrix, varied), right)
}

fn masked(row: [f64; 3], varied: [bool; 2]) -> [f64; 3] {
    let keep = |value: f64, varied: bool| if varied { value } else { 0.0 };
    [row[0], keep(row[1], varied[0]), keep(row[2], varied[1])]
}

/// What is fixed does not move.
fn with_fixed(mut matrix: [[f64; 3]; 3], varied: [bool; 2]) -> [[f64; 3]; 3] {
    for (index, varied) in varied.into_iter().enumerate() {
        if !varied {
            matrix[index + 1][index + 1] = 1.0;
        }
    }
    matrix
}

fn damped(mut matrix: [[f64; 3]; 3], damping: f64) -> [[f64; 3]; 3] {
    for (index, row) in matrix.iter_mut().enumerate() {
        row[index] *= 1.0 + damping;
    }
    matrix
}

/// Gauss's elimination with rows scaled and swapped; `None`: there is not one solution.
fn solve(mut matrix: [[f64; 3]; 3], mut right: [f64; 3]) -> Option<[f64; 3]> {
    // Sigma and kappa are of different sizes: scaled to the diagonal, they are alike.
    let scale: [f64; 3] = std::array::from_fn(|index| matrix[index][index].abs().sqrt());
    if scale.iter().any(|one| *one == 0.0 || !one.is_finite()) {
        return None;
    }
    for row in 0..3 {
        right[row] /= scale[row];
        for column in 0..3 {
            matrix[row][column] /= scale[row] * scale[column];
        }
    }
    for column in 0..3 {
        let rows = column..3;
        let pivot = rows.max_by(|one, other| {
            matrix[*one][column]
                .abs()
                .total_cmp(&matrix[*other][column].abs())
        })?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        if matrix[column][column].abs() < 1e-14 {
            return None;
        }
        for row in column + 1..3 {
            let factor = matrix[row][column] / matrix[column][column];
            let above = matrix[column];
            for (value, above) in matrix[row].iter_mut().zip(above) {
                *value -= factor * above;
            }
            right[row] -= factor * right[column];
        }
    }
    let mut solution = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3)
            .map(|column| matrix[row][column] * solution[column])
            .sum();
        solution[row] = (right[row] - known) / matrix[row][row];
    }
    for (value, scale) in solution.iter_mut().zip(scale) {
        *value /= scale;
    }
    Some(solution)
}
