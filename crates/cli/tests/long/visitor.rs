//! A visitor of the accounts: cookies, forms with their tokens, an address of its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::client::{Answer, Connection, request};
use crate::form_content::form_content;

pub(crate) const PASSWORD: &str = "wind and tide wait for no one";
pub(crate) const NEW_PASSWORD: &str = "a new and better one";

/// One browser, which keeps its connection unless it is asked not to.
pub(crate) struct Visitor {
    server: SocketAddr,
    address: IpAddr,
    /// Whether each request has a connection of its own, so that others come in between.
    is_brief: bool,
    connection: Option<Connection>,
    cookies: BTreeMap<String, String>,
}

impl Visitor {
    pub(crate) fn new(server: SocketAddr, address: IpAddr, is_brief: bool) -> Self {
        Self {
            server,
            address,
            is_brief,
            connection: None,
            cookies: BTreeMap::new(),
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.exchange("GET", path, "", "")
    }

    /// Loads the page of a form and sends it with its token.
    pub(crate) fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let page = self.get(path);
        self.send_form(path, &page, fields)
    }

    fn send_form(&mut self, path: &str, page: &Answer, fields: &[(&str, &str)]) -> Answer {
        let text = page.text();
        let (_, rest) = text
            .split_once("name=\"token\" value=\"")
            .unwrap_or_else(|| panic!("{path}: no token: {}{text}", page.head));
        let token = rest.split('"').next().unwrap();
        let mut all = vec![("token", token)];
        all.extend(fields);
        let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
        self.exchange("POST", path, kind, &form_content(&all))
    }

    pub(crate) fn register(&mut self, name: &str) -> Answer {
        let fields = [("name", name), ("password", PASSWORD), ("repeat", PASSWORD)];
        self.submit("/accounts/register", &fields)
    }

    pub(crate) fn log_in(&mut self, name: &str, password: &str) -> Answer {
        let fields = [("name", name), ("password", password)];
        self.submit("/accounts/login", &fields)
    }

    pub(crate) fn log_out(&mut self) -> Answer {
        let page = self.get("/accounts/");
        self.send_form("/accounts/logout", &page, &[])
    }

    pub(crate) fn change_password(&mut self, current: &str) -> Answer {
        let fields = [
            ("current", current),
            ("password", NEW_PASSWORD),
            ("repeat", NEW_PASSWORD),
        ];
        self.submit("/accounts/password", &fields)
    }

    pub(crate) fn delete(&mut self, current: &str) -> Answer {
        self.submit("/accounts/delete", &[("current", current)])
    }

    /// Closes its connection; the cookies stay.
    pub(crate) fn leave(&mut self) {
        self.connection = None;
    }

    fn exchange(&mut self, method: &str, path: &str, fields: &str, content: &str) -> Answer {
        let cookies = self.cookies.iter().map(|(name, it)| format!("{name}={it}"));
        let cookies: Vec<String> = cookies.collect();
        let mut fields = fields.to_owned();
        if !cookies.is_empty() {
            fields += &format!("Cookie: {}\r\n", cookies.join("; "));
        }
        if self.is_brief {
            fields += "Connection: close\r\n";
        }
        if method == "POST" {
            fields += &format!("Content-Length: {}\r\n", content.len());
        }
        let text = request(method, path, &fields) + content;
        let (server, address) = (self.server, self.address);
        let connection = self.connection.take();
        let mut connection = connection.unwrap_or_else(|| Connection::from(address, server));
        connection.send(text.as_bytes());
        let answer = connection.answer().expect("an answer");
        if !answer.closes() {
            self.connection = Some(connection);
        }
        let lines = answer.head.lines().filter_map(|line| line.split_once(": "));
        for (_, value) in lines.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            let pair = value.split(';').next().unwrap();
            let (name, secret) = pair.split_once('=').expect("a name and a value");
            match value.contains("Max-Age=0") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), secret.to_owned()),
            };
        }
        answer
    }
}

/// Asserts that an answer sends the browser there.
#[track_caller]
pub(crate) fn leads_to(answer: &Answer, path: &str) {
    let found = (answer.status, answer.field("location"));
    assert_eq!(found, (303, Some(path)), "{}", answer.text());
}

/// Asserts a status.
#[track_caller]
pub(crate) fn is(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}{}", answer.head, answer.text());
}
