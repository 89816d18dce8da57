//! The sound: ticks from the left are requests, notes from the right are answers.
//!
//! The longer an answer took, the deeper and longer its note. A chord swells with the load and
//! goes out of tune with the queue; a dull knock is a request that was refused.

use std::f64::consts::TAU;

use super::SAMPLE_RATE;
use super::score::{QUEUE_MAX, Random, SECONDS, Score};

const RATE: f64 = SAMPLE_RATE as f64;
/// Answers at least this fast sound highest, those that took at least this long deepest.
const LATENCY_HIGH_NOTE: f64 = 0.02;
const LATENCY_DEEP_NOTE: f64 = 1.5;
/// A major pentatonic scale, as semitones above A.
const SCALE: [f64; 5] = [0.0, 2.0, 4.0, 7.0, 9.0];
const LOWEST_HZ: f64 = 110.0;
/// Steps of the scale above the lowest note: four octaves.
const STEPS: f64 = 20.0;

/// Two channels of the whole piece, before they become integers.
struct Mix {
    left: Vec<f64>,
    right: Vec<f64>,
}

/// The piece as interleaved 16-bit samples.
pub(crate) fn render(score: &Score) -> Vec<i16> {
    let frames = (SECONDS * RATE) as usize;
    let mut dry = Mix {
        left: vec![0.0; frames],
        right: vec![0.0; frames],
    };
    let mut random = Random(0x50_u64);
    for request in &score.requests {
        tick(&mut dry, request.came, &mut random);
        match request.answered {
            Some(at) => note(&mut dry, at, at - request.came, &mut random),
            None => knock(&mut dry, request.came, &mut random),
        }
    }
    chord(&mut dry, score);
    let left = reverberate(&dry.left, 0);
    let right = reverberate(&dry.right, 23); // samples of spread: a room, not two pipes
    let peak = left
        .iter()
        .chain(&right)
        .fold(1e-9_f64, |peak, x| peak.max(x.abs()));
    let fade_start = (SECONDS - 1.5) * RATE;
    let mut out = Vec::with_capacity(frames * 2);
    for (index, pair) in left.iter().zip(&right).enumerate() {
        let fade = (1.0 - (index as f64 - fade_start) / (1.5 * RATE)).clamp(0.0, 1.0);
        for sample in [pair.0, pair.1] {
            // A gentle limiter: crowds get denser rather than much louder.
            let level = (sample / peak * 2.2).tanh() / 2.2_f64.tanh();
            out.push((level * fade * 0.9 * f64::from(i16::MAX)) as i16);
        }
    }
    out
}

impl Mix {
    /// Adds `sound` from `start` on; `pan` goes from -1 (left) to 1 (right).
    fn add(&mut self, start: f64, seconds: f64, pan: f64, mut sound: impl FnMut() -> f64) {
        let first = (start * RATE) as usize;
        let last = (first + (seconds * RATE) as usize).min(self.left.len());
        let angle = (pan + 1.0) * TAU / 8.0;
        for index in first..last {
            let sample = sound();
            self.left[index] += sample * angle.cos();
            self.right[index] += sample * angle.sin();
        }
    }
}

/// A request arrives: a few milliseconds of soft noise.
fn tick(mix: &mut Mix, at: f64, random: &mut Random) {
    let (mut level, mut smooth) = (0.05, 0.0);
    let fall = (-1.0 / (0.004 * RATE)).exp();
    let pan = -0.9 + 0.3 * random.unit();
    mix.add(at, 0.03, pan, || {
        level *= fall;
        smooth += 0.5 * (random.unit() * 2.0 - 1.0 - smooth);
        smooth * level
    });
}

/// An answer leaves: a plucked note, deep if it took long.
fn note(mix: &mut Mix, at: f64, latency: f64, random: &mut Random) {
    let span = (LATENCY_DEEP_NOTE / LATENCY_HIGH_NOTE).ln();
    let depth = ((latency / LATENCY_HIGH_NOTE).ln() / span).clamp(0.0, 1.0);
    let wander = (random.unit() - 0.5) * 5.0;
    let step = ((1.0 - depth) * STEPS + wander).round().clamp(0.0, STEPS) as usize;
    let octave = (step / SCALE.len()) as f64;
    let hertz = LOWEST_HZ * ((SCALE[step % SCALE.len()] / 12.0) + octave).exp2();
    let ring = 0.35 + 1.1 * depth;
    let loudness = 0.10 + 0.05 * depth;
    let mut partials = [
        Partial::new(hertz, loudness, ring),
        Partial::new(hertz * 2.001, loudness * 0.45, ring * 0.6),
        Partial::new(hertz * 3.005, loudness * 0.18, ring * 0.35),
        Partial::new(hertz * 5.42, loudness * 0.06, ring * 0.12),
    ];
    let mut age = 0.0_f64;
    let pan = -0.1 + 0.9 * random.unit();
    mix.add(at, ring * 2.5, pan, || {
        age += 1.0;
        let attack = (age / (0.003 * RATE)).min(1.0);
        attack * partials.iter_mut().map(Partial::next).sum::<f64>()
    });
}

