//! Which response a client wants first (RFC 9218).

use crate::Request;

/// So many urgencies there are.
pub(crate) const URGENCIES: usize = 8;

/// Of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub(crate) urgency: u8,
    /// A part of it is of use: those of one urgency take turns.
    pub(crate) is_incremental: bool,
}

impl Default for Priority {
    /// Section 4.
    fn default() -> Self {
        Self {
            urgency: 3,
            is_incremental: false,
        }
    }
}

impl Priority {
    /// What a request asks for. Several fields are one, as of any list (RFC 9110 section 5.3).
    pub(crate) fn of(request: &Request) -> Self {
        let fields = request.fields().filter(|(name, _)| *name == b"priority");
        fields.fold(Self::default(), |priority, (_, value)| priority.with(value))
    }

    /// From the value of a Priority field, a dictionary (RFC 8941 section 3.2). What is not understood is
    /// ignored (section 4).
    pub(crate) fn parse(value: &[u8]) -> Self {
        Self::default().with(value)
    }

    /// The same with the members of one more field: the last one of a name counts.
    fn with(mut self, value: &[u8]) -> Self {
        for member in value.split(|byte| *byte == b',') {
            let member = member.split(|byte| *byte == b';').next().unwrap_or(member);
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.is_incremental = true,
                b"i=?0" => self.is_incremental = false,
                _ => {}
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldName;

    #[test]
    fn values_of_the_field() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=5, i", 5, true),
            ("i=?1,u=7", 7, true),
            ("i, i=?0", 3, false),
            ("u=1;a=b , x=(1 2)", 1, false),
            ("u=8, u=-1, u, i=1", 3, false),
        ] {
            let expected = Priority {
                urgency,
                is_incremental,
            };
            assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
        }
    }

    /// The first one counted alone.
    #[test]
    fn several_fields_are_one() {
        let mut request = Request::default();
        for value in ["u=5", "i, u=1", "x"] {
            request.push_field(FieldName::Other, b"priority", value.as_bytes());
        }
        let expected = Priority {
            urgency: 1,
            is_incremental: true,
        };
        assert_eq!(Priority::of(&request), expected);
    }
}
