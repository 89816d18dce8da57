//! The program serves a real site, byte for byte, under every architecture, and holds under a load
//! from a tool that is not ours.

mod drain;
mod load;
mod real_site;
mod sequential;
mod util;
