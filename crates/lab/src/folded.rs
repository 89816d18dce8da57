//! Sentences that differ in nothing but their numbers, as one with the range of each number.

use serde::{Deserialize, Serialize};

/// One or several sentences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folded {
    /// "Others had the client's CPU for 31 to 46 % of the time."
    pub text: String,
    /// How many were alike; in a report, each is of another trial.
    #[serde(rename = "trials")]
    pub count: usize,
}

/// Folds sentences, in the order in which they come first.
#[must_use]
pub fn folded<'t>(sentences: impl IntoIterator<Item = &'t str>) -> Vec<Folded> {
    let mut found: Vec<Pattern<'t>> = Vec::new();
    for sentence in sentences {
        let parts = parts(sentence);
        match found.iter_mut().find(|kind| kind.is_of(&parts)) {
            Some(kind) => kind.add(&parts),
            None => found.push(Pattern::new(&parts)),
        }
    }
    found.iter().map(Pattern::folded).collect()
}

/// A part of a sentence.
#[derive(Clone, Copy)]
struct Part<'t> {
    text: &'t str,
    /// What it is, if it is a number.
    number: Option<f64>,
}

/// Sentences of one form.
struct Pattern<'t> {
    least: Vec<Part<'t>>,
    most: Vec<Part<'t>>,
    count: usize,
}

impl<'t> Pattern<'t> {
    fn new(parts: &[Part<'t>]) -> Self {
        Self {
            least: parts.to_vec(),
            most: parts.to_vec(),
            count: 1,
        }
    }

    fn is_of(&self, parts: &[Part<'t>]) -> bool {
        let is_alike = |(one, other): (&Part<'_>, &Part<'_>)| match one.number {
            None => other.number.is_none() && one.text == other.text,
            Some(_) => other.number.is_some(),
        };
        self.least.len() == parts.len() && self.least.iter().zip(parts).all(is_alike)
    }

    fn add(&mut self, parts: &[Part<'t>]) {
        self.count += 1;
        let ends = self.least.iter_mut().zip(&mut self.most);
        for ((least, most), part) in ends.zip(parts) {
            if part.number < least.number {
                *least = *part;
            }
            if part.number > most.number {
                *most = *part;
            }
        }
    }

    fn folded(&self) -> Folded {
        let ends = self.least.iter().zip(&self.most);
        let text = ends.map(|(least, most)| match least.text == most.text {
            true => least.text.to_owned(),
            false => format!("{} to {}", least.text, most.text),
        });
        Folded {
            text: text.collect(),
            count: self.count,
        }
    }
}

/// Numbers have digits, and points or commas between digits.
fn parts(sentence: &str) -> Vec<Part<'_>> {
    let text = |text| Part { text, number: None };
    let mut parts = Vec::new();
    let mut rest = sentence;
    while let Some(begin) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let number = &rest[begin..];
        let bytes = number.as_bytes();
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        let is_of_it = |at: usize| is_digit(at) || (b".,".contains(&bytes[at]) && is_digit(at + 1));
        let len = (0..bytes.len()).take_while(|at| is_of_it(*at)).count();
        let value = number[..len].replace(',', "").parse();
        parts.push(text(&rest[..begin]));
        parts.push(Part {
            text: &number[..len],
            number: Some(value.unwrap_or(f64::NAN)),
        });
        rest = &rest[begin + len..];
    }
    parts.push(text(rest));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges_and_other_sentences_stay() {
        let sentences = [
            "Others had the CPU for 46 % of the time; at most 25 % are allowed.",
            "It rained.",
            "Others had the CPU for 9.5 % of the time; at most 25 % are allowed.",
            "Sent 1,234 of 2,000.",
            "Sent 998 of 2,000.",
        ];
        let found = folded(sentences);
        let texts: Vec<(&str, usize)> = found
            .iter()
            .map(|one| (one.text.as_str(), one.count))
            .collect();
        assert_eq!(
            texts,
            [
                (
                    "Others had the CPU for 9.5 to 46 % of the time; at most 25 % are allowed.",
                    2
                ),
                ("It rained.", 1),
                ("Sent 998 to 1,234 of 2,000.", 2),
            ]
        );
        assert_eq!(folded([]), []);
    }
}
