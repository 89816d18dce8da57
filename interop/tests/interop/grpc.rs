//! gRPC: tonic's service, asked by tonic's client.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures_util::stream;
use loadline_tower::Tower;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::lines::{Codec, Line, LineService, Shared};
use crate::model::Model;
use crate::served::{Over, Served, eventually, run};

every_model! {
    a_line_for_a_line,
    errors_in_trailers,
    a_line_for_many,
    many_lines_for_a_line,
    a_conversation,
    a_deadline_passes,
    a_client_that_cancels,
    a_drain_lets_calls_end,
}

/// Runs a case in plain text and over TLS.
fn both(model: Model, case: impl AsyncFn(&Service)) {
    for over in Over::BOTH {
        let shared = Arc::<Shared>::default();
        let tower = Tower::new(LineService(Arc::clone(&shared))).unwrap();
        let served = Served::start(model, over, tower);
        let service = Service { served, shared };
        run(case(&service));
        let Service { served, shared } = service;
        drop(served);
        assert_eq!(shared.hanging.load(SeqCst), 0, "a call left behind");
    }
}

struct Service {
    served: Served,
    shared: Arc<Shared>,
}

/// A client of the service, as tonic would generate it.
#[derive(Clone)]
struct Client(Grpc<Channel>);

impl Service {
    async fn connect(&self) -> Client {
        let mut endpoint = Endpoint::from_shared(self.served.url("")).unwrap();
        if self.served.over == Over::Tls {
            let authority = Certificate::from_pem(self.served.certificate_pem());
            let tls = ClientTlsConfig::new().ca_certificate(authority);
            endpoint = endpoint.tls_config(tls).unwrap();
        }
        Client(Grpc::new(endpoint.connect().await.unwrap()))
    }

    async fn await_hanging(&self, count: u64) {
        let hanging = || self.shared.hanging.load(SeqCst) == count;
        eventually("so many calls hang", hanging).await;
    }
}

impl Client {
    async fn answer(&mut self, request: Request<Line>) -> Result<Response<Line>, Status> {
        let path = "/lines.Lines/Answer".parse().unwrap();
        self.0.ready().await.unwrap();
        self.0.unary(request, path, Codec::default()).await
    }

    async fn sum(&mut self, lines: Vec<Line>) -> Result<Response<Line>, Status> {
        let path = "/lines.Lines/Sum".parse().unwrap();
        self.0.ready().await.unwrap();
        let request = Request::new(stream::iter(lines));
        self.0
            .client_streaming(request, path, Codec::default())
            .await
    }

    async fn count(&mut self, text: &str, count: u32) -> Result<Streaming<Line>, Status> {
        let path = "/lines.Lines/Count".parse().unwrap();
        self.0.ready().await.unwrap();
        let request = Request::new(Line::new(text, count));
        let response = self
            .0
            .server_streaming(request, path, Codec::default())
            .await?;
        Ok(response.into_inner())
    }

    /// What is sent is echoed.
    async fn echo(&mut self) -> (mpsc::Sender<Line>, Streaming<Line>) {
        let path = "/lines.Lines/Echo".parse().unwrap();
        self.0.ready().await.unwrap();
        let (sender, receiver) = mpsc::channel(1);
        let request = Request::new(ReceiverStream::new(receiver));
        let response = self.0.streaming(request, path, Codec::default()).await;
        (sender, response.unwrap().into_inner())
    }
}

fn line(text: &str, count: u32) -> Request<Line> {
    Request::new(Line::new(text, count))
}

fn a_line_for_a_line(model: Model) {
    both(model, async |service| {
        let mut client = service.connect().await;
        let response = client.answer(line("a", 1)).await.unwrap();
        assert_eq!(response.metadata().get("x-kept").unwrap(), "yes");
        assert_eq!(response.into_inner(), Line::new("a", 2));
        let long = "ä".repeat(1 << 20);
        let response = client.answer(line(&long, 5)).await.unwrap();
        assert!(response.into_inner() == Line::new(&long, 6));
        let mut calls = Vec::new();
        for count in 0..100 {
            let mut client = client.clone();
            let call = async move { client.answer(line("x", count)).await.unwrap() };
            calls.push(tokio::spawn(call));
        }
        for (count, call) in (1..).zip(calls) {
            assert_eq!(call.await.unwrap().into_inner(), Line::new("x", count));
        }
    });
}

fn errors_in_trailers(model: Model) {
    both(model, async |service| {
        let mut client = service.connect().await;
        let status = client.answer(line("refuse", 1)).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), "not now: 100 % of ä");
        assert_eq!(status.details(), b"\x00details\xff");
        assert_eq!(status.metadata().get("x-reason").unwrap(), "asked for");
        // Behind messages: not in the head, but in trailers.
        let mut lines = client.count("refuse", 3).await.unwrap();
        for count in 0..3 {
            assert_eq!(
                lines.message().await.unwrap(),
                Some(Line::new("refuse", count))
            );
        }
        let status = lines.message().await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::DataLoss, "the rest is lost")
        );
        // Where there is no status, the client makes one.
        let status = client.answer(line("panic", 1)).await.unwrap_err();
        assert!(
            [Code::Unknown, Code::Internal].contains(&status.code()),
            "{status:?}"
        );
        let path = "/lines.Lines/No".parse().unwrap();
        client.0.ready().await.unwrap();
        let status = client.0.unary(line("a", 1), path, Codec::default()).await;
        let status: Status = status.map(|_: Response<Line>| ()).unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unimplemented, "/lines.Lines/No")
        );
    });
}

