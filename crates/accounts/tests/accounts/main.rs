//! The app as a browser sees it: on SQLite in this process, and on servers of MariaDB and PostgreSQL
//! that the tests start and stop.

mod client;
mod databases;
mod devices;
mod docs;
mod forms;
mod limits;
mod memory;
mod outages;
mod planted;
mod pools;
mod relay;
mod secrets;
mod servers;
mod sessions;
mod site;
mod without_tls;
