//! `loadline precompress`: variants of the files of a directory, written beside them.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::available_parallelism;

use loadline_apps::precompress::{PrecompressOptions, precompress as write};
use loadline_spec::values::{Auto, Count};

use crate::failure::Failure;
use crate::flags::precompress_defs::PrecompressFlags;

/// Writes them, and says in a line what was done.
pub(crate) fn precompress(flags: &PrecompressFlags) -> Result<(), Failure> {
    let shown = flags.root.display();
    let mut codings = Vec::new();
    for encoding in &flags.encodings {
        if !codings.contains(&encoding.0) {
            codings.push(encoding.0);
        }
    }
    let one = NonZeroUsize::MIN;
    let options = PrecompressOptions {
        codings,
        bytes_min: *flags.min_size,
        types: flags.types.clone(),
        jobs: match flags.jobs {
            Auto::Auto => available_parallelism().unwrap_or(one),
            Auto::Given(jobs) => NonZeroUsize::new(Count::get(jobs)).unwrap_or(one),
        },
    };
    let report =
        |path: &Path, error: &io::Error| crate::say(&format!("{}: {error}", path.display()));
    let summary = write(&flags.root, &options, &report).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            Failure::failed(format!("DIR {shown}: another precompress is at work there"))
        }
        io::ErrorKind::NotFound => Failure::usage(format!(
            "DIR {shown}: no such directory; right would be an existing one"
        )),
        _ => Failure::usage(format!("DIR {shown}: {error}")),
    })?;
    crate::print(format!("{shown}: {summary}\n").as_bytes())?;
    match summary.failed {
        0 => Ok(()),
        count => Err(Failure::failed(format!(
            "{count} of them failed, as said above"
        ))),
    }
}