fn a_line_for_many(model: Model) {
    both(model, async |service| {
        let mut client = service.connect().await;
        let lines = vec![Line::new(&"x".repeat(5000), 1); 300];
        let answer = client.sum(lines).await.unwrap().into_inner();
        assert_eq!(answer, Line::new("1500000", 300));
        assert_eq!(
            client.sum(vec![]).await.unwrap().into_inner(),
            Line::new("0", 0)
        );
        // The service does not want the rest.
        let mut lines = vec![Line::new(&"x".repeat(5000), 1); 300];
        lines[3].text = "refuse".to_owned();
        let status = client.sum(lines).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::ResourceExhausted, "enough")
        );
        assert_eq!(
            client.sum(vec![]).await.unwrap().into_inner(),
            Line::new("0", 0)
        );
    });
}

fn many_lines_for_a_line(model: Model) {
    both(model, async |service| {
        let mut client = service.connect().await;
        let text = "x".repeat(5000);
        let mut lines = client.count(&text, 300).await.unwrap();
        for count in 0..300 {
            let line = lines.message().await.unwrap().unwrap();
            assert!(line == Line::new(&text, count), "{count}");
        }
        assert_eq!(lines.message().await.unwrap(), None);
        let trailers = lines.trailers().await.unwrap();
        assert!(trailers.is_some(), "the status is there");
        let mut none = client.count("x", 0).await.unwrap();
        assert_eq!(none.message().await.unwrap(), None);
    });
}

/// Each line is sent once the one before it has come back.
fn a_conversation(model: Model) {
    both(model, async |service| {
        let mut client = service.connect().await;
        let (sender, mut lines) = client.echo().await;
        for count in 0..200 {
            sender.send(Line::new("x", count)).await.unwrap();
            assert_eq!(lines.message().await.unwrap(), Some(Line::new("x", count)));
        }
        drop(sender);
        assert_eq!(lines.message().await.unwrap(), None);
        let (sender, mut lines) = client.echo().await;
        sender.send(Line::new("refuse", 0)).await.unwrap();
        let status = lines.message().await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Aborted, "asked for"),
            "{status:?}"
        );
    });
}

/// tonic's client gives up, and the service learns of it.
fn a_deadline_passes(model: Model) {
    both(model, async |service| {
        let mut client = service.connect().await;
        let mut request = line("hang", 0);
        request.set_timeout(Duration::from_millis(200));
        let status = client.answer(request).await.unwrap_err();
        let is_late = [Code::Cancelled, Code::DeadlineExceeded].contains(&status.code());
        assert!(is_late, "{status:?}");
        service.await_hanging(0).await;
        let mut request = line("soon", 0);
        request.set_timeout(Duration::from_secs(3600));
        assert!(client.answer(request).await.is_ok());
        let timeout = service.shared.timeout.lock().unwrap().clone();
        assert!(
            timeout.is_some_and(|it| it.starts_with("3600")),
            "what the client said"
        );
    });
}

fn a_client_that_cancels(model: Model) {
    both(model, async |service| {
        let mut client = service.connect().await;
        let mut another = client.clone();
        let call = tokio::spawn(async move { another.answer(line("hang", 0)).await });
        service.await_hanging(1).await;
        call.abort();
        service.await_hanging(0).await;
        let mut lines = client.count("hang", 3).await.unwrap();
        assert_eq!(lines.message().await.unwrap(), Some(Line::new("hang", 0)));
        service.await_hanging(1).await;
        drop(lines);
        service.await_hanging(0).await;
        let (sender, mut lines) = client.echo().await;
        sender.send(Line::new("x", 0)).await.unwrap();
        assert!(lines.message().await.unwrap().is_some());
        service.await_hanging(1).await;
        drop((sender, lines));
        service.await_hanging(0).await;
        assert!(
            client.answer(line("x", 0)).await.is_ok(),
            "the connection goes on"
        );
    });
}

fn a_drain_lets_calls_end(model: Model) {
    both(model, async |service| {
        let mut client = service.connect().await;
        let (sender, mut lines) = client.echo().await;
        sender.send(Line::new("before", 0)).await.unwrap();
        assert!(lines.message().await.unwrap().is_some());
        service.served.drain();
        for count in 0..20 {
            sender.send(Line::new("after", count)).await.unwrap();
            assert_eq!(
                lines.message().await.unwrap(),
                Some(Line::new("after", count))
            );
        }
        drop(sender);
        assert_eq!(lines.message().await.unwrap(), None, "and it ends well");
    });
}
