//! Files in TOML, read by serde with the place of what is wrong.
//!
//! The deserializers of `toml` take a file apart as they go, and are some 5 KB of code for each type. This one
//! borrows from what was parsed, and takes a part of that. It reads [`Spanned`] as they do. A struct is a table
//! alone: they also take an array of its values, which is as much code again.

use std::fmt;
use std::ops::Range;
use std::slice;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use crate::ValueError;

/// A mistake, and which bytes of the file it is about.
pub type Located<T> = Result<T, (Range<usize>, ValueError)>;

/// Puts a place to a mistake.
pub fn at<T, M: Into<ValueError>>(
    place: &Spanned<T>,
) -> impl Fn(M) -> (Range<usize>, ValueError) + use<T, M> {
    let span = place.span();
    move |message| (span.clone(), message.into())
}

/// What a file says, not yet read.
///
/// # Errors
/// It is not TOML.
pub fn parse(text: &str) -> Located<Spanned<DeTable<'_>>> {
    DeTable::parse(text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        (error.span().unwrap_or_default(), message.into())
    })
}

/// What stands at a place of a file.
///
/// # Errors
/// It is of another form.
pub fn read<T: DeserializeOwned>(value: &Spanned<DeValue<'_>>) -> Located<T> {
    T::deserialize(Place::of(value)).map_err(Mistake::located)
}

/// The same of the whole file, or what is left of it.
///
/// # Errors
/// See [`read`].
pub fn read_table<T: DeserializeOwned>(table: &Spanned<DeTable<'_>>) -> Located<T> {
    let Range { start, end } = table.span();
    let node = Node::Table(table.get_ref());
    T::deserialize(Place { node, start, end }).map_err(Mistake::located)
}

/// Small, since each function here hands it on.
#[derive(Debug)]
struct Mistake(Box<(String, Option<Range<usize>>)>);

impl Mistake {
    /// The innermost place counts.
    fn or_at(mut self, start: usize, end: usize) -> Self {
        self.0.1.get_or_insert(start..end);
        self
    }

    fn located(self) -> (Range<usize>, ValueError) {
        let (message, span) = *self.0;
        (span.unwrap_or_default(), message.replace('\n', " ").into())
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.0)
    }
}

impl std::error::Error for Mistake {}

impl serde::de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(Box::new((message.to_string(), None)))
    }
}

/// Of a variant, a key or a field.
type Name<'t> = BorrowedStrDeserializer<'t, Mistake>;

/// A value, and which bytes of the file it is.
#[derive(Clone, Copy)]
struct Place<'t> {
    node: Node<'t>,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy)]
enum Node<'t> {
    Text(&'t str),
    Signed(i64),
    Unsigned(u64),
    Number(f64),
    Switch(bool),
    List(&'t [Spanned<DeValue<'t>>]),
    Table(&'t DeTable<'t>),
    /// What no value here can be.
    Wrong(&'static str),
}

impl<'t> Place<'t> {
    fn of(value: &'t Spanned<DeValue<'t>>) -> Self {
        let Range { start, end } = value.span();
        let node = match value.get_ref() {
            DeValue::String(text) => Node::Text(text),
            DeValue::Integer(number) => whole(number),
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(value) if value.is_finite() || !number.as_str().contains(char::is_numeric) => {
                    Node::Number(value)
                }
                _ => Node::Wrong("floating-point number overflowed"),
            },
            DeValue::Boolean(is_on) => Node::Switch(*is_on),
            DeValue::Datetime(_) => Node::Wrong("a date; right would be a text, in quotes"),
            DeValue::Array(items) => Node::List(items),
            DeValue::Table(table) => Node::Table(table),
        };
        Self { node, start, end }
    }

    fn table<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = match self.node {
            Node::Table(table) => visitor.visit_map(Entries {
                left: &mut table.iter(),
                value: None,
            }),
            _ => Err(self.instead_of(&visitor)),
        };
        read.map_err(|error| error.or_at(self.start, self.end))
    }

    fn instead_of(&self, expected: &dyn Expected) -> Mistake {
        let found = match self.node {
            Node::Text(text) => Unexpected::Str(text),
            Node::Signed(number) => Unexpected::Signed(number),
            Node::Unsigned(number) => Unexpected::Unsigned(number),
            Node::Number(number) => Unexpected::Float(number),
            Node::Switch(is_on) => Unexpected::Bool(is_on),
            Node::List(_) => Unexpected::Seq,
            Node::Table(_) => Unexpected::Map,
            Node::Wrong(problem) => return Mistake::custom(problem),
        };
        Mistake::invalid_type(found, expected)
    }
}

