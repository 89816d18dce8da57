//! Texts with `{{variables}}` in them, and how values are written where they stand.

use std::collections::BTreeMap;

use loadline_spec::ValueError;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use url::form_urlencoded::byte_serialize;

use super::state::Known;

/// Where the value of a variable comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The number of the client in the whole run, from 1.
    User,
    /// How often this client has begun, from 1.
    Iteration,
    /// 16 hexadecimal digits, others each time.
    Random,
    /// A column of the users file.
    Column(usize),
    /// Something taken from an answer.
    Captured(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(Source),
}

/// A text with variables in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Template {
    /// It begins with a variable, which may be a constant.
    begins_with_variable: bool,
    pieces: Vec<Piece>,
}

/// How a value is written into its surroundings; the text around it is mostly written as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// As it is.
    Nothing,
    /// Into a target: what a URL may not hold is percent-encoded.
    Target,
    /// Into a form field: as `application/x-www-form-urlencoded`, the text around it as well.
    Form,
    /// Into a header field: control characters but tabs become spaces, in the text around it as well,
    /// which constants are part of.
    Field,
}

/// The values of one client at one moment.
#[derive(Debug)]
pub(super) struct Values<'v> {
    pub(super) user: u64,
    pub(super) iteration: u64,
    pub(super) random: &'v mut Pcg64Mcg,
    pub(super) row: &'v [String],
    pub(super) known: &'v mut Known,
}

/// The names that templates may use, as far as the file has been read.
#[derive(Debug, Default)]
pub(super) struct Names {
    constants: BTreeMap<String, String>,
    sources: BTreeMap<String, Source>,
    captured_count: usize,
}

impl Names {
    /// The names that are always there.
    pub(super) fn new() -> Self {
        let sources = [
            ("user", Source::User),
            ("iteration", Source::Iteration),
            ("random", Source::Random),
        ];
        Self {
            sources: sources
                .map(|(name, source)| (name.to_owned(), source))
                .into(),
            ..Self::default()
        }
    }

    /// A constant of the file.
    pub(super) fn constant(&mut self, name: &str, value: &str) -> Result<(), ValueError> {
        self.check_new(name)?;
        self.constants.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// A column of the users file.
    pub(super) fn column(&mut self, name: &str, index: usize) -> Result<(), ValueError> {
        self.check_new(name)?;
        self.sources.insert(name.to_owned(), Source::Column(index));
        Ok(())
    }

    /// Something that a step takes from its answer; a later step may take it again. Returns where
    /// its value is kept.
    pub(super) fn captured(&mut self, name: &str) -> Result<usize, ValueError> {
        if let Some(Source::Captured(index)) = self.sources.get(name) {
            return Ok(*index);
        }
        self.check_new(name)?;
        let index = self.captured_count;
        self.captured_count += 1;
        self.sources
            .insert(name.to_owned(), Source::Captured(index));
        Ok(index)
    }

    /// How many values are taken from answers.
    pub(super) const fn captured_count(&self) -> usize {
        self.captured_count
    }

    /// Reads a text with variables.
    pub(super) fn template(&self, text: &str) -> Result<Template, ValueError> {
        let mut template = Template {
            begins_with_variable: text.starts_with("{{"),
            ..Template::default()
        };
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("{{") {
            let Some((name, after)) = behind.split_once("}}") else {
                let problem = format!("`{{{{{}` has no end", first_word(behind));
                return Err(ValueError::new(problem, "{{NAME}}"));
            };
            template.push_text(before);
            self.push_variable(name.trim(), &mut template)?;
            rest = after;
        }
        template.push_text(rest);
        Ok(template)
    }

    fn push_variable(&self, name: &str, template: &mut Template) -> Result<(), ValueError> {
        if let Some(text) = self.constants.get(name) {
            template.push_text(text);
            return Ok(());
        }
        let Some(source) = self.sources.get(name) else {
            let known: Vec<&str> = self
                .constants
                .keys()
                .chain(self.sources.keys())
                .map(String::as_str)
                .collect();
            let known = known.join(", ");
            return Err(ValueError::from(format!(
                "there is no variable `{name}` at this point; there are {known} (a step may use what \
                 earlier steps capture)"
            )));
        };
        template.pieces.push(Piece::Variable(*source));
        Ok(())
    }

    fn check_new(&self, name: &str) -> Result<(), ValueError> {
        let is_name = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if name.is_empty() || !is_name {
            let problem = format!("`{name}` is not the name of a variable");
            return Err(ValueError::new(problem, "letters, digits, - and _"));
        }
        if self.constants.contains_key(name) || self.sources.contains_key(name) {
            let problem = format!("there is a variable `{name}` already");
            return Err(ValueError::new(problem, "another name"));
        }
        Ok(())
    }
}

impl Template {
    fn push_text(&mut self, text: &str) {
        if let Some(Piece::Text(last)) = self.pieces.last_mut() {
            last.push_str(text);
        } else if !text.is_empty() {
            self.pieces.push(Piece::Text(text.to_owned()));
        }
    }

