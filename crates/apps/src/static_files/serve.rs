//! From an entry to an answer: which form of it, whether the client has it already, which bytes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use loadline_base::OpenFile;
use loadline_codings::{AcceptedCodings, Coding};
use loadline_proto::{Body, Context, Exchange, FieldName, Method, Outcome, Request, Status};
use rustix::fs::{Advice, fadvise};

use super::StaticFiles;
use super::entry::{Entry, Resource, Target};
use super::load::{Failure, read_at};
use super::representation::Representation;
use super::root::Access;
use crate::content::conditional::{Decision, Validators, evaluate};
use crate::content::multipart::{Boundary, Content, body};
use crate::content::path::{SitePath, directory_location};
use crate::content::range::{ByteRange, Selection, select, unsatisfied_content_range};

/// Fields that make a request more than a request for the whole.
pub(super) const SELECTIVE: u32 = CONDITIONS | FieldName::set(&[FieldName::Range]);

const CONDITIONS: u32 = FieldName::set(&[
    FieldName::IfMatch,
    FieldName::IfNoneMatch,
    FieldName::IfModifiedSince,
    FieldName::IfUnmodifiedSince,
    FieldName::IfRange,
]);

/// Bytes of a file outside the page cache that are read ahead before it is handed to the loop.
const READ_AHEAD_BYTES: u64 = 512 << 10;

/// Whether making an answer may wait.
pub(super) enum ServeMode<'p, 't> {
    /// On a loop: with its turn, and without waiting.
    NonBlocking(&'p mut Context<'t>),
    /// Where waiting is allowed.
    Blocking,
}

impl ServeMode<'_, '_> {
    /// What may be waited for.
    pub(super) fn access(&self) -> Access {
        match self {
            Self::NonBlocking(_) => Access::Cached,
            Self::Blocking => Access::Any,
        }
    }
}

impl StaticFiles {
    /// Answers with what `entry` leads to.
    pub(super) fn serve(
        &self,
        entry: &Entry,
        path: &SitePath<'_>,
        exchange: &mut Exchange,
        mode: ServeMode<'_, '_>,
    ) -> Outcome {
        match &entry.target {
            Target::File(resource) => return self.serve_file(resource, exchange, mode),
            Target::Redirect => {
                let location = directory_location(path.relative(), exchange.request.query());
                exchange.response.clear();
                exchange.response.status = Status::MOVED_PERMANENTLY;
                exchange.response.field("Location", location);
            }
            Target::Directory if self.options.listing => {
                let ServeMode::Blocking = mode else {
                    return Outcome::Blocking;
                };
                self.serve_listing(path, exchange);
            }
            Target::Directory if self.options.spa_fallback.is_some() => {
                return self.fail(Failure::Missing, path, exchange, mode);
            }
            Target::Directory => exchange.response.error(Status::FORBIDDEN),
        }
        Outcome::Ready
    }

    /// Answers with a file, or says that it has to be waited for.
    pub(super) fn serve_file(
        &self,
        resource: &Resource,
        exchange: &mut Exchange,
        mode: ServeMode<'_, '_>,
    ) -> Outcome {
        let (found, missing) = resource.choose(|| accepted(&exchange.request));
        if let (Some(coding), Some(making), ServeMode::NonBlocking(cx)) =
            (missing, &resource.making, &mode)
            && making.may_ask(coding, cx.now)
        {
            // If no worker has time to make it, what there is has to do.
            exchange.answer_as_data = true;
            let outcome = self.serve_form(resource, found, exchange, mode);
            exchange.stands_if_refused = outcome == Outcome::Ready;
            return Outcome::Blocking;
        }
        self.serve_form(resource, found, exchange, mode)
    }

    /// The same with this form of it.
    fn serve_form(
        &self,
        resource: &Resource,
        chosen: &Representation,
        exchange: &mut Exchange,
        mode: ServeMode<'_, '_>,
    ) -> Outcome {
        let request = &exchange.request;
        if !request.has_any(SELECTIVE) {
            return self.serve_whole(chosen, exchange, mode);
        }
        let mut may_range = true;
        if request.has_any(CONDITIONS) {
            let now_seconds = match &mode {
                ServeMode::NonBlocking(cx) => cx.date.unix_seconds(),
                ServeMode::Blocking => {
                    let now = (self.options.wall_clock)().duration_since(UNIX_EPOCH);
                    now.map(|since| since.as_secs()).unwrap_or_default()
                }
            };
            let validators = Validators {
                etag: Some(chosen.etag.as_bytes()),
                modified_seconds: Some(chosen.modified_seconds),
                is_date_shared: resource.varies(),
                now_seconds,
            };
            match evaluate(request, &validators) {
                Decision::Proceed { range } => may_range = range,
                Decision::NotModified => {
                    exchange.response.clear();
                    exchange.response.status = Status::NOT_MODIFIED;
                    let response = &mut exchange.response;
                    response.fields.append(&chosen.fields, chosen.about_content);
                    return Outcome::Ready;
                }
                Decision::PreconditionFailed => {
                    exchange.response.error(Status::PRECONDITION_FAILED);
                    vary(resource, exchange);
                    return Outcome::Ready;
                }
            }
        }
        // Range is for GET alone (RFC 9110 section 14.2).
        if !may_range || request.method != Method::Get {
            return self.serve_whole(chosen, exchange, mode);
        }
        match select(request.field_values(FieldName::Range), chosen.size) {
            Selection::Whole => self.serve_whole(chosen, exchange, mode),
            Selection::One(range) => serve_ranges(chosen, &[range], exchange, &mode),
            // Content-Encoding is of the whole message, and a multipart one is in no coding. Range may be
            // ignored (RFC 9110 section 14.2).
            Selection::Several(_) if chosen.coding != Coding::Identity => {
                self.serve_whole(chosen, exchange, mode)
            }
            Selection::Several(ranges) => serve_ranges(chosen, &ranges, exchange, &mode),
            Selection::Unsatisfiable => {
                exchange.response.error(Status::RANGE_NOT_SATISFIABLE);
                let content_range = unsatisfied_content_range(chosen.size).to_string();
                exchange.response.field("Content-Range", content_range);
                vary(resource, exchange);
                Outcome::Ready
            }
        }
    }

