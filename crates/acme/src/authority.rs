//! An authority as it is asked: account, orders, renewal information. One question after the other, on
//! the thread that waits for the answers.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeStatus,
    ChallengeType, Error, Identifier, NewAccount, NewOrder, Order, OrderStatus,
};
use loadline_tls::Certificate;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde_json::{Value, json};

use crate::challenges::{Method01, Shown};
use crate::failed::{Failed, Why, is_of_authority, said};
use crate::https::{Http, done};
use crate::state_dir::{ACCOUNT, StateDir};
use crate::{AcmeError, ExternalAccount, Reason, UnixTime, Window};

/// How long an order is waited for at a time; after that it is gone on with later. Authorities take
/// seconds.
const ORDER_TIMEOUT: Duration = Duration::from_secs(180);
/// Between two looks at an order, at most, whatever the authority says.
const LOOK_MOST: Duration = Duration::from_secs(15);

/// The statuses of what an authority does not know, or not any more.
const UNKNOWN: [u16; 2] = [404, 410];

/// An authority, and what is kept about it.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) http: Http,
    pub(crate) state: StateDir,
    /// Of its directory.
    pub(crate) url: String,
    /// Between two looks at an order, if the authority does not say.
    pub(crate) look_every: Duration,
}

/// What of an authority's directory its library does not hand out.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) renewal_info: Option<String>,
    pub(crate) terms_of_service: Option<String>,
}

/// What is ordered, and how the name is validated.
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    /// What it is to take the place of.
    pub(crate) before: Option<&'a Certificate>,
    /// The authority has failed at orders of this name again and again.
    pub(crate) has_failed_often: bool,
    /// Those that can be answered; the first that the authority offers is.
    pub(crate) methods: Vec<Method01>,
    /// Shows the response to a challenge: token, response, digest.
    pub(crate) show: &'a Show<'a>,
}

/// An order under way.
pub(crate) struct UnderWay {
    order: Order,
    /// Of its certificate.
    key: String,
    /// How long it is waited for.
    until: Instant,
}

pub(crate) type Show<'a> = dyn Fn(Method01, &str, &str, &[u8]) -> Result<Shown, Failed> + 'a;

impl Authority {
    pub(crate) fn directory(&self) -> Result<Directory, Failed> {
        let directory = self.http.get(&self.url);
        let directory = directory.map_err(|error| self.failed(error.into()))?;
        Ok(Directory {
            renewal_info: text(&directory["renewalInfo"]),
            terms_of_service: text(&directory["meta"]["termsOfService"]),
        })
    }

    pub(crate) fn has_account(&self) -> Result<bool, AcmeError> {
        Ok(self.state.read(ACCOUNT)?.is_some())
    }

    /// Makes room for another account. The authority may know this one again later.
    pub(crate) fn set_account_aside(&self) -> Result<Option<PathBuf>, AcmeError> {
        self.state.set_aside(ACCOUNT)
    }

