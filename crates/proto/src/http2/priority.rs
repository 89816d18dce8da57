//! Which response a client wants first (RFC 9218).

use crate::Request;

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
    /// What a request asks for.
    pub(crate) fn of(request: &Request) -> Self {
        let mut fields = request.fields();
        let field = fields.find(|(name, _)| *name == b"priority");
        field.map_or_else(Self::default, |(_, value)| Self::parse(value))
    }

    /// From the value of a Priority field, a dictionary (RFC 8941 section 3.2). What is not understood is
    /// ignored (section 4).
    pub(crate) fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|byte| *byte == b',') {
            let member = member.split(|byte| *byte == b';').next().unwrap_or(member);
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