    fn serve_whole(
        &self,
        chosen: &Representation,
        exchange: &mut Exchange,
        mode: ServeMode<'_, '_>,
    ) -> Outcome {
        let small = chosen
            .memory()
            .filter(|bytes| bytes.len() <= self.options.inline_bytes_max);
        match (mode, small) {
            (ServeMode::NonBlocking(cx), Some(bytes)) => {
                exchange.answer_borrowed(Status::OK, &chosen.fields, bytes, cx);
                Outcome::Ready
            }
            (mode, _) => {
                let whole = ByteRange {
                    start: 0,
                    end: chosen.size,
                };
                if !at_hand(chosen, whole, exchange, &mode) {
                    return Outcome::Blocking;
                }
                exchange.response.clear();
                exchange.response.fields.append(&chosen.fields, 0);
                exchange.response.body = part(&chosen.content, whole);
                Outcome::Ready
            }
        }
    }
}

pub(super) fn accepted(request: &Request) -> AcceptedCodings {
    AcceptedCodings::parse(request.field_values(FieldName::AcceptEncoding))
}

fn vary(resource: &Resource, exchange: &mut Exchange) {
    if resource.varies() {
        exchange.response.field("Vary", "Accept-Encoding");
    }
}

fn serve_ranges(
    chosen: &Representation,
    ranges: &[ByteRange],
    exchange: &mut Exchange,
    mode: &ServeMode<'_, '_>,
) -> Outcome {
    let is_at_hand = |range: &ByteRange| at_hand(chosen, *range, exchange, mode);
    if !ranges.iter().all(is_at_hand) {
        return Outcome::Blocking;
    }
    let response = &mut exchange.response;
    response.clear();
    response.status = Status::PARTIAL_CONTENT;
    if let [range] = ranges {
        response.fields.append(&chosen.fields, 0);
        let content_range = range.content_range(chosen.size).to_string();
        response.field("Content-Range", content_range);
        response.body = part(&chosen.content, *range);
        return Outcome::Ready;
    }
    // Drawn from the seed of a hash map, which no client can know.
    let seed = RandomState::new();
    let draw = |number: u64| {
        let mut hasher = seed.build_hasher();
        hasher.write_u64(number);
        u128::from(hasher.finish())
    };
    let boundary = Boundary(draw(0) << 64 | draw(1));
    response.field("Content-Type", boundary.content_type());
    response.fields.append(&chosen.fields, 1); // without their Content-Type
    let parts = body(
        &chosen.content,
        ranges,
        chosen.size,
        &chosen.media_type,
        boundary,
    );
    response.body = Body::Segments(parts);
    Outcome::Ready
}

fn part(content: &Content, range: ByteRange) -> Body {
    if range.start == range.end {
        return Body::Empty;
    }
    match content {
        Content::Shared(bytes) => Body::Shared {
            bytes: Arc::clone(bytes),
            start: range.start as usize,
            end: range.end as usize,
        },
        Content::File(file) => Body::File {
            file: Arc::clone(file),
            offset: range.start,
            len: range.len(),
        },
    }
}

/// Whether sending can begin without waiting for the disk. Where waiting is allowed, waits.
fn at_hand(
    chosen: &Representation,
    range: ByteRange,
    exchange: &Exchange,
    mode: &ServeMode<'_, '_>,
) -> bool {
    match &chosen.content {
        Content::File(file) if exchange.request.method == Method::Get => match mode {
            ServeMode::NonBlocking(_) => is_in_page_cache(file, range.start),
            ServeMode::Blocking => {
                prefetch(file, range);
                true
            }
        },
        _ => true,
    }
}

fn is_in_page_cache(file: &OpenFile, offset: u64) -> bool {
    // Reading from another machine may wait, whatever it is asked.
    if !file.is_local {
        return false;
    }
    // Any other failure shows when it is sent.
    let read = read_at(&file.fd, &mut [0], offset, Access::Cached);
    read != Err(rustix::io::Errno::AGAIN)
}

fn prefetch(file: &OpenFile, range: ByteRange) {
    let ahead = NonZeroU64::new(range.len().min(READ_AHEAD_BYTES));
    // Both only help: what they cannot do shows when the file is sent.
    let _ = fadvise(&file.fd, range.start, ahead, Advice::WillNeed);
    let _ = read_at(&file.fd, &mut [0], range.start, Access::Any);
}
