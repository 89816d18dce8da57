//! Reads JSON in little code.
//!
//! serde_json takes a struct as an object or as an array of its values, and serde derives code for each.
//! Nothing of ours is written as an array. Here structs are objects alone, and what would read the
//! arrays is not compiled.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

/// Reads a value, as [`serde_json::from_slice`] does. Use this one wherever structs are read: both for the
/// same type are all of its code twice.
///
/// # Errors
/// It is no JSON, or a struct is no object, or what is read says why.
pub fn from_json<'de, T: Deserialize<'de>>(json: &'de [u8]) -> serde_json::Result<T> {
    let mut from = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(ByName(&mut from))?;
    from.end()?;
    Ok(value)
}

/// A part of serde's machinery that asks for objects where it is asked for structs, and has the parts
/// that it hands out do the same. Without hints (`deserialize_any`) nobody asks for a struct.
struct ByName<T>(T);

/// Methods that take a visitor which is given nothing to read on from.
macro_rules! unchanged {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, T::Error> {
                self.0.$method(visitor)
            }
        )*
    };
}

impl<'de, T: Deserializer<'de>> Deserializer<'de> for ByName<T> {
    type Error = T::Error;

    unchanged! {
        deserialize_any deserialize_ignored_any deserialize_identifier deserialize_bool
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, T::Error> {
        self.0.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, T::Error> {
        self.0.deserialize_option(ByName(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, T::Error> {
        self.0.deserialize_newtype_struct(name, ByName(visitor))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, T::Error> {
        self.0.deserialize_seq(ByName(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, T::Error> {
        self.0.deserialize_tuple(len, ByName(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, T::Error> {
        self.0.deserialize_tuple_struct(name, len, ByName(visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, T::Error> {
        self.0.deserialize_map(ByName(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, T::Error> {
        self.0.deserialize_map(ByName(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, T::Error> {
        self.0.deserialize_enum(name, variants, ByName(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Of what visitors are shown, all that there is to be read on from.
impl<'de, T: Visitor<'de>> Visitor<'de> for ByName<T> {
    type Value = T::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<T::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<T::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<T::Value, D::Error> {
        self.0.visit_some(ByName(from))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<T::Value, D::Error> {
        self.0.visit_newtype_struct(ByName(from))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<T::Value, A::Error> {
        self.0.visit_seq(ByName(from))
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<T::Value, A::Error> {
        self.0.visit_map(ByName(from))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, from: A) -> Result<T::Value, A::Error> {
        self.0.visit_enum(ByName(from))
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for ByName<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T::Value, D::Error> {
        self.0.deserialize(ByName(from))
    }
}

impl<'de, T: SeqAccess<'de>> SeqAccess<'de> for ByName<T> {
    type Error = T::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, T::Error> {
        self.0.next_element_seed(ByName(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, T: MapAccess<'de>> MapAccess<'de> for ByName<T> {
    type Error = T::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, T::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, T::Error> {
        self.0.next_value_seed(ByName(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, T: EnumAccess<'de>> EnumAccess<'de> for ByName<T> {
    type Error = T::Error;
    type Variant = ByName<T::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, ByName<T::Variant>), T::Error> {
        let (value, variant) = self.0.variant_seed(seed)?;
        Ok((value, ByName(variant)))
    }
}

impl<'de, T: VariantAccess<'de>> VariantAccess<'de> for ByName<T> {
    type Error = T::Error;

    fn unit_variant(self) -> Result<(), T::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, T::Error> {
        self.0.newtype_variant_seed(ByName(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, T::Error> {
        self.0.tuple_variant(len, ByName(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, T::Error> {
        self.0.newtype_variant_seed(Object(visitor))
    }
}

/// The fields of a variant.
struct Object<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Object<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        from.deserialize_map(ByName(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        one: Option<Box<Inner>>,
        none: Option<Inner>,
        some: Vec<Inner>,
        named: BTreeMap<String, Inner>,
        kinds: Vec<Kind>,
        pair: (u128, Inner),
        new: New,
        levels: Vec<Level>,
        rest: Value,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Inner {
        number: u32,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct New(Inner);

    #[derive(Debug, PartialEq, Deserialize)]
    enum Kind {
        Unit,
        New(Inner),
        Tuple(u8, Inner),
        Struct { inner: Inner },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Level {
        Number(f64),
        Text(String),
    }

    #[test]
    fn what_is_read_is_what_serde_json_reads() {
        let text = r#"{
            "one": {"number": 1},
            "none": null,
            "some": [{"number": 2}, {"number": 3}],
            "named": {"a": {"number": 4}},
            "kinds": [
                "Unit",
                {"New": {"number": 5}},
                {"Tuple": [6, {"number": 7}]},
                {"Struct": {"inner": {"number": 8}}}
            ],
            "pair": [340282366920938463463374607431768211455, {"number": 9}],
            "new": {"number": 10},
            "levels": [11, "b"],
            "rest": {"c": [null, true, 1.5]}
        }"#;
        let expected: Outer = serde_json::from_str(text).unwrap();
        assert_eq!(expected.kinds.len(), 4);
        assert_eq!(from_json::<Outer>(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn a_struct_that_is_an_array_is_refused_wherever_it_stands() {
        for text in [
            "[]",
            r#"{"one": [1]}"#,
            r#"{"some": [[2]]}"#,
            r#"{"named": {"a": [4]}}"#,
            r#"{"kinds": [{"New": [5]}]}"#,
            r#"{"kinds": [{"Tuple": [6, [7]]}]}"#,
            r#"{"kinds": [{"Struct": [{"number": 8}]}]}"#,
            r#"{"pair": [0, [9]]}"#,
            r#"{"new": [10]}"#,
        ] {
            serde_json::from_str::<Outer>(text).unwrap();
            let problem = from_json::<Outer>(text.as_bytes()).unwrap_err();
            let problem = problem.to_string();
            let right = "invalid type: sequence, expected struct";
            assert!(problem.starts_with(right), "{text}: {problem}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_as_by_serde_json() {
        for text in [
            "",
            "{",
            "x",
            r#"{"one": {"number": 1}} {}"#,
            r#"{"one": {}}"#,
            r#"{"one": {"number": "a"}}"#,
            r#"{"two": 2}"#,
            r#"{"kinds": ["New"]}"#,
            r#"{"kinds": ["Other"]}"#,
            r#"{"levels": [true]}"#,
        ] {
            let expected = serde_json::from_str::<Outer>(text).unwrap_err();
            let problem = from_json::<Outer>(text.as_bytes()).unwrap_err();
            assert_eq!(problem.to_string(), expected.to_string(), "{text}");
        }
    }
}