/// A request is refused: a dull knock.
fn knock(mix: &mut Mix, at: f64, random: &mut Random) {
    let mut body = Partial::new(74.0, 0.22, 0.09);
    let mut click = Partial::new(211.0, 0.09, 0.03);
    let pan = -0.6 + 0.4 * random.unit();
    mix.add(at, 0.4, pan, || body.next() + click.next());
}

/// A held chord: louder the more there is to do, out of tune the longer the queue.
fn chord(mix: &mut Mix, score: &Score) {
    const CHORD: [(f64, f64); 5] = [
        (0.5, 0.9),
        (0.7492, 0.5),
        (1.0, 0.6),
        (1.4983, 0.35),
        (2.5198, 0.22),
    ];
    const BLOCK: usize = 441;
    let mut phases = [[0.0_f64; 2]; CHORD.len()];
    let (mut busy, mut queue) = (0.0, 0.0);
    for first in (0..mix.left.len()).step_by(BLOCK) {
        let inside = score.inside(first as f64 / RATE) as f64;
        let (busy_before, queue_before) = (busy, queue);
        busy += (inside.min(1.0) - busy) * 0.012;
        queue += (inside / QUEUE_MAX as f64 - queue) * 0.05;
        for offset in 0..BLOCK.min(mix.left.len() - first) {
            let share = offset as f64 / BLOCK as f64;
            let busy = busy_before + (busy - busy_before) * share;
            let queue = queue_before + (queue - queue_before) * share;
            let level = 0.035 * busy * busy + 0.075 * queue;
            let detune = 1.0 + 0.0015 + 0.012 * queue;
            let mut sides = [0.0; 2];
            for (phase, (ratio, weight)) in phases.iter_mut().zip(CHORD) {
                for (side, phase) in phase.iter_mut().enumerate() {
                    let bend = if side == 0 { detune } else { 1.0 / detune };
                    *phase = (*phase + 220.0 * ratio * bend / RATE).fract();
                    let bright = (*phase * TAU * 2.0).sin() * (0.1 + 0.5 * queue);
                    sides[side] += weight * ((*phase * TAU).sin() + bright);
                }
            }
            mix.left[first + offset] += level * (sides[0] + 0.4 * sides[1]);
            mix.right[first + offset] += level * (sides[1] + 0.4 * sides[0]);
        }
    }
}

/// A sine that dies away, one multiplication more than a plain one costs.
struct Partial {
    now: f64,
    before: f64,
    twice_cosine: f64,
    damping: f64,
}

impl Partial {
    /// `ring`: seconds until it has fallen to a thousandth.
    fn new(hertz: f64, loudness: f64, ring: f64) -> Self {
        let angle = TAU * hertz.min(RATE * 0.45) / RATE;
        let fall = (-6.9 / (ring * RATE)).exp();
        Self {
            now: 0.0,
            before: -loudness * angle.sin() / fall,
            twice_cosine: 2.0 * fall * angle.cos(),
            damping: fall * fall,
        }
    }

    fn next(&mut self) -> f64 {
        let next = self.twice_cosine * self.now - self.damping * self.before;
        self.before = self.now;
        self.now = next;
        next
    }
}

/// Schroeder's reverberator: four combs side by side, two all-passes in a row.
fn reverberate(dry: &[f64], spread: usize) -> Vec<f64> {
    let mut wet = vec![0.0; dry.len()];
    for delay in [1557, 1617, 1491, 1422] {
        let mut line = vec![0.0; delay + spread];
        let (mut index, mut smooth) = (0, 0.0);
        for (input, output) in dry.iter().zip(&mut wet) {
            let echo = line[index];
            smooth += 0.72 * (echo - smooth); // walls swallow the high notes first
            line[index] = input + smooth * 0.83;
            *output += echo * 0.25;
            index = (index + 1) % line.len();
        }
    }
    for delay in [556, 225] {
        let mut line = vec![0.0; delay + spread];
        let mut index = 0;
        for sample in &mut wet {
            let echo = line[index];
            let input = *sample;
            line[index] = input + echo * 0.5;
            *sample = echo - input * 0.5;
            index = (index + 1) % line.len();
        }
    }
    dry.iter()
        .zip(wet)
        .map(|(dry, wet)| dry + 0.42 * wet)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_has_its_pitch_and_dies_away() {
        let mut partial = Partial::new(441.0, 1.0, 0.5);
        let samples: Vec<f64> = (0..SAMPLE_RATE).map(|_| partial.next()).collect();
        let crossings = samples[..4410]
            .windows(2)
            .filter(|p| p[0] < 0.0 && p[1] >= 0.0)
            .count();
        assert!(
            (43..=45).contains(&crossings),
            "{crossings} periods in a tenth of a second"
        );
        assert!(samples[..200].iter().any(|x| *x > 0.9));
        assert!(samples[30_000..].iter().all(|x| x.abs() < 1e-3));
    }

    #[test]
    fn the_piece_is_audible_and_ends_in_silence() {
        let samples = render(&Score::simulate());
        assert_eq!(samples.len(), (SECONDS * RATE) as usize * 2);
        assert!(samples.iter().any(|x| x.unsigned_abs() > 20_000));
        assert!(
            samples.iter().all(|x| x.unsigned_abs() <= 29_491),
            "clipped"
        );
        assert!(
            samples[samples.len() - 8..]
                .iter()
                .all(|x| x.unsigned_abs() < 50)
        );
    }
}