    /// Whether it begins with a text, and with which; `None`: with a variable.
    pub(super) fn first_text(&self) -> Option<&str> {
        match self.pieces.first() {
            _ if self.begins_with_variable => None,
            Some(Piece::Text(text)) => Some(text),
            Some(Piece::Variable(_)) | None => Some(""),
        }
    }

    /// The texts without the variables.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Variable(_) => None,
        })
    }

    /// Writes it with these values.
    pub(super) fn write(&self, values: &mut Values<'_>, escape: Escape, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) if matches!(escape, Escape::Form | Escape::Field) => {
                    push(text.as_bytes(), escape, out);
                }
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(Source::User) => {
                    push(values.user.to_string().as_bytes(), escape, out)
                }
                Piece::Variable(Source::Iteration) => {
                    push(values.iteration.to_string().as_bytes(), escape, out);
                }
                Piece::Variable(Source::Random) => {
                    let number = values.random.next_u64();
                    push(format!("{number:016x}").as_bytes(), escape, out);
                }
                Piece::Variable(Source::Column(index)) => {
                    let value = values.row.get(*index).map_or("", String::as_str);
                    push(value.as_bytes(), escape, out);
                }
                Piece::Variable(Source::Captured(index)) => {
                    let value = values.known.captured.get(*index);
                    let value = value.and_then(Option::as_deref);
                    push(value.unwrap_or_default(), escape, out);
                }
            }
        }
    }
}

fn first_word(text: &str) -> String {
    text.chars()
        .take_while(|c| !c.is_whitespace())
        .take(20)
        .collect()
}

fn push(value: &[u8], escape: Escape, out: &mut Vec<u8>) {
    match escape {
        Escape::Nothing => out.extend_from_slice(value),
        Escape::Target => out.extend(percent_encode(value, NOT_IN_TARGET).flat_map(str::bytes)),
        Escape::Form => out.extend(byte_serialize(value).flat_map(str::bytes)),
        Escape::Field => out.extend(value.iter().map(|byte| match byte {
            b'\t' => b'\t',
            0..=31 | 127 => b' ',
            _ => *byte,
        })),
    }
}

/// What a target may not hold as it is (RFC 3986 section 2); everything beyond ASCII as well.
const NOT_IN_TARGET: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::new();
        names.constant("base", "/shop").unwrap();
        names.constant("agent", "a\r\nX: y").unwrap();
        names.column("login", 0).unwrap();
        names.captured("csrf").unwrap();
        names
    }

    fn written(text: &str, escape: Escape) -> String {
        let mut random = Pcg64Mcg::new(7);
        let mut known = Known {
            captured: vec![Some(b"a+b/c=\r\n".to_vec())],
            ..Known::default()
        };
        let mut values = Values {
            user: 12,
            iteration: 3,
            random: &mut random,
            row: &["Zo\u{eb} & Co".to_owned()],
            known: &mut known,
        };
        let mut out = Vec::new();
        names()
            .template(text)
            .unwrap()
            .write(&mut values, escape, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn variables_are_replaced() {
        assert_eq!(written("", Escape::Nothing), "");
        assert_eq!(
            written("{{base}}/{{ user }}-{{iteration}}.", Escape::Nothing),
            "/shop/12-3."
        );
        let random = written("{{random}}{{random}}", Escape::Nothing);
        assert!(random.len() == 32 && random[..16] != random[16..]);
        assert_eq!(
            written("{\"a\": {\"b\": 1}}", Escape::Nothing),
            "{\"a\": {\"b\": 1}}"
        );
    }

    #[test]
    fn values_are_written_as_their_place_wants() {
        assert_eq!(written("{{login}}", Escape::Form), "Zo%C3%AB+%26+Co");
        assert_eq!(
            written("a b&{{csrf}}", Escape::Form),
            "a+b%26a%2Bb%2Fc%3D%0D%0A"
        );
        assert_eq!(
            written("/x?y={{login}}", Escape::Target),
            "/x?y=Zo%C3%AB%20&%20Co"
        );
        assert_eq!(written("t: {{csrf}}", Escape::Field), "t: a+b/c=  ");
        assert_eq!(written("{{agent}}\tb", Escape::Field), "a  X: y\tb");
    }

    #[test]
    fn mistakes_are_named() {
        let fault = |text: &str| names().template(text).unwrap_err().to_string();
        assert!(fault("{{nobody}}").contains("no variable `nobody`"));
        assert!(fault("{{nobody}}").contains("base, csrf, iteration, login, random, user"));
        assert!(fault("/{{user").contains("`{{user` has no end"));
        let mut names = names();
        assert!(names.constant("user", "x").is_err());
        assert!(names.column("a b", 1).is_err());
        assert!(names.captured("base").is_err());
        assert_eq!(names.captured("csrf"), Ok(0));
        assert_eq!(names.captured("other"), Ok(1));
    }
}
