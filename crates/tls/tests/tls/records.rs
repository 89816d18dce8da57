//! Records as no usual client cuts them, and handshakes behind the first one.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use loadline_base::Buffer;
use loadline_proto::{ClientKey, CloseReason, Layer as _, Limits};
use loadline_tls::{Certificates, TlsLayer, TlsOptions, TlsServer};
use rustls::crypto;
use rustls::crypto::aws_lc_rs::kx_group::{MLKEM768, X25519};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets};

use crate::drive::{Driver, config, echo};
use crate::pair::{
    Pair, certificate, client_of, client_with, connection, cut_records, ends, exchange, receive,
    sent_by,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A handshake's record (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// As long as a record with a byte in it.
const SMALL_RECORD: usize = 6;

fn driver(server: &TlsServer) -> Driver<'static> {
    Driver::speaking(server.protocol(), &config(Limits::default()), echo)
}

#[test]
fn a_hello_in_records_of_a_byte_is_one_computation() {
    let (server, client) = ends(&TlsOptions::default());
    for piece in [1, 3, 100] {
        let mut pair = Pair::new(&server, &client);
        pair.server.hold_computing = true;
        let hello = cut_records(&pair.out, piece);
        pair.out.clear();
        let (all_but_the_end, end) = hello.split_at(hello.len() - 1);
        pair.server.drip(all_but_the_end);
        assert!(pair.server.computing.is_none(), "half of it is computed");
        pair.server.feed(end);
        assert!(pair.server.computing.is_some(), "all of it is not computed");
        pair.server.computed(true);
        assert_eq!(pair.open().ask(GET)[0].body, b"GET /");
        assert!(pair.server.computing.is_none(), "another computation");
    }
}

#[test]
fn a_hello_that_never_ends_is_kept_up_to_a_bound() {
    let (server, _) = ends(&TlsOptions::default());
    let long = [&[1, 0xff, 0xff, 0xff][..], &[0; 100_000]].concat();
    let record = |content: &[u8]| {
        let len = (content.len() as u16).to_be_bytes();
        [&[HANDSHAKE, 3, 1], &len[..], content].concat()
    };
    for piece in [1, 16_384] {
        let mut driver = driver(&server);
        driver.hold_computing = true;
        let mut fed = 0;
        for content in long.chunks(piece) {
            if driver.is_closed() {
                break;
            }
            let record = record(content);
            fed += record.len();
            driver.feed(&record);
            assert!(driver.computing.is_none());
        }
        assert!(driver.is_closed() && fed < 100_000, "{fed}");
        assert_eq!(driver.closes(CloseReason::BadRequest), 1);
    }
    assert_eq!(server.counts().failed, 2);
}

/// A server, and a client of TLS 1.2.
fn ends_of_tls_1_2() -> (TlsServer, ClientConfig) {
    let own = certificate(&["localhost"]);
    let client = client_of(&own, &[&TLS12]);
    let certificates = Arc::new(Certificates::new(vec![own]));
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    (server, client)
}

/// A handshake whose client's flights are cut into pieces of so many bytes, which are no records.
fn hand_shake_in_pieces(server: &TlsServer, client: &Arc<ClientConfig>, piece: usize) {
    let (mut client, mut driver, mut seen) = (connection(client), driver(server), 0);
    while client.is_handshaking() {
        let out = sent_by(&mut client);
        assert!(!out.is_empty(), "by {piece}: the server waits for more");
        for piece in out.chunks(piece) {
            driver.feed(piece);
        }
        receive(&mut client, &driver, &mut seen);
    }
    for piece in sent_by(&mut client).chunks(piece) {
        driver.feed(piece);
    }
    receive(&mut client, &driver, &mut seen);
    assert!(!driver.is_closed(), "by {piece}");
}

#[test]
fn handshakes_of_several_computations_whatever_the_cuts() {
    for piece in [1, 2, 7, 44, 48, 53, 100] {
        let (server, client) = ends_of_tls_1_2();
        let client = Arc::new(client);
        for resumed in 0..2 {
            hand_shake_in_pieces(&server, &client, piece);
            assert_eq!(
                (server.counts().full, server.counts().resumed),
                (1, resumed)
            );
        }
        // A group that the server does not have comes first: it asks for another (RFC 8446 section 4.1.4).
        let own = certificate(&["localhost"]);
        let mut provider = crypto::aws_lc_rs::default_provider();
        provider.kx_groups = vec![MLKEM768, X25519];
        let client = Arc::new(client_with(&own, provider, &[&TLS13]));
        let certificates = Arc::new(Certificates::new(vec![own]));
        let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
        hand_shake_in_pieces(&server, &client, piece);
        assert_eq!(server.counts().full, 1, "by {piece}");
    }
}

#[test]
fn a_handshake_has_so_many_computations_and_no_more() {
    let (server, client) = ends_of_tls_1_2();
    let mut client = connection(&Arc::new(client));
    let (mut driver, mut seen, mut computations) = (driver(&server), 0, 1);
    driver.feed(&sent_by(&mut client));
    receive(&mut client, &driver, &mut seen);
    driver.hold_computing = true;
    // The client's keys, which TLS 1.2 sends in plain text.
    for record in cut_records(&sent_by(&mut client), 1).chunks(SMALL_RECORD) {
        driver.feed(record);
        if driver.is_closed() {
            break;
        }
        assert!(driver.computing.is_some());
        driver.computed(true);
        computations += 1;
    }
    assert!(driver.is_closed());
    assert_eq!(computations, 16);
    assert_eq!(driver.closes(CloseReason::BadRequest), 1);
    assert_eq!(server.counts().failed, 1);
}