    /// Makes an account.
    pub(crate) fn register(
        &self,
        email: &str,
        external: Option<&ExternalAccount>,
    ) -> Result<(), Failed> {
        let contact = contact(email);
        let account = NewAccount {
            contact: &[&contact],
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        let external = external.map(ExternalAccount::key);
        let created = builder.create(&account, self.url.clone(), external.as_ref());
        let (_, credentials) = self.ask(created)?;
        let kept = serde_json::to_value(&credentials)
            .map_err(|error| Failed::refused(format!("the account cannot be kept: {error}")))?;
        Ok(self.keep_account(kept, &contact)?)
    }

    /// When the account was last to be updated with this address, which is long ago if it never was.
    /// `None`: it has it, or there is no account.
    pub(crate) fn contact_tried_at(&self, email: &str) -> Result<Option<UnixTime>, AcmeError> {
        let contact = contact(email);
        let account = self.kept_account()?;
        let account = account.filter(|it| it["contact"] != contact);
        Ok(account.map(|it| {
            let tried = &it["contact_tried"];
            let at = tried["at"].as_u64().filter(|_| tried["contact"] == contact);
            UnixTime(at.unwrap_or_default())
        }))
    }

    /// Tells the authority the address of the account. That is kept before, so that restarts do not do it again.
    pub(crate) fn update_contact(&self, email: &str, now: UnixTime) -> Result<(), Failed> {
        let contact = contact(email);
        let Some(mut kept) = self.kept_account()? else {
            return Err(unreadable_account());
        };
        kept["contact_tried"] = json!({ "contact": contact, "at": now });
        self.write_account(&kept)?;
        let account = self.account()?;
        self.ask(account.update_contacts(&[&contact]))?;
        Ok(self.keep_account(kept, &contact)?)
    }

    /// The account's file; `None`: there is none, or it is no object of JSON.
    fn kept_account(&self) -> Result<Option<Value>, AcmeError> {
        let kept = self.state.read(ACCOUNT)?;
        let kept: Option<Value> = kept.and_then(|kept| serde_json::from_slice(&kept).ok());
        Ok(kept.filter(Value::is_object))
    }

    /// The library does not keep the contact with the account.
    fn keep_account(&self, mut account: Value, contact: &str) -> Result<(), AcmeError> {
        if let Some(account) = account.as_object_mut() {
            account.insert("contact".into(), contact.into());
            account.remove("contact_tried");
        }
        self.write_account(&account)
    }

    fn write_account(&self, account: &Value) -> Result<(), AcmeError> {
        self.state.write(ACCOUNT, account.to_string().as_bytes())
    }

    pub(crate) fn has_order(&self, name: &str) -> bool {
        self.state.path(&order_file(name)).exists()
    }

    pub(crate) fn forget_order(&self, name: &str) -> Result<(), AcmeError> {
        self.state.remove(&order_file(name))
    }

    /// Whether the order that is kept is the one of these certificates, whose PEM begins with their key.
    pub(crate) fn has_order_of(&self, name: &str, pem: &[u8]) -> bool {
        let kept = self.state.read(&order_file(name)).ok().flatten();
        let kept: Option<Value> = kept.and_then(|kept| serde_json::from_slice(&kept).ok());
        let key = kept.and_then(|kept| text(&kept["key"]));
        key.is_some_and(|key| pem.starts_with(key.as_bytes()))
    }

    /// Orders a certificate, or goes on with the order of one, until it is to be finalized, or is. What is shown
    /// meanwhile has to stay as long as the order is under way: the authority looks when it likes.
    pub(crate) fn make_ready(
        &self,
        wanted: &Wanted<'_>,
        shown: &mut Vec<Shown>,
    ) -> Result<UnderWay, Failed> {
        let (order, key) = self.order(wanted)?;
        let until = Instant::now() + ORDER_TIMEOUT;
        let mut it = UnderWay { order, key, until };
        let mut has_answered = false;
        loop {
            let status = it.order.state().status;
            match status {
                OrderStatus::Pending if !has_answered => {
                    self.answer_challenges(&mut it.order, wanted, shown)?;
                    has_answered = true;
                }
                OrderStatus::Pending => {}
                OrderStatus::Ready | OrderStatus::Processing | OrderStatus::Valid => return Ok(it),
                OrderStatus::Invalid => return Err(self.why_invalid(&mut it.order)),
            }
            self.look_again(&mut it)?;
        }
    }

    /// Has the authority issue the certificate of an order that is ready. A failure that keeps the order does not
    /// say whether it does.
    pub(crate) fn finalize(&self, it: &mut UnderWay, name: &str) -> Result<(), Failed> {
        if it.order.state().status != OrderStatus::Ready {
            return Ok(());
        }
        let request = request(name, &it.key)?;
        let finalized = self.poll(it.order.finalize_csr(&request))?;
        // What stands before the authority may refuse after it has passed the request on.
        let is_of_gateway =
            matches!(&finalized, Err(Error::Api(problem)) if !is_of_authority(problem));
        self.asked_of_order(finalized).map_err(|failed| Failed {
            keeps_order: failed.keeps_order || is_of_gateway,
            ..failed
        })
    }

    /// Waits until the authority has issued the certificate of a finalized order.
    pub(crate) fn wait_until_valid(&self, it: &mut UnderWay) -> Result<(), Failed> {
        loop {
            let status = it.order.state().status;
            match status {
                OrderStatus::Valid => return Ok(()),
                OrderStatus::Invalid => return Err(self.why_invalid(&mut it.order)),
                OrderStatus::Pending | OrderStatus::Ready | OrderStatus::Processing => {}
            }
            self.look_again(it)?;
        }
    }

    /// The certificate of an order that is valid: its key and the certificates, in PEM.
    pub(crate) fn download(&self, it: &mut UnderWay) -> Result<String, Failed> {
        let chain = self.ask_of_order(it.order.certificate())?;
        let chain = chain.ok_or_else(Failed::not_yet)?;
        Ok(format!("{}{chain}", it.key))
    }

    /// Looks at an order after a pause.
    fn look_again(&self, it: &mut UnderWay) -> Result<(), Failed> {
        let pause = self.http.take_retry_after().unwrap_or(self.look_every);
        if pause > it.until.saturating_duration_since(Instant::now()) {
            return Err(Failed {
                retry_after: Some(pause),
                ..Failed::not_yet()
            });
        }
        thread::sleep(look_after(pause, self.look_every));
        self.ask_of_order(it.order.refresh())?;
        Ok(())
    }

    /// When it wants a certificate renewed; and when it may be asked again.
    pub(crate) fn renewal(
        &self,
        certificate: &Certificate,
    ) -> Result<(Option<Window>, Option<Duration>), Failed> {
        let url = self.directory()?.renewal_info;
        let (Some(url), Some(id)) = (url, identifier(certificate)) else {
            return Ok((None, None));
        };
        let url = format!("{}/{id}", url.trim_end_matches('/'));
        let info = self.http.get_if_there(&url);
        let info = info.map_err(|error| self.failed(error.into()))?;
        let again = self.http.take_retry_after();
        let window = info.and_then(|it| {
            let moment = |name: &str| time(it["suggestedWindow"][name].as_str()?);
            let (start, end) = (moment("start")?, moment("end")?);
            (start < end).then_some(Window { start, end })
        });
        Ok((window, again))
    }

    /// The order under way, or a new one; and its key.
    fn order(&self, wanted: &Wanted<'_>) -> Result<(Order, String), Failed> {
        let account = self.account()?;
        let file = order_file(wanted.name);
        if let Some(kept) = self.state.read(&file).map_err(Failed::of_file)? {
            return self.kept_order(&account, &kept);
        }
        let key = KeyPair::generate().map_err(library)?.serialize_pem();
        let order = self.new_order(&account, wanted)?;
        let kept = json!({ "url": order.url(), "key": key });
        let kept = self.state.write(&file, kept.to_string().as_bytes());
        kept.map_err(Failed::of_file)?;
        Ok((order, key))
    }

    fn kept_order(&self, account: &Account, kept: &[u8]) -> Result<(Order, String), Failed> {
        let lost = |why: &str| {
            let text = format!("the order of before is lost: {why}");
            Failed::new(Why::OrderLost, text)
        };
        let kept: Value = serde_json::from_slice(kept).map_err(|error| lost(&error.to_string()))?;
        let (Some(url), Some(key)) = (text(&kept["url"]), text(&kept["key"])) else {
            return Err(lost("its file has no URL or no key"));
        };
        let found = self.poll(account.order(url))?;
        let status = self.http.signed_status();
        let is_unknown = found.is_err() && status.is_some_and(|it| UNKNOWN.contains(&it));
        let is_said = matches!(&found, Err(Error::Api(problem)) if is_of_authority(problem));
        match self.asked_of_order(found) {
            Ok(order) => Ok((order, key)),
            // A gateway may have lost the authority, which has the certificate.
            Err(failed) if is_unknown && !is_said => Err(Failed {
                keeps_order: true,
                retry_after: failed.retry_after,
                ..lost(&failed.message)
            }),
            Err(failed) if is_unknown && failed.why == Why::Failed(Reason::Refused) => {
                Err(lost(&failed.message))
            }
            // Any other refusal says nothing of the order, whose certificate may exist.
            Err(failed) => Err(failed),
        }
    }

    /// An order that takes the place of the certificate of before, if the authority wants to know.
    fn new_order(&self, account: &Account, wanted: &Wanted<'_>) -> Result<Order, Failed> {
        let identifiers = [Identifier::Dns(wanted.name.to_owned())];
        let plain = || NewOrder::new(&identifiers);
        let Some(id) = self.replaced(wanted)? else {
            return self.ask(account.new_order(&plain()));
        };
        let failed = match self.ask(account.new_order(&plain().replaces(id))) {
            Ok(order) => return Ok(order),
            Err(failed) => failed,
        };
        let has_answered = self.http.signed_status().is_some();
        let is_plain_next = match failed.why {
            // It does not take this certificate's place, for whatever reason: then it is a new one.
            Why::Failed(Reason::Refused) => true,
            // That may be what the authority fails at.
            Why::Failed(Reason::Unreachable) => has_answered && wanted.has_failed_often,
            _ => false,
        };
        match is_plain_next {
            true => self.ask(account.new_order(&plain())),
            false => Err(failed),
        }
    }

    fn account(&self) -> Result<Account, Failed> {
        let kept = self.state.read(ACCOUNT)?;
        let kept = kept.ok_or_else(unreadable_account)?;
        let credentials = serde_json::from_slice(&kept);
        let credentials: AccountCredentials = credentials.map_err(|_| unreadable_account())?;
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        self.ask(builder.from_credentials(credentials))
    }

    /// The certificate whose place the new one takes, if the authority wants to know (RFC 9773 section 5).
    fn replaced(
        &self,
        wanted: &Wanted<'_>,
    ) -> Result<Option<CertificateIdentifier<'static>>, Failed> {
        let Some(before) = wanted.before else {
            return Ok(None);
        };
        let has_info = self.directory()?.renewal_info.is_some();
        Ok(identifier(before).filter(|_| has_info))
    }

