//! The server of `--admin-listen`, beside the site: if it ends, the site does. A site whose probes are
//! gone would look dead, or look as it was.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use loadline_server::{Control, ServerHandle};

use crate::failure::Failure;

/// It, until the site has ended.
pub(crate) struct Admin {
    control: Control,
    is_to_end: Arc<AtomicBool>,
    /// Returns why it has ended too early.
    watch: JoinHandle<Option<String>>,
}

impl Admin {
    /// Watches it on a thread of its own.
    pub(crate) fn watch(server: ServerHandle, site: Control) -> io::Result<Self> {
        let control = server.control();
        let is_to_end = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_to_end);
        let watch = move || {
            let ending = server.wait();
            if ends.load(Ordering::SeqCst) {
                return None;
            }
            site.drain();
            let why = match ending {
                Err(error) => error.to_string(),
                Ok(_) => "it has ended".to_owned(),
            };
            let why = format!("the server of --admin-listen failed: {why}");
            tracing::error!("{why}; draining");
            Some(why)
        };
        let builder = std::thread::Builder::new().name("admin".into());
        Ok(Self {
            control,
            is_to_end,
            watch: builder.spawn(watch)?,
        })
    }

    /// Ends it, behind the site.
    ///
    /// # Errors
    /// It has ended before, and the site because of that.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.is_to_end.store(true, Ordering::SeqCst);
        self.control.stop_now();
        match self.watch.join() {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(Failure::failed(why)),
            Err(_) => Err(Failure::failed("the server of --admin-listen: a panic")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::panic::panic_any;

    use loadline_proto::{Context, Exchange, Handler, Outcome};
    use loadline_server::{Architecture, Server};

    use super::*;

    /// A handler that panics, and then again where that was caught: its loop is lost.
    struct Losing;

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    impl Handler for Losing {
        type Local = ();

        fn local(&self) {}

        fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
            panic_any(PanicsAgain)
        }

        fn handle_blocking(&self, _: &mut Exchange) {}
    }

    pub(crate) fn start() -> ServerHandle {
        let server = Server::new(Losing).architecture(Architecture::Reactor);
        server.listen(([127, 0, 0, 1], 0)).start().unwrap()
    }

    #[test]
    fn the_site_ends_with_the_server_of_its_pages_and_says_why() {
        let (site, pages) = (start(), start());
        let address = pages.tcp_address().unwrap();
        let admin = Admin::watch(pages, site.control()).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        let _ = client.read(&mut [0; 16]); // until it is cut
        assert!(site.wait().unwrap().is_clean());
        let why = admin.end().unwrap_err().message;
        let expected = "the server of --admin-listen failed: a loop panicked: on purpose";
        assert_eq!(why, expected);
    }

    #[test]
    fn at_the_end_of_the_site_it_is_ended() {
        let (site, pages) = (start(), start());
        let admin = Admin::watch(pages, site.control()).unwrap();
        site.drain();
        site.wait().unwrap();
        admin.end().unwrap();
    }
}
