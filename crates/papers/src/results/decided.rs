//! How many of a number of claims are decided.

use loadline_lab::report::Verdict;
use loadline_lab::report::words::digits;

/// Of those that can be compared, with how many nine tenths of them are; empty: none can be. What is
/// decided is reproduced or not.
pub(super) fn decided(verdicts: impl Iterator<Item = Verdict>) -> String {
    let (mut decided, mut comparable) = (0_usize, 0_usize);
    for verdict in verdicts {
        let (is_comparable, is_decided) = match verdict {
            Verdict::Reproduced | Verdict::NotReproduced => (true, true),
            Verdict::NotTestable => (true, false),
            Verdict::NotComparable => (false, false),
        };
        comparable += usize::from(is_comparable);
        decided += usize::from(is_decided);
    }
    if comparable == 0 {
        return String::new();
    }
    let wanted = (comparable * 9).div_ceil(10);
    let more = match wanted.saturating_sub(decided) {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    // Rounded down: what falls short of nine tenths is never called 90 %.
    let percent = digits((1000 * decided / comparable) as f64 / 10.0, 3);
    let are = if decided == 1 { "is" } else { "are" };
    format!(
        "Of the {comparable} comparable claims {decided} {are} decided ({percent} %); nine tenths are \
         {wanted}{more}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(counts: &[(Verdict, usize)]) -> String {
        let counts = counts.iter();
        decided(counts.flat_map(|(verdict, count)| vec![*verdict; *count]))
    }

    #[test]
    fn nine_tenths_of_what_is_comparable_are_wanted() {
        use Verdict::{NotComparable, NotReproduced, NotTestable, Reproduced};
        assert_eq!(
            said(&[(Reproduced, 6), (NotReproduced, 3), (NotTestable, 1)]),
            "Of the 10 comparable claims 9 are decided (90 %); nine tenths are 9."
        );
        assert_eq!(
            said(&[(Reproduced, 9), (NotTestable, 2), (NotComparable, 30)]),
            "Of the 11 comparable claims 9 are decided (81.8 %); nine tenths are 10, 1 more."
        );
        assert_eq!(
            said(&[(Reproduced, 1798), (NotTestable, 200)]),
            "Of the 1998 comparable claims 1798 are decided (89.9 %); nine tenths are 1799, 1 more."
        );
        assert_eq!(said(&[(NotComparable, 3)]), "");
    }
}