    /// Shows the responses to the challenges of an order, and says so.
    fn answer_challenges(
        &self,
        order: &mut Order,
        wanted: &Wanted<'_>,
        shown: &mut Vec<Shown>,
    ) -> Result<(), Failed> {
        let mut all = order.authorizations();
        while let Some(authorization) = self.poll(all.next())? {
            let mut authorization = self.asked_of_order(authorization)?;
            if authorization.status == AuthorizationStatus::Valid {
                continue; // from another order
            }
            let offers = |kind: &ChallengeType| {
                let mut all = authorization.challenges.iter();
                all.any(|it| it.r#type == *kind)
            };
            let (method, kind) = (wanted.methods.iter())
                .map(|method| (*method, method.kind()))
                .find(|(_, kind)| offers(kind))
                .ok_or_else(|| Failed::refused(none_offered(&wanted.methods)))?;
            let Some(mut challenge) = authorization.challenge(kind) else {
                continue; // it was found above
            };
            let response = challenge.key_authorization();
            let digest = response.digest();
            let token = challenge.token.clone();
            if !shown.iter().any(|it| it.is_for(method, &token)) {
                let text = response.as_str();
                shown.push((wanted.show)(method, &token, text, digest.as_ref())?);
            }
            if challenge.status == ChallengeStatus::Pending {
                self.ask_of_order(challenge.set_ready())?;
            }
        }
        Ok(())
    }

    /// What the authority says of an order that has failed.
    fn why_invalid(&self, order: &mut Order) -> Failed {
        let mut texts = Vec::new();
        if let Some(problem) = &order.state().error {
            texts.push(said(problem));
        }
        let mut all = order.authorizations();
        while let Ok(Some(Ok(mut authorization))) = self.poll(all.next()) {
            let _ = self.ask(authorization.refresh()); // what was seen of it may be old
            let errors = authorization.challenges.iter();
            texts.extend(errors.filter_map(|it| it.error.as_ref()).map(said));
        }
        texts.dedup(); // what went wrong with a challenge is what went wrong with the order
        let text = match texts.is_empty() {
            true => "the authority does not say why".to_owned(),
            false => texts.join("; "),
        };
        Failed::new(
            Why::Failed(Reason::Invalid),
            format!("the order failed: {text}"),
        )
    }

    /// The end of a question.
    fn ask<T>(&self, question: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
        let result = self.poll(question)?;
        self.asked(result)
    }

    fn poll<T>(&self, question: impl Future<Output = T>) -> Result<T, Failed> {
        // Requests are done when they return, so that no question waits for anything else.
        done(question).ok_or_else(|| Failed::refused("the library waits for something unknown"))
    }

    fn asked<T>(&self, result: Result<T, Error>) -> Result<T, Failed> {
        let status = self.http.signed_status();
        result.map_err(|error| self.failed(Failed::of(&error, status)))
    }

    /// The end of a question about what is one order's alone.
    fn ask_of_order<T>(
        &self,
        question: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failed> {
        let result = self.poll(question)?;
        self.asked_of_order(result)
    }

    fn asked_of_order<T>(&self, result: Result<T, Error>) -> Result<T, Failed> {
        let is_problem = matches!(result, Err(Error::Api(_)));
        let is_answered = self.http.signed_status().is_some_and(|it| it < 500);
        self.asked(result)
            .map_err(|failed| match is_answered && !is_problem {
                true => failed.of_order(),
                false => failed,
            })
    }

    /// With what the last response has said about when to ask again.
    fn failed(&self, failed: Failed) -> Failed {
        Failed {
            retry_after: self.http.take_retry_after(),
            ..failed
        }
    }
}

impl Method01 {
    fn kind(self) -> ChallengeType {
        match self {
            Self::Http => ChallengeType::Http01,
            Self::TlsAlpn => ChallengeType::TlsAlpn01,
        }
    }
}

/// The time until the next look at an order, for which the authority wants this pause.
fn look_after(pause: Duration, look_every: Duration) -> Duration {
    pause.min(LOOK_MOST).max(look_every)
}

fn none_offered(methods: &[Method01]) -> String {
    let names = methods.iter().map(|method| match method {
        Method01::Http => "HTTP-01",
        Method01::TlsAlpn => "TLS-ALPN-01",
    });
    let names: Vec<_> = names.collect();
    format!("the authority does not offer {}", names.join(" or "))
}

fn unreadable_account() -> Failed {
    Failed::new(Why::AccountLost, "the account's file cannot be read")
}

/// An address as an account has it.
fn contact(email: &str) -> String {
    format!("mailto:{email}")
}

fn order_file(name: &str) -> String {
    format!("{name}.order.json")
}

/// A certificate as authorities name it (RFC 9773 section 4.1).
fn identifier(certificate: &Certificate) -> Option<CertificateIdentifier<'static>> {
    let (authority, serial) = certificate.authority_and_serial()?;
    Some(CertificateIdentifier::new(authority[..].into(), serial[..].into()).into_owned())
}

/// A request for a certificate (CSR), signed with its key.
fn request(name: &str, key: &str) -> Result<Vec<u8>, Failed> {
    let key = KeyPair::from_pem(key).map_err(library)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(library)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(library)?;
    Ok(request.der().to_vec())
}

fn time(text: &str) -> Option<UnixTime> {
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_second()).ok().map(UnixTime)
}

fn library(error: rcgen::Error) -> Failed {
    Failed::refused(format!("no key or request could be made: {error}"))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An application may look less often than at most: that was a panic at each order.
    #[test]
    fn looks_at_an_order_are_as_far_apart_as_they_are_to_be() {
        for (pause_s, every_s, expected_s) in [(0, 1, 1), (5, 1, 5), (60, 1, 15), (5, 60, 60)] {
            let [pause, every] = [pause_s, every_s].map(Duration::from_secs);
            assert_eq!(look_after(pause, every), Duration::from_secs(expected_s));
        }
    }
}