/// A message of the handshake over a connection of TLS 1.2 that is open (RFC 5288 section 3).
fn sealed(sequence: u64, secrets: &ConnectionTrafficSecrets, message: &[u8]) -> Vec<u8> {
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
        panic!("another cipher suite");
    };
    let explicit = sequence.to_be_bytes();
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&iv.as_ref()[..4]);
    nonce[4..].copy_from_slice(&explicit);
    let mut aad = explicit.to_vec();
    aad.extend_from_slice(&[HANDSHAKE, 3, 3]);
    aad.extend_from_slice(&(message.len() as u16).to_be_bytes());
    let key = UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap();
    let mut content = message.to_vec();
    LessSafeKey::new(key)
        .seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(aad),
            &mut content,
        )
        .unwrap();
    let len = ((explicit.len() + content.len()) as u16).to_be_bytes();
    [&[HANDSHAKE, 3, 3], &len[..], &explicit, &content].concat()
}

#[test]
fn another_handshake_on_the_same_connection_is_refused_and_costs_no_worker() {
    let (server, mut client) = ends_of_tls_1_2();
    client.enable_secret_extraction = true;
    let client = Arc::new(client);
    let (mut own, mut driver): (ClientConnection, _) = (connection(&client), driver(&server));
    exchange(&mut own, &mut driver, &mut 0);
    assert!(!own.is_handshaking());
    let hello = sent_by(&mut connection(&client));
    let message = &hello[5..]; // without the record's head
    driver.hold_computing = true;
    let (sequence, secrets) = own.dangerous_extract_secrets().unwrap().tx;
    let before = driver.output.len();
    driver.feed(&sealed(sequence, &secrets, message));
    assert!(driver.computing.is_none() && !driver.is_closed());
    assert_eq!(driver.output[before..].first(), Some(&ALERT), "a warning");
    driver.feed(&sealed(sequence + 1, &secrets, message));
    assert!(driver.computing.is_none() && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::BadRequest), 1);
    assert_eq!(server.counts().full, 1);
}

/// A part of a message, in a record of its own.
const PART: usize = 16_000;

/// The beginning of a message of 65,280 bytes, the longest that rustls waits for.
fn begun() -> Vec<u8> {
    [&[20_u8, 0, 0xff, 0][..], &[0; PART]].concat()
}

/// A server's end of a connection of TLS 1.2 that is open, and what its client's next record is sealed by.
fn open_end() -> (TlsLayer, u64, ConnectionTrafficSecrets) {
    let (server, mut client) = ends_of_tls_1_2();
    client.enable_secret_extraction = true;
    let mut own = connection(&Arc::new(client));
    let mut layer = server.accept(ClientKey::NOBODY);
    let (mut plain, mut out) = (Buffer::default(), Buffer::default());
    while own.wants_write() {
        let mut sent = sent_by(&mut own);
        layer.received(&mut sent, &mut plain, &mut out).unwrap();
        while let Some(mut computation) = layer.take_computation() {
            computation.carry_out();
            layer.computed(computation, &mut plain, &mut out).unwrap();
        }
        let answer = std::mem::take(&mut out);
        let mut rest = &answer[..];
        while !rest.is_empty() {
            own.read_tls(&mut rest).unwrap();
            own.process_new_packets().unwrap();
        }
    }
    assert!(layer.is_open() && !own.is_handshaking());
    let (sequence, secrets) = own.dangerous_extract_secrets().unwrap().tx;
    (layer, sequence, secrets)
}

/// What rustls keeps of a record, or of a message behind the handshake, was nothing to the budget of memory.
#[test]
fn what_has_come_of_a_record_or_a_message_counts_as_held() {
    let (mut layer, sequence, secrets) = open_end();
    let (mut plain, mut out) = (Buffer::default(), Buffer::default());
    let before = layer.held_bytes();
    let mut first = sealed(sequence, &secrets, &begun());
    let (half, rest) = first.split_at_mut(PART / 2);
    layer.received(half, &mut plain, &mut out).unwrap();
    assert!(layer.held_bytes() >= before + PART / 2, "half a record");
    layer.received(rest, &mut plain, &mut out).unwrap();
    assert!(layer.held_bytes() >= before + PART);
    let mut second = sealed(sequence + 1, &secrets, &[0; PART]);
    layer.received(&mut second, &mut plain, &mut out).unwrap();
    assert!(layer.held_bytes() >= before + 2 * PART);
    assert!(plain.is_empty());
}

/// What came behind it was dropped, and the connection stayed.
#[test]
fn a_message_that_cannot_be_kept_ends_the_connection() {
    let (mut layer, sequence, secrets) = open_end();
    let (mut plain, mut out) = (Buffer::default(), Buffer::default());
    let first = begun();
    let parts = [&first[..], &[0; PART], &[0; PART], &[0; PART]];
    // Then records of a byte, which take more room than they bring of the message.
    let all = parts.into_iter().chain([&[0_u8][..]; 100]);
    let fed = all.zip(sequence..).try_for_each(|(part, sequence)| {
        let mut record = sealed(sequence, &secrets, part);
        layer.received(&mut record, &mut plain, &mut out)
    });
    assert!(fed.is_err());
}