fn whole(number: &DeInteger<'_>) -> Node<'static> {
    let (text, radix) = (number.as_str(), number.radix());
    let signed = i64::from_str_radix(text, radix).map(Node::Signed);
    let unsigned = u64::from_str_radix(text, radix).map(Node::Unsigned);
    let overflowed = Node::Wrong("integer number overflowed");
    signed.or(unsigned).unwrap_or(overflowed)
}

impl<'de> Deserializer<'de> for Place<'de> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = match self.node {
            Node::Text(text) => visitor.visit_borrowed_str(text),
            Node::Signed(number) => visitor.visit_i64(number),
            Node::Unsigned(number) => visitor.visit_u64(number),
            Node::Number(number) => visitor.visit_f64(number),
            Node::Switch(is_on) => visitor.visit_bool(is_on),
            Node::List(items) => visitor.visit_seq(Items(items.iter())),
            Node::Table(table) => visitor.visit_map(Entries {
                left: &mut table.iter(),
                value: None,
            }),
            Node::Wrong(problem) => Err(Mistake::custom(problem)),
        };
        read.map_err(|error| error.or_at(self.start, self.end))
    }

    /// What stands there is there.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = visitor.visit_some(self);
        read.map_err(|error| error.or_at(self.start, self.end))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let read = visitor.visit_newtype_struct(self);
        read.map_err(|error| error.or_at(self.start, self.end))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        // A `Spanned` asks for start, end and value, in this order.
        match name.starts_with("$__serde_spanned") {
            true => visitor.visit_map(Parts {
                names: fields.iter(),
                of: self,
                given: 0,
            }),
            false => self.table(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let read = match self.node {
            Node::Text(text) => visitor.visit_enum(Name::new(text)),
            Node::Table(table) => match (table.iter().next(), table.len()) {
                (Some(entry), 1) => visitor.visit_enum(Variant(entry)),
                (_, count) => Err(Mistake::custom(format!(
                    "wanted exactly 1 element, found {count}"
                ))),
            },
            _ => Err(Mistake::custom("wanted string or table")),
        };
        read.map_err(|error| error.or_at(self.start, self.end))
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 char str string seq
        bytes byte_buf map unit
        ignored_any unit_struct tuple_struct tuple identifier
    }
}

struct Items<'t>(slice::Iter<'t, Spanned<DeValue<'t>>>);

impl<'t> SeqAccess<'t> for Items<'t> {
    type Error = Mistake;

    fn next_element_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        let item = self.0.next();
        item.map(|it| seed.deserialize(Place::of(it))).transpose()
    }
}

type Entry<'t> = (&'t Spanned<DeString<'t>>, &'t Spanned<DeValue<'t>>);

struct Entries<'a, 't> {
    left: &'a mut dyn Iterator<Item = Entry<'t>>,
    value: Option<&'t Spanned<DeValue<'t>>>,
}

impl<'t> MapAccess<'t> for Entries<'_, 't> {
    type Error = Mistake;

    fn next_key_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        let Some((key, value)) = self.left.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let Range { start, end } = key.span();
        let read = seed.deserialize(Name::new(key.get_ref())).map(Some);
        read.map_err(|error| error.or_at(start, end))
    }

    fn next_value_seed<S: DeserializeSeed<'t>>(&mut self, seed: S) -> Result<S::Value, Mistake> {
        let Some(value) = self.value.take() else {
            return Err(Mistake::custom("a value was read before its name"));
        };
        let place = Place::of(value);
        let read = seed.deserialize(place);
        read.map_err(|error| error.or_at(place.start, place.end))
    }
}

/// Of an enum: its name, and what belongs to it.
struct Variant<'t>(Entry<'t>);

impl<'t> EnumAccess<'t> for Variant<'t> {
    type Error = Mistake;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'t>>(self, seed: S) -> Result<(S::Value, Self), Mistake> {
        let name = self.0.0;
        let Range { start, end } = name.span();
        let read = seed.deserialize(Name::new(name.get_ref()));
        let variant = read.map_err(|error| error.or_at(start, end))?;
        Ok((variant, self))
    }
}

impl<'t> VariantAccess<'t> for Variant<'t> {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        Err(Mistake::custom("wanted the name alone"))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'t>>(self, seed: S) -> Result<S::Value, Mistake> {
        seed.deserialize(Place::of(self.0.1))
    }

    fn tuple_variant<V: Visitor<'t>>(self, len: usize, visitor: V) -> Result<V::Value, Mistake> {
        let place = Place::of(self.0.1);
        match place.node {
            Node::List(items) if items.len() == len => place.deserialize_any(visitor),
            _ => {
                let error = Mistake::custom(format!("expected tuple with length {len}"));
                Err(error.or_at(place.start, place.end))
            }
        }
    }

    fn struct_variant<V: Visitor<'t>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        Place::of(self.0.1).table(visitor)
    }
}

