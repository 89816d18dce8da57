//! Handlers: static files, service time, probes, status and live page, and mounts of apps in front of a
//! site. And what compresses static files ahead.
//!
//! A handler sees no socket, no thread and no architecture: see `loadline_proto::Handler`.
#![forbid(unsafe_code)]

pub mod content;
pub mod file_cache;
pub mod https_redirect;
pub mod live;
pub mod mounts;
pub mod precompress;
pub mod probes;
pub mod service_time;
pub mod static_files;
pub mod status;

pub use content::error_pages::error_pages;
pub use content::media_type::{MediaTypeRule, MediaTypes};
pub use file_cache::CacheLimits;
pub use https_redirect::{HttpsPort, HttpsRedirect};
pub use live::{LivePage, LiveSource};
pub use mounts::Mounts;
pub use probes::{Probe, Probes};
pub use service_time::{ServiceKind, ServiceTime};
pub use static_files::{CacheControlRule, CacheUse, StaticFiles, StaticOptions};
pub use status::{StatusPage, StatusSource};