/// Of a [`Spanned`].
struct Parts<'t> {
    names: slice::Iter<'static, &'static str>,
    of: Place<'t>,
    given: usize,
}

impl<'t> MapAccess<'t> for Parts<'t> {
    type Error = Mistake;

    fn next_key_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        let name = self.names.next();
        name.map(|it| seed.deserialize(Name::new(it))).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'t>>(&mut self, seed: S) -> Result<S::Value, Mistake> {
        self.given += 1;
        let node = match self.given {
            1 => Node::Unsigned(self.of.start as u64),
            2 => Node::Unsigned(self.of.end as u64),
            _ => self.of.node,
        };
        seed.deserialize(Place { node, ..self.of })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        HeatMap,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged, expecting = "expected a number or a text")]
    enum Either {
        Number(f64),
        Text(String),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Capture {
        Header(String),
        Between(String, String),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Count(u16);

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        count: Option<Count>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        name: Spanned<String>,
        kind: Option<Kind>,
        #[serde(default)]
        either: Vec<Either>,
        pair: Option<(i64, u64)>,
        seconds: Option<Spanned<f64>>,
        #[serde(default)]
        inner: BTreeMap<String, Spanned<Inner>>,
        is_on: Option<bool>,
        #[serde(default)]
        capture: Vec<Spanned<Capture>>,
    }

    const WHOLE: &str = "name = 'a'\nkind = 'heat_map'\neither = [1, 'two', 0x7fff, 2.5]\n\
                         pair = [-1, 18446744073709551615]\nseconds = 1e3\nis_on = true\n\
                         capture = [{ header = 'ETag' }, { between = ['a', 'b'] }]\n\
                         [inner.x]\ncount = 3\n[inner.y]\n";

    /// By this, and by `toml` itself.
    fn both(text: &str) -> [Result<File, (usize, String)>; 2] {
        let ours = parse(text).and_then(|table| read_table(&table));
        let ours = ours.map_err(|(span, error)| (span.start, error.to_string()));
        let theirs = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            (start, error.message().replace('\n', " "))
        });
        [ours, theirs]
    }

    #[test]
    fn a_file_is_read_as_by_toml() {
        let [ours, theirs] = both(WHOLE);
        assert_eq!(ours, theirs);
        let places = [ours, theirs].map(|file| {
            let file = file.unwrap();
            let seconds = file.seconds.map(|it| it.span());
            (file.name.span(), seconds, file.inner["x"].span())
        });
        assert_eq!(places[0], places[1]);
        let at = WHOLE.find("1e3").unwrap();
        assert_eq!(places[0].1, Some(at..at + 3));
    }

    #[test]
    fn mistakes_are_where_toml_finds_them() {
        for text in [
            "",
            "name",
            "name = 1",
            "name = 'a'\nnam = 'b'",
            "name = 'a'\nkind = 'heat'",
            "name = 'a'\neither = [1,\ntrue]",
            "name = 'a'\npair = [1]",
            "name = 'a'\npair = [1, -1]",
            "name = 'a'\nseconds = 'two'",
            "name = 'a'\n\n[inner.x]\ncount = 70000",
            "name = 'a'\n\n[inner.x]\ncuont = 7",
            "name = 'a'\ninner = 3",
            "name = 'a'\n[inner]\nx = 3",
            "name = 'a'\n[inner]\nx = 'b'",
            "name = 'a'\n[inner]\nx = true",
            "name = 'a'\ncapture = ['header']",
            "name = 'a'\ncapture = [{ heder = 'ETag' }]",
            "name = 'a'\ncapture = [{ header = 1 }]",
            "name = 'a'\ncapture = [\n{ between = ['a'] }]",
        ] {
            let [ours, theirs] = both(text);
            assert!(ours.is_err(), "{text}");
            assert_eq!(ours, theirs, "{text}");
        }
    }

    #[test]
    fn a_list_is_no_struct() {
        let [ours, _] = both("name = 'a'\n[inner]\nx = [3]");
        let problem = "invalid type: sequence, expected struct Inner".to_owned();
        assert_eq!(ours, Err((23, problem)));
    }

    #[test]
    fn dates_and_numbers_beyond_all_are_refused_with_their_place() {
        for value in ["1979-05-27", "1e999", "99999999999999999999"] {
            let [ours, _] = both(&format!("name = 'a'\nseconds = {value}"));
            assert_eq!(ours.map_err(|(start, _)| start), Err(21), "{value}");
        }
    }
}
